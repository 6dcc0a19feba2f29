"""The mixture of reading: which kinds of examples are shown, how often, and where they come from."""

import itertools
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

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
from openbook_lab.training.vectors import TextEncoder
from openbook_lab.training.worlds import InventedWorld, LibraryQuestion, by_kind, draw_question

Source = Callable[[random.Random], ReadingExample | None]

NEIGHBOURHOOD = 40
# Leaders are what the two demo indexes differ in most: half of the questions ask who holds an office.
OFFICE_SHARE = 0.5
WORLD_TITLE_SHARE = 0.9
WORLD_COUNTERFACTUAL_SHARE = 0.25
_LONG_WORD = re.compile(r"\w{4,}")


# how often a source is drawn from: a weight at the first and at the last step of the stage, linear between
SHARES: Mapping[str, tuple[float, float]] = {
    "paragraph": (0.38, 0.50),
    "sentence": (0.12, 0.03),
    "packed": (0.09, 0.05),
    "cloze": (0.12, 0.02),
    "distractor": (0.07, 0.12),
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


def hard_negatives(
    questions: Sequence[Question], pieces: Sequence[tuple[str, str]], *, encoder: TextEncoder, keep: int = 4
) -> list[list[int]]:
    """For each question, the `keep` most similar pieces that hold none of its answers, most similar first."""
    passages = encoder.encode_texts([f"{title} {text}".strip() for title, text in pieces])  # (P, d)
    vectors = encoder.encode_texts([question.text for question in questions])  # (Q, d)
    negatives = []
    lowered = [f"{title} {text}".lower() for title, text in pieces]
    for question, vector in zip(questions, vectors, strict=True):
        nearest = np.argsort(-(passages @ vector))[:40]
        answers = {answer.lower() for answer in question.answers}
        wrong = (int(row) for row in nearest if not any(answer in lowered[row] for answer in answers))
        negatives.append(list(itertools.islice(wrong, keep)))
    return negatives


def question_sources(questions: Questions, pool: AnswerPool, encoder: TextEncoder) -> dict[str, Source]:
    """The sources that question files feed: questions over paragraphs, over single sentences, and without an answer.

    Cloze questions also come from the passages that have no questions.
    """
    paragraphs, sentences = questions.paragraphs, questions.sentences
    pieces = titled_pieces(paragraphs)
    negatives = hard_negatives(paragraphs, pieces, encoder=encoder)
    to_cloze = [*pieces, *((passage.title, passage.text) for passage in questions.passages)]

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
            title, text = random_state.choice(to_cloze)
            title = titled(title, 0.5, random_state)
        else:
            title, text = "", random_state.choice(sentences).context
        example = cloze_example(title, text, random_state)
        return example and make_counterfactual(example, pool, random_state)

    def distractor(random_state: random.Random) -> ReadingExample | None:
        index = random_state.randrange(len(paragraphs))
        if not negatives[index]:
            return None
        title, text = pieces[random_state.choice(negatives[index])]
        return distractor_example(paragraphs[index].text, titled(title, 0.5, random_state), text, random_state)

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

    sources: dict[str, Source] = {"paragraph": paragraph, "cloze": cloze, "distractor": distractor}
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
