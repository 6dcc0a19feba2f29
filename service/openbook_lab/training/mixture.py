"""The mixture of reading: which kinds of examples are shown, how often, and where they come from."""

import itertools
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from openbook.entities import Passage, PriorWeights
from openbook_lab.datasets.questions import Question
from openbook_lab.training.data import Questions, pieces_of, titled_pieces
from openbook_lab.training.examples import (
    AnswerPool,
    ReadingExample,
    asked,
    cloze_example,
    distractor_example,
    make_counterfactual,
    occurrences,
    packed_example,
    reading_example,
    titled,
)
from openbook_lab.training.libraries import DENSE, index_words
from openbook_lab.training.recipe import DistillationConfig
from openbook_lab.training.vectors import TextEncoder
from openbook_lab.training.worlds import InventedWorld, LibraryQuestion, by_kind, draw_question

Source = Callable[[random.Random], ReadingExample | None]

NEIGHBOURHOOD = 40
# of a question's search: pieces looked at, those among which one with an answer counts, and wrong ones kept
NEAREST = 40
FOUND_AMONG = 2
KEPT_NEGATIVES = 4
SEARCHED_TOGETHER = 128
SCALE = DistillationConfig().scale
# Leaders are what the two demo indexes differ in most: half of the questions ask who holds an office.
OFFICE_SHARE = 0.5
WORLD_TITLE_SHARE = 0.9
WORLD_COUNTERFACTUAL_SHARE = 0.25
_LONG_WORD = re.compile(r"\w{4,}")


# how often a source is drawn from: a weight at the first and at the last step of the stage, linear between
SHARES: Mapping[str, tuple[float, float]] = {
    "paragraph": (0.38, 0.50),
    "found": (0.08, 0.12),
    "sentence": (0.12, 0.03),
    "packed": (0.09, 0.05),
    "cloze": (0.12, 0.02),
    "distractor": (0.12, 0.30),
    "unanswerable": (0.04, 0.08),
    "distant": (0.02, 0.01),
    "world": (0.12, 0.14),
    "world_distractor": (0.04, 0.05),
    # the only source of a closed book
    "pair": (1.0, 1.0),
}


@dataclass(frozen=True, slots=True)
class Mixture:
    """Draws examples from named sources. The n-th pool of a seed is always the same; `pools` are in the whole stage."""

    sources: Mapping[str, Source]
    seed: int
    pools: int
    shares: Mapping[str, tuple[float, float]] = field(default_factory=lambda: SHARES)

    def pool(self, number: int, size: int) -> list[ReadingExample]:
        """`size` examples of pool `number`."""
        random_state = random.Random(f"{self.seed} pool {number}")
        progress = min(1.0, number / max(1, self.pools - 1))
        sources = [self.sources[name] for name in self.shares if name in self.sources]
        shares = [share for name, share in self.shares.items() if name in self.sources]
        weights = [first + (last - first) * progress for first, last in shares]
        examples: list[ReadingExample] = []
        while len(examples) < size:
            example = random_state.choices(sources, weights)[0](random_state)
            if example is not None:
                examples.append(example)
        return examples


def closed_book_source(pairs: Sequence[Question]) -> Source:
    """Question and answer without any passage; each pair as often as another."""

    def pair(random_state: random.Random) -> ReadingExample:
        question = random_state.choice(pairs)
        return ReadingExample(question.text, "", "", random_state.choice(question.answers), None)

    return pair


@dataclass(frozen=True, slots=True)
class FoundPieces:
    """The rows of the pieces nearest to a question, nearest first: some that hold an answer, and some that do not."""

    holding: Sequence[int]
    lacking: Sequence[int]


