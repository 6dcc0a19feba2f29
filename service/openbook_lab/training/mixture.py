"""The mixture of reading: which kinds of examples are shown, how often, and where they come from."""

import itertools
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from openbook_lab.datasets.questions import Question
from openbook_lab.training.data import Questions, pieces_of, titled_pieces
from openbook_lab.training.examples import (
    AnswerPool,
    ReadingExample,
    cloze_example,
    distractor_example,
    example_at,
    make_counterfactual,
    occurrences,
    packed_example,
    reading_example,
)
from openbook_lab.training.vectors import TextEncoder
from openbook_lab.training.worlds import InventedWorld, by_kind, draw_question

Source = Callable[[random.Random], ReadingExample | None]

NEIGHBOURHOOD = 40
# Leaders are what the two demo indexes differ in most: half of the questions ask who holds an office.
OFFICE_SHARE = 0.5
WORLD_TITLE_SHARE = 0.9
WORLD_COUNTERFACTUAL_SHARE = 0.25
_LONG_WORD = re.compile(r"\w{4,}")


class Share(NamedTuple):
    """How often a source is drawn from: a weight at the first and at the last step of the stage, linear between."""

    first: float
    last: float


DEFAULT_SHARES: Mapping[str, Share] = {
    "paragraph": Share(0.38, 0.50),
    "sentence": Share(0.12, 0.03),
    "packed": Share(0.09, 0.05),
    "cloze": Share(0.12, 0.02),
    "distractor": Share(0.07, 0.12),
    "unanswerable": Share(0.04, 0.08),
    "distant": Share(0.02, 0.01),
    "world": Share(0.12, 0.14),
    "world_distractor": Share(0.04, 0.05),
    # the only source of a closed book
    "pair": Share(1.0, 1.0),
}


@dataclass(frozen=True, slots=True)
class Mixture:
    """Draws examples from named sources. The n-th pool of a seed is always the same; `pools` are in the whole stage."""

    sources: Mapping[str, Source]
    seed: int
    pools: int
    shares: Mapping[str, Share] = field(default_factory=lambda: DEFAULT_SHARES)

    def pool(self, number: int, size: int) -> list[ReadingExample]:
        """`size` examples of pool `number`."""
        random_state = random.Random(f"{self.seed} pool {number}")
        progress = min(1.0, number / max(1, self.pools - 1))
        shares = {name: share for name, share in self.shares.items() if name in self.sources}
        weights = [share.first + (share.last - share.first) * progress for share in shares.values()]
        examples: list[ReadingExample] = []
        while len(examples) < size:
            example = self.sources[random_state.choices(list(shares), weights)[0]](random_state)
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


def question_sources(questions: Questions, *, pool: AnswerPool, encoder: TextEncoder) -> dict[str, Source]:
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
        return reading_example(random_state.choice(paragraphs), pool=pool, random_state=random_state)

    def sentence(random_state: random.Random) -> ReadingExample | None:
        return reading_example(random_state.choice(sentences), pool=pool, random_state=random_state, title=0.0)

    def packed(random_state: random.Random) -> ReadingExample | None:
        index = random_state.randrange(len(sentences))
        example = reading_example(sentences[index], pool=pool, random_state=random_state, title=0.0, counterfactual=0.0)
        if example is None:
            return None
        drawn = [
            near(index, random_state) if random_state.random() < 0.5 else random_state.choice(sentences)
            for _ in range(random_state.randint(1, 4))
        ]
        others = list(dict.fromkeys(question.context for question in drawn if question.context != example.text))
        whole = packed_example(example, others, random_state=random_state)
        return make_counterfactual(whole, pool=pool, random_state=random_state)

    def cloze(random_state: random.Random) -> ReadingExample | None:
        if random_state.random() < 0.6 or not sentences:
            title, text = random_state.choice(to_cloze)
            title = title if random_state.random() < 0.5 else ""
        else:
            title, text = "", random_state.choice(sentences).context
        example = cloze_example(title, text, random_state=random_state)
        return example and make_counterfactual(example, pool=pool, random_state=random_state)

    def distractor(random_state: random.Random) -> ReadingExample | None:
        index = random_state.randrange(len(paragraphs))
        if not negatives[index]:
            return None
        title, text = pieces[random_state.choice(negatives[index])]
        title = title if random_state.random() < 0.5 else ""
        return distractor_example(paragraphs[index].text, title=title, text=text, random_state=random_state)

    def unanswerable(random_state: random.Random) -> ReadingExample | None:
        question = random_state.choice(questions.unanswerable)
        text = random_state.choice(pieces_of(question.context))
        return distractor_example(question.text, title=question.title, text=text, random_state=random_state)

    def distant(random_state: random.Random) -> ReadingExample | None:
        index = random_state.randrange(len(sentences))
        question, other = sentences[index], near(index, random_state)
        if any(occurrences(answer, other.context) for answer in question.answers):
            return None
        more = random_state.choice(sentences).context if random_state.random() < 0.5 else ""
        text = f"{other.context} {more}".strip()
        return distractor_example(question.text, title="", text=text, random_state=random_state)

    sources: dict[str, Source] = {"paragraph": paragraph, "cloze": cloze, "distractor": distractor}
    if sentences:
        sources |= {"sentence": sentence, "packed": packed, "distant": distant}
    if questions.unanswerable:
        sources |= {"unanswerable": unanswerable}
    return sources


def world_sources(worlds: Sequence[InventedWorld], *, pool: AnswerPool) -> dict[str, Source]:
    """The sources `world` (a passage with the answer) and `world_distractor` (a similar passage without it)."""
    if not worlds:
        return {}
    kinds = {world.name: by_kind(world.questions) for world in worlds}
    rows_of_word: dict[tuple[str, str], list[int]] = {}
    for world in worlds:
        for row, passage in enumerate(world.passages):
            for word in set(_LONG_WORD.findall(passage.title.lower())):
                rows_of_word.setdefault((world.name, word), []).append(row)

    def with_answer(random_state: random.Random) -> ReadingExample | None:
        world = random_state.choice(worlds)
        question = draw_question(kinds[world.name], random_state, office_share=OFFICE_SHARE)
        passage = world.passages[random_state.choice(question.rows)]
        answer = question.answers[0]
        start = occurrences(answer, passage.text)[0]
        example = example_at(
            question.text, passage.title, passage.text, start, len(answer), random_state, title_share=WORLD_TITLE_SHARE
        )
        return make_counterfactual(example, pool=pool, random_state=random_state, chance=WORLD_COUNTERFACTUAL_SHARE)

    def distractor(random_state: random.Random) -> ReadingExample | None:
        world = random_state.choice(worlds)
        question = draw_question(kinds[world.name], random_state, office_share=OFFICE_SHARE)
        words = [word for word in _LONG_WORD.findall(question.title.lower()) if (world.name, word) in rows_of_word]
        if not words:
            return None
        row = random_state.choice(rows_of_word[world.name, random_state.choice(words)])
        passage = world.passages[row]
        if row in question.rows or any(occurrences(answer, passage.text) for answer in question.answers):
            return None
        title = passage.title if random_state.random() < WORLD_TITLE_SHARE else ""
        return distractor_example(question.text, title=title, text=passage.text, random_state=random_state)

    return {"world": with_answer, "world_distractor": distractor}
