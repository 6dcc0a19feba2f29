"""Asking all questions under one setting: in batches of like length, past those that were answered before."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from openbook.indexing.index_builder import Progress
from openbook_lab.datasets.qa_metrics import exact_match, f1
from openbook_lab.evaluation.answer_log import AnswerLog, GivenAnswer
from openbook_lab.evaluation.reader import BatchReader, Decode, OpenQuestion
from openbook_lab.evaluation.statistics import Interval, bootstrap
from openbook_lab.evaluation.tables import percent

# (question, passage) pairs read together; more leave the cache of a processor core.
ROWS_A_BATCH = 40


@dataclass(frozen=True, slots=True)
class Setting:
    """Passages for each question, by its number (None: it has none of that kind), and how to decode from them."""

    passages: Callable[[int], OpenQuestion | None]
    decodes: tuple[Decode, ...]


def ask(
    reader: BatchReader, setting: Setting, questions: int, log: AnswerLog, *, progress: Progress, stage: str
) -> dict[Decode, list[GivenAnswer | None]]:
    """The answers to questions 0 .. questions-1, for each way of decoding; what the log lacks is asked and written.

    The log knows an answer by what was read, so that the same passages are never read twice, whatever chose them.
    """
    given = [setting.passages(number) for number in range(questions)]
    keys = [None if question is None else question.key for question in given]
    by_key = {
        key: question for key, question in zip(keys, given, strict=True) if key is not None and question is not None
    }
    waiting: dict[int, list[str]] = {}
    for key, question in by_key.items():
        if _missing(log, setting.decodes, [key]):
            waiting.setdefault(len(question.passages), []).append(key)
    # where questions have unlike numbers of passages these are counted, since they take the time
    alike = len({len(question.passages) for question in by_key.values()}) < 2
    weight = {key: 1 if alike else max(1, len(question.passages)) for key, question in by_key.items()}
    stage, total = stage if alike else f"{stage}, passages", sum(weight.values())
    answered = total - sum(weight[key] for group in waiting.values() for key in group)
    progress.update(answered, total, stage)
    # the most passages first, and then the longest: what does not fit into memory fails at once
    for n_docs, unsorted in sorted(waiting.items(), reverse=True):
        group = sorted(unsorted, key=lambda key: -max((len(one.text) for one in by_key[key].passages), default=0))
        size = max(1, ROWS_A_BATCH // max(1, n_docs))
        for some in (group[first : first + size] for first in range(0, len(group), size)):
            missing = _missing(log, setting.decodes, some)
            read = reader.read([by_key[key] for key in some], missing)
            for decode, answers in zip(missing, read, strict=True):
                log.add(decode.key, zip(some, answers, strict=True))
            answered += sum(weight[key] for key in some)
            progress.update(answered, total, stage)
    return {decode: [None if key is None else log.get(decode.key, key) for key in keys] for decode in setting.decodes}


def _missing(log: AnswerLog, decodes: Sequence[Decode], keys: Sequence[str]) -> list[Decode]:
    return [decode for decode in decodes if any(log.get(decode.key, key) is None for key in keys)]


@dataclass(frozen=True, slots=True)
class Marks:
    """Exact match and F1 of each question, in [0, 1]; None where it was left out."""

    exact_match: tuple[float | None, ...]
    f1: tuple[float | None, ...]

    @property
    def questions(self) -> int:
        return sum(one is not None for one in self.exact_match)

    def intervals(self) -> tuple[Interval, Interval]:
        """Mean exact match and mean F1, in percent."""
        return _interval(self.exact_match), _interval(self.f1)


def mark(answers: Sequence[GivenAnswer | None], golds: Sequence[Sequence[str]]) -> Marks:
    """Mark each answer against the golds of its question."""
    pairs = list(zip(answers, golds, strict=True))
    return Marks(
        tuple(None if answer is None else float(exact_match(answer.text, gold)) for answer, gold in pairs),
        tuple(None if answer is None else f1(answer.text, gold) for answer, gold in pairs),
    )


def difference(first: Marks, second: Marks) -> tuple[int, Interval, Interval]:
    """First minus second over the questions that both have: how many, exact match and F1 in points, paired."""
    matched = paired(first.exact_match, second.exact_match)
    return (
        len(matched),
        percent(bootstrap(matched)),
        percent(bootstrap(paired(first.f1, second.f1))),
    )


def paired(first: Sequence[float | None], second: Sequence[float | None]) -> list[float]:
    """First minus second, of what both have."""
    pairs = zip(first, second, strict=True)
    return [mine - theirs for mine, theirs in pairs if mine is not None and theirs is not None]


def _interval(values: Sequence[float | None]) -> Interval:
    return percent(bootstrap([value for value in values if value is not None]))