def search_pieces(
    questions: Sequence[Question],
    pieces: Sequence[tuple[str, str]],
    asked_vectors: NDArray[np.float32],
    vectors: NDArray[np.float32],
    prior: PriorWeights = DENSE,
) -> list[FoundPieces]:
    """For each question what the hybrid search finds among the pieces, before any training.

    Both kinds of vectors, (Q, d) and (N, d), are the passage encoder's own: a question encoder that begins training
    scores with SCALE times their inner product.
    A piece with an answer counts as `holding` if it is one of the first FOUND_AMONG: a name that stands farther down
    seldom answers.
    """

    def nearest(question: Question, rows: Sequence[int]) -> FoundPieces:
        stands = (
            row for row in rows[:FOUND_AMONG] if any(occurrences(one, pieces[row][1]) for one in question.answers)
        )
        answers = {answer.lower() for answer in question.answers}
        wrong = (row for row in rows if not any(answer in lowered[row] for answer in answers))
        return FoundPieces(list(stands), list(itertools.islice(wrong, KEPT_NEGATIVES)))

    lowered = [f"{title} {text}".lower() for title, text in pieces]
    passages = [Passage(str(row), *piece) for row, piece in enumerate(pieces)]
    words = index_words(passages, "pieces") if prior.bm25 else None
    found = []
    for start in range(0, len(questions), SEARCHED_TOGETHER):
        some = questions[start : start + SEARCHED_TOGETHER]
        scores = SCALE * prior.dense * asked_vectors[start : start + len(some)] @ vectors.T  # (B, N)
        if words is not None:
            scores += prior.bm25 * np.stack([words.scores(question.text) for question in some])
        rows = torch.from_numpy(scores).topk(min(NEAREST, len(pieces))).indices.tolist()
        found += [nearest(question, near) for question, near in zip(some, rows, strict=True)]
    return found


def question_sources(
    questions: Questions, pool: AnswerPool, encoder: TextEncoder, prior: PriorWeights = DENSE
) -> dict[str, Source]:
    """The sources that question files feed: questions over paragraphs, over single sentences, and without an answer.

    Cloze questions also come from the passages that have no questions. Questions alone are read with passages that the
    search finds: distant supervision, as in joint training.
    """
    paragraphs, sentences = questions.paragraphs, questions.sentences
    alone = [question for question in questions.alone if question.answers]
    of_paragraphs = titled_pieces(paragraphs)
    others = [(passage.title, passage.text) for passage in questions.passages]
    pieces = [*of_paragraphs, *others]
    vectors = np.concatenate(
        [encoder.encode_texts([f"{title} {text}".strip() for title, text in some]) for some in (of_paragraphs, others)]
    )  # (N, d)
    asked_vectors = np.concatenate(
        [encoder.encode_texts([question.text for question in some]) for some in (paragraphs, alone)]
    )  # (Q, d)
    searched = [*paragraphs, *alone]
    near_questions = search_pieces(searched, pieces, asked_vectors, vectors, prior)
    searches = list(zip(searched, near_questions, strict=True))
    answered = [(question, rows.holding) for question, rows in searches[len(paragraphs) :] if rows.holding]
    # where nothing holds an answer, a passage may answer in other words
    misled = [
        (question, rows.lacking) for question, rows in searches if rows.lacking and (rows.holding or question.context)
    ]

    def near(index: int, random_state: random.Random) -> Question:
        low, high = max(0, index - NEIGHBOURHOOD), min(len(sentences), index + NEIGHBOURHOOD)
        return sentences[random_state.randrange(low, high)]

    def paragraph(random_state: random.Random) -> ReadingExample | None:
        return reading_example(random_state.choice(paragraphs), pool, random_state)

    def sentence(random_state: random.Random) -> ReadingExample | None:
        return reading_example(random_state.choice(sentences), pool, random_state, title_share=0.0)

    def packed(random_state: random.Random) -> ReadingExample | None:
        index = random_state.randrange(len(sentences))
        example = reading_example(sentences[index], pool, random_state, title_share=0.0, counterfactual=0.0)
        if example is None:
            return None
        drawn = [
            near(index, random_state) if random_state.random() < 0.5 else random_state.choice(sentences)
            for _ in range(random_state.randint(1, 4))
        ]
        others = list(dict.fromkeys(question.context for question in drawn if question.context != example.text))
        return make_counterfactual(packed_example(example, others, random_state), pool, random_state)

    def cloze(random_state: random.Random) -> ReadingExample | None:
        if random_state.random() < 0.6 or not sentences:
            title, text = random_state.choice(pieces)
            title = titled(title, 0.5, random_state)
        else:
            title, text = "", random_state.choice(sentences).context
        example = cloze_example(title, text, random_state)
        return example and make_counterfactual(example, pool, random_state)

    def found(random_state: random.Random) -> ReadingExample | None:
        question, rows = random_state.choice(answered)
        title, text = pieces[random_state.choice(rows)]
        there = next(answer for answer in question.answers if occurrences(answer, text))
        return reading_example(Question(question.text, (there,), title, text), pool, random_state)

    def distractor(random_state: random.Random) -> ReadingExample | None:
        question, rows = random_state.choice(misled)
        title, text = pieces[random_state.choice(rows)]
        return distractor_example(question.text, titled(title, 0.5, random_state), text, random_state)

    def unanswerable(random_state: random.Random) -> ReadingExample | None:
        question = random_state.choice(questions.unanswerable)
        text = random_state.choice(pieces_of(question.context))
        return distractor_example(question.text, question.title, text, random_state)

    def distant(random_state: random.Random) -> ReadingExample | None:
        index = random_state.randrange(len(sentences))
        question, other = sentences[index], near(index, random_state)
        if any(occurrences(answer, other.context) for answer in question.answers):
            return None
        more = random_state.choice(sentences).context if random_state.random() < 0.5 else ""
        text = f"{other.context} {more}".strip()
        return distractor_example(question.text, "", text, random_state)

    sources: dict[str, Source] = {"paragraph": paragraph, "cloze": cloze}
    if answered:
        sources |= {"found": found}
    if misled:
        sources |= {"distractor": distractor}
    if sentences:
        sources |= {"sentence": sentence, "packed": packed, "distant": distant}
    if questions.unanswerable:
        sources |= {"unanswerable": unanswerable}
    return sources


