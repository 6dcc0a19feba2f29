"""Reading examples made from questions: a passage, a question, the answer to generate.

A reader that sees only true passages can learn to remember. Where another answer of the same kind replaces the true
one, in the passage and in the target alike, only reading helps.
"""

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from openbook_lab.datasets.questions import Question

AnswerKind = Literal["year", "date", "number", "person", "name", "phrase"]

# The target of a passage that does not answer: the end token alone.
NO_ANSWER = ""
COUNTERFACTUAL_SHARE = 1 / 3

_MONTHS = r"(?:January|February|March|April|May|June|July|August|September|October|November|December)"
_YEAR = re.compile(r"^(?:1\d|20)\d\d$")
_DATE = re.compile(rf"\b{_MONTHS}\b.*\d|\d.*\b{_MONTHS}\b")
_NUMBER = re.compile(
    r"^(?:about |around |nearly |over |some |more than |approximately )?[£$€]?\d"
    r"|^(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|fifty|sixty|hundreds?)\b",
    re.IGNORECASE,
)
_WHO = re.compile(r"\b(?:who|whom|whose)\b|\bname of the (?:president|prime minister|king|queen)\b", re.IGNORECASE)
_SMALL_WORDS = frozenset({"of", "the", "and", "de", "la", "von", "van", "in", "for", "on", "al", "bin", "du", "&"})
_WORD = re.compile(r"\S+")
_CLOZE_SPAN = re.compile(
    r"(?<![.!?] )(?<!^)\b[A-Z][\w'-]+(?: (?:of |the )?[A-Z][\w'-]+){0,3}"
    r"|\b\d[\d,.]*\d\b(?: (?:million|billion|percent))?"
)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'])")
_ASKS: dict[AnswerKind, tuple[str, ...]] = {
    "year": ("when", "in what year", "which year"),
    "date": ("when", "on what date"),
    "number": ("how many", "how much", "what number of"),
    "person": ("who", "which person", "what"),
    "name": ("what", "which", "who", "where"),
    "phrase": ("what",),
}


@dataclass(frozen=True, slots=True)
class ReadingExample:
    """One row of a reading batch. `start` is the answer's character offset in `text`; None: it is not there."""

    question: str
    title: str
    text: str
    answer: str
    start: int | None


def answer_kind(answer: str, question: str = "") -> AnswerKind:
    """The kind of an answer, by its form; the question tells a person from another name."""
    if _YEAR.match(answer):
        return "year"
    if _DATE.search(answer):
        return "date"
    if _NUMBER.match(answer):
        return "number"
    words = [word for word in answer.split() if word.lower() not in _SMALL_WORDS]
    if words and all(word[:1].isupper() for word in words) and len(words) <= 6:
        return "person" if _WHO.search(question) else "name"
    return "phrase"


def occurrences(answer: str, text: str) -> list[int]:
    """Character offsets of `answer` in `text`, as whole words in any casing."""
    if answer.lower() not in text.lower():
        return []
    return [match.start() for match in _whole_words(answer).finditer(text)]


def _whole_words(answer: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(answer)}(?!\w)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class AnswerPool:
    """The answers of the training questions by kind, to draw other answers from."""

    by_kind: dict[AnswerKind, tuple[str, ...]]

    @classmethod
    def of(cls, questions: Iterable[Question]) -> "AnswerPool":
        by_kind: dict[AnswerKind, dict[str, None]] = {}
        for question in questions:
            for answer in question.answers:
                if 0 < len(answer) <= 60:
                    by_kind.setdefault(answer_kind(answer, question.text), {})[answer] = None
        return cls({kind: tuple(answers) for kind, answers in by_kind.items()})

    def draw(self, kind: AnswerKind, unlike: str, random_state: random.Random) -> str:
        """Another answer of this kind, or `unlike` itself where the pool has none."""
        if kind == "year":
            return str(random_state.randint(1400, 2024))
        if kind == "number" and unlike.isdigit() and random_state.random() < 0.5:
            return str(random_state.randint(2, 10 ** min(len(unlike) + 1, 7)))
        pool = self.by_kind.get(kind, ())
        if kind == "person" and random_state.random() < 0.5:
            # an invented person: the first name of one and the last name of another
            full = [name for name in random_state.choices(pool or ("",), k=12) if " " in name]
            return unlike if len(full) < 2 else f"{full[0].split()[0]} {full[1].split()[-1]}"
        for _ in range(8 if pool else 0):
            drawn = random_state.choice(pool)
            # A long answer for a short one would change how the passage reads more than what it says.
            if drawn.lower() != unlike.lower() and abs(len(drawn.split()) - len(unlike.split())) <= 2:
                return drawn
        return unlike


def asked(question: str, random_state: random.Random) -> str:
    """The question as people type it: now and then without its question mark."""
    return question.rstrip("? ") if random_state.random() < 0.15 else question


