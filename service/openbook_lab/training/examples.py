"""Reading examples made from questions: a passage, a question, the answer to be generated."""

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from openbook_lab.datasets.questions import Question as Question
from openbook_lab.datasets.questions import read_questions as read_questions
from openbook_lab.training.counterfactual import AnswerPool, answer_kind, occurrences, replace_everywhere

# The target of a passage that does not answer: the end at once.
NO_ANSWER = ""
_WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class ReadingExample:
    """What one step of reading sees. `start` is the answer's character offset in `text`; None: it is not there."""

    question: str
    title: str
    text: str
    answer: str
    start: int | None


def window_around(
    question: str, answer: str, context: str, *, random_state: random.Random, words: tuple[int, int] = (60, 200)
) -> tuple[str, int] | None:
    """A random stretch of `context` that holds the answer, and the answer's offset in it; None: it is not there.

    Of several occurrences, the one whose surroundings share most words with the question.
    """
    found = occurrences(answer, context)
    if not found:
        return None
    asked = set(re.findall(r"\w+", question.lower()))

    def shared(start: int) -> int:
        around = context[max(0, start - 100) : start + len(answer) + 100].lower()
        return len(asked & set(re.findall(r"\w+", around)))

    start = max(found, key=shared)
    spans = [match.span() for match in _WORD.finditer(context)]
    first = max(i for i, span in enumerate(spans) if span[0] <= start)
    last = max(i for i, span in enumerate(spans) if span[0] < start + len(answer))
    size = random_state.randint(*words)
    if len(spans) > size:
        lowest = max(0, last - size + 1)
        begin = random_state.randint(min(lowest, first), min(first, max(lowest, len(spans) - size)))
        end = max(begin + size - 1, last)
        left, right = spans[begin][0], spans[min(end, len(spans) - 1)][1]
    else:
        left, right = spans[0][0], spans[-1][1]
    return context[left:right], start - left


def reading_example(
    question: Question,
    *,
    pool: AnswerPool,
    random_state: random.Random,
    counterfactual: float = 1 / 3,
    title: float = 0.5,
) -> ReadingExample | None:
    """A window around the first of the answers, with a chance of another title-less or counterfactual passage.

    None where that answer does not stand in the context.
    """
    answer = question.answers[0]
    window = window_around(question.text, answer, question.context, random_state=random_state)
    if window is None:
        return None
    text, start = window
    example = ReadingExample(
        question=asked(question.text, random_state),
        title=question.title if random_state.random() < title else "",
        text=text,
        answer=text[start : start + len(answer)],
        start=start,
    )
    return make_counterfactual(example, pool=pool, random_state=random_state, chance=counterfactual)


def make_counterfactual(
    example: ReadingExample, *, pool: AnswerPool, random_state: random.Random, chance: float
) -> ReadingExample:
    """With this chance, the example with its answer replaced by another of its kind in passage, title and target."""
    if example.start is None or random_state.random() >= chance:
        return example
    kind = answer_kind(example.answer, example.question)
    if kind == "phrase":
        return example
    replacement = pool.draw(kind, unlike=example.answer, random_state=random_state)
    before = replace_everywhere(example.answer, replacement, example.text[: example.start])
    after = replace_everywhere(example.answer, replacement, example.text[example.start + len(example.answer) :])
    return replace(
        example,
        title=replace_everywhere(example.answer, replacement, example.title),
        text=before + replacement + after,
        answer=replacement,
        start=len(before),
    )


def distractor_example(question: Question, *, title: str, text: str, random_state: random.Random) -> ReadingExample:
    """A passage that does not answer. Its target is the empty answer.

    What a reader would say of a wrong passage is then unlikely, and the marginal over passages follows the right one.
    How likely the empty answer is says whether any passage answers.
    """
    return ReadingExample(asked(question.text, random_state), title, text, NO_ANSWER, None)


def packed_example(
    example: ReadingExample, others: Sequence[str], *, random_state: random.Random
) -> ReadingExample | None:
    """The example's sentence among other sentences, in random order; None for an example without its answer."""
    if example.start is None:
        return None
    sentences = [example.text, *others]
    random_state.shuffle(sentences)
    before = " ".join(sentences[: sentences.index(example.text)])
    offset = len(before) + 1 if before else 0
    return replace(example, text=" ".join(sentences), start=offset + example.start)


_CLOZE_SPAN = re.compile(
    r"(?<![.!?] )(?<!^)\b[A-Z][\w'-]+(?: (?:of |the )?[A-Z][\w'-]+){0,3}"
    r"|\b\d[\d,.]*\d\b(?: (?:million|billion|percent))?"
)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'])")
_ASKS = {
    "year": ("when", "in what year", "which year"),
    "date": ("when", "on what date"),
    "number": ("how many", "how much", "what number of"),
    "person": ("who", "which person", "what"),
    "name": ("what", "which", "who", "where"),
    "phrase": ("what",),
}


def cloze_example(title: str, text: str, *, random_state: random.Random) -> ReadingExample | None:
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
    return ReadingExample(
        question=asked(" ".join(order) + "?", random_state), title=title, text=text, answer=answer, start=match.start()
    )


def asked(question: str, random_state: random.Random) -> str:
    """The question as people type it: now and then without its question mark."""
    return question.rstrip("? ") if random_state.random() < 0.15 else question


def answer_questions(questions: Iterable[Question]) -> list[tuple[str, str]]:
    """(question, answer) pairs, to make an AnswerPool of."""
    return [(question.text, answer) for question in questions for answer in question.answers]