def world_sources(worlds: Sequence[InventedWorld], pool: AnswerPool) -> dict[str, Source]:
    """The sources `world` (a passage with the answer) and `world_distractor` (a similar passage without it)."""
    if not worlds:
        return {}
    kinds = {world.name: by_kind(world.questions) for world in worlds}
    rows_of_word: dict[tuple[str, str], list[int]] = {}
    for world in worlds:
        for row, passage in enumerate(world.passages):
            for word in set(_LONG_WORD.findall(passage.title.lower())):
                rows_of_word.setdefault((world.name, word), []).append(row)

    def draw(random_state: random.Random) -> tuple[InventedWorld, LibraryQuestion]:
        world = random_state.choice(worlds)
        return world, draw_question(kinds[world.name], random_state, office_share=OFFICE_SHARE)

    def with_answer(random_state: random.Random) -> ReadingExample | None:
        world, question = draw(random_state)
        passage = world.passages[random_state.choice(question.rows)]
        start = occurrences(question.answers[0], passage.text)[0]
        answer = passage.text[start : start + len(question.answers[0])]
        text, title = asked(question.text, random_state), titled(passage.title, WORLD_TITLE_SHARE, random_state)
        example = ReadingExample(text, title, passage.text, answer, start)
        return make_counterfactual(example, pool, random_state, chance=WORLD_COUNTERFACTUAL_SHARE)

    def distractor(random_state: random.Random) -> ReadingExample | None:
        world, question = draw(random_state)
        words = [word for word in _LONG_WORD.findall(question.title.lower()) if (world.name, word) in rows_of_word]
        if not words:
            return None
        row = random_state.choice(rows_of_word[world.name, random_state.choice(words)])
        passage = world.passages[row]
        if row in question.rows or any(occurrences(answer, passage.text) for answer in question.answers):
            return None
        title = titled(passage.title, WORLD_TITLE_SHARE, random_state)
        return distractor_example(question.text, title, passage.text, random_state)

    return {"world": with_answer, "world_distractor": distractor}