def reading_example(
    question: Question,
    pool: AnswerPool,
    random_state: random.Random,
    *,
    title_share: float = 0.5,
    counterfactual: float = COUNTERFACTUAL_SHARE,
) -> ReadingExample | None:
    """A window around the first answer; None where the context does not hold that answer.

    The shares are the chances of a passage with its title, and of another answer in its place.
    """
    answer = question.answers[0]
    window = window_around(question.text, answer, question.context, random_state)
    if window is None:
        return None
    text, start = window
    text_asked, title = asked(question.text, random_state), titled(question.title, title_share, random_state)
    example = ReadingExample(text_asked, title, text, text[start : start + len(answer)], start)
    return make_counterfactual(example, pool, random_state, chance=counterfactual)


def titled(title: str, share: float, random_state: random.Random) -> str:
    """The title with probability `share`, else none."""
    return title if random_state.random() < share else ""


def window_around(
    question: str, answer: str, context: str, random_state: random.Random, *, words: tuple[int, int] = (60, 200)
) -> tuple[str, int] | None:
    """A random stretch of `context` that holds the answer, and the answer's offset in it; None: it is not there.

    If the answer occurs more than once, the surroundings that share most words with the question decide.
    """
    found = occurrences(answer, context)
    if not found:
        return None
    wanted = set(re.findall(r"\w+", question.lower()))

    def shared(start: int) -> int:
        around = context[max(0, start - 100) : start + len(answer) + 100].lower()
        return len(wanted & set(re.findall(r"\w+", around)))

    start = max(found, key=shared)
    spans = [match.span() for match in _WORD.finditer(context)]
    first = max(i for i, span in enumerate(spans) if span[0] <= start)
    last = max(i for i, span in enumerate(spans) if span[0] < start + len(answer))
    size = random_state.randint(*words)
    begin, end = 0, len(spans) - 1
    if len(spans) > size:
        lowest = max(0, last - size + 1)
        begin = random_state.randint(min(lowest, first), min(first, max(lowest, len(spans) - size)))
        end = min(max(begin + size - 1, last), end)
    left, right = spans[begin][0], spans[end][1]
    return context[left:right], start - left


def make_counterfactual(
    example: ReadingExample, pool: AnswerPool, random_state: random.Random, *, chance: float = COUNTERFACTUAL_SHARE
) -> ReadingExample:
    """With this chance, the example with another answer of the same kind in passage, title and target."""
    if example.start is None or random_state.random() >= chance:
        return example
    kind = answer_kind(example.answer, example.question)
    if kind == "phrase":
        return example
    drawn = pool.draw(kind, example.answer, random_state)
    answer = _whole_words(example.answer)
    before = answer.sub(lambda _: drawn, example.text[: example.start])
    after = answer.sub(lambda _: drawn, example.text[example.start + len(example.answer) :])
    title = answer.sub(lambda _: drawn, example.title)
    return replace(example, title=title, text=before + drawn + after, answer=drawn, start=len(before))


def distractor_example(question: str, title: str, text: str, random_state: random.Random) -> ReadingExample:
    """A passage that does not answer. Its target is the empty answer.

    The reader then gives a wrong passage's answers a low probability, and the marginal follows the right passage. The
    probability of the empty answer says whether any passage answers.
    """
    return ReadingExample(asked(question, random_state), title, text, NO_ANSWER, None)


def packed_example(example: ReadingExample, others: Sequence[str], random_state: random.Random) -> ReadingExample:
    """The example's sentence, which holds its answer, among other sentences in random order."""
    assert example.start is not None
    sentences = [example.text, *others]
    random_state.shuffle(sentences)
    before = " ".join(sentences[: sentences.index(example.text)])
    offset = len(before) + 1 if before else 0
    return replace(example, text=" ".join(sentences), start=offset + example.start)


def cloze_example(title: str, text: str, random_state: random.Random) -> ReadingExample | None:
    """A question made from a sentence of the passage: a name or number taken out, some words dropped.

    None where the passage offers nothing to ask about.
    """
    found = list(_CLOZE_SPAN.finditer(text))
    if not found:
        return None
    match = random_state.choice(found)
    answer = match.group()
    left = max((end.end() for end in _SENTENCE_END.finditer(text, 0, match.start())), default=0)
    ending = _SENTENCE_END.search(text, match.end())
    right = ending.start() if ending else len(text)
    before = text[left : match.start()].split()[-random_state.randint(4, 14) :]
    after = text[match.end() : right].rstrip(".!?").split()[: random_state.randint(4, 14)]
    if len(before) + len(after) < 4:
        return None
    keep = random_state.uniform(0.6, 1.0)
    before = [word for word in before if random_state.random() < keep]
    after = [word for word in after if random_state.random() < keep]
    ask = random_state.choice(_ASKS[answer_kind(answer)])
    order = [ask, *after, *before] if random_state.random() < 0.3 else [*before, ask, *after]
    if random_state.random() < 0.4:
        order = [ask, *before, *after]
    question = asked(" ".join(order) + "?", random_state)
    return ReadingExample(question, title, text, answer, match.start())
