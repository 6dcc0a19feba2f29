"""The mixture of stage 1: which kinds of reading examples are shown, how often, and where they come from."""

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from openbook_lab.training.counterfactual import AnswerPool, occurrences
from openbook_lab.training.examples import (
    Question,
    ReadingExample,
    answer_questions,
    cloze_example,
    distractor_example,
    make_counterfactual,
    packed_example,
    reading_example,
)
from openbook_lab.training.vectors import TextEncoder

Source = Callable[[random.Random], ReadingExample | None]


@dataclass(frozen=True, slots=True)
class Share:
    """How often a source is drawn from: a weight at the beginning and at the end of the stage, linear between."""

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
    # of a closed book, and then the only one
    "pair": Share(1.0, 1.0),
}


class Mixture:
    """Draws examples from named sources. The n-th pool of a seed is always the same."""

    def __init__(
        self, sources: Mapping[str, Source], *, seed: int, pools: int, shares: Mapping[str, Share] = DEFAULT_SHARES
    ) -> None:
        self._sources = dict(sources)
        self._shares = {name: share for name, share in shares.items() if name in sources}
        self._seed = seed
        self._pools = pools

    def pool(self, number: int, size: int) -> list[ReadingExample]:
        """`size` examples of pool `number`, of about `pools` in the whole stage."""
        random_state = random.Random(f"{self._seed} pool {number}")
        progress = min(1.0, number / max(1, self._pools - 1))
        names = list(self._shares)
        weights = [share.first + (share.last - share.first) * progress for share in self._shares.values()]
        examples: list[ReadingExample] = []
        while len(examples) < size:
            example = self._sources[random_state.choices(names, weights)[0]](random_state)
            if example is not None:
                examples.append(example)
        return examples


def closed_book_source(pairs: Sequence[Question]) -> Source:
    """What is asked and what is to be said, without any passage; each pair as often as another."""

    def pair(random_state: random.Random) -> ReadingExample:
        question = random_state.choice(pairs)
        return ReadingExample(question.text, "", "", random_state.choice(question.answers), None)

    return pair


def pieces_of(text: str, *, words: int = 100) -> list[str]:
    """A paragraph in stretches of about equal length, none above `words` words: how an index holds it."""
    split = text.split()
    count = -(-len(split) // words) if split else 0
    bounds = [round(i * len(split) / count) for i in range(count + 1)] if count else []
    return [" ".join(split[left:right]) for left, right in itertools.pairwise(bounds)]


def titled_pieces(questions: Sequence[Question]) -> list[tuple[str, str]]:
    """Every paragraph of the questions once, in pieces: (title, text) pairs in the order of the questions."""
    paragraphs = dict.fromkeys((question.title, question.context) for question in questions if question.context)
    return [(title, piece) for title, context in paragraphs for piece in pieces_of(context)]


def hard_negatives(
    questions: Sequence[Question], pieces: Sequence[tuple[str, str]], *, encoder: TextEncoder, keep: int = 4
) -> list[list[int]]:
    """For each question, the `keep` most similar pieces that hold none of its answers, most similar first."""
    passages = encoder.encode_texts([f"{title} {text}".strip() for title, text in pieces])  # (P, d)
    asked = encoder.encode_texts([question.text for question in questions])  # (Q, d)
    negatives = []
    lowered = [f"{title} {text}".lower() for title, text in pieces]
    for question, vector in zip(questions, asked, strict=True):
        nearest = np.argsort(-(passages @ vector))[:40]
        answers = {answer.lower() for answer in question.answers}
        wrong = (int(row) for row in nearest if not any(answer in lowered[row] for answer in answers))
        negatives.append(list(itertools.islice(wrong, keep)))
    return negatives


def question_sources(
    paragraphs: Sequence[Question],
    sentences: Sequence[Question],
    unanswerable: Sequence[Question],
    *,
    encoder: TextEncoder,
    more_pieces: Sequence[tuple[str, str]] = (),
) -> tuple[dict[str, Source], AnswerPool]:
    """The sources that question files feed: questions over paragraphs, over single sentences, and without an answer.

    Cloze questions are also made of `more_pieces`, (title, text) pairs that nobody asked anything about.
    """
    pool = AnswerPool.of(answer_questions([*paragraphs, *sentences]))
    pieces = titled_pieces(paragraphs)
    negatives = hard_negatives(paragraphs, pieces, encoder=encoder)
    to_cloze = [*pieces, *more_pieces]
    neighbourhood = 40

    def near(index: int, random_state: random.Random) -> Question:
        low, high = max(0, index - neighbourhood), min(len(sentences), index + neighbourhood)
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
        return whole and make_counterfactual(whole, pool=pool, random_state=random_state, chance=1 / 3)

    def cloze(random_state: random.Random) -> ReadingExample | None:
        if random_state.random() < 0.6 or not sentences:
            title, text = random_state.choice(to_cloze)
            title = title if random_state.random() < 0.5 else ""
        else:
            title, text = "", random_state.choice(sentences).context
        example = cloze_example(title, text, random_state=random_state)
        return example and make_counterfactual(example, pool=pool, random_state=random_state, chance=1 / 3)

    def distractor(random_state: random.Random) -> ReadingExample | None:
        index = random_state.randrange(len(paragraphs))
        if not negatives[index]:
            return None
        title, text = pieces[random_state.choice(negatives[index])]
        title = title if random_state.random() < 0.5 else ""
        return distractor_example(paragraphs[index], title=title, text=text, random_state=random_state)

    def without_answer(random_state: random.Random) -> ReadingExample | None:
        question = random_state.choice(unanswerable)
        text = random_state.choice(pieces_of(question.context))
        return distractor_example(question, title=question.title, text=text, random_state=random_state)

    def distant(random_state: random.Random) -> ReadingExample | None:
        index = random_state.randrange(len(sentences))
        question, other = sentences[index], near(index, random_state)
        if any(occurrences(answer, other.context) for answer in question.answers):
            return None
        more = random_state.choice(sentences).context if random_state.random() < 0.5 else ""
        text = f"{other.context} {more}".strip()
        return distractor_example(question, title="", text=text, random_state=random_state)

    sources: dict[str, Source] = {"paragraph": paragraph, "cloze": cloze, "distractor": distractor}
    if sentences:
        sources |= {"sentence": sentence, "packed": packed, "distant": distant}
    if unanswerable:
        sources |= {"unanswerable": without_answer}
    return sources, pool
