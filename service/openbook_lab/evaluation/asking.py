"""Asking many questions with their passages: in batches of like length, and only what the log does not know."""

from collections.abc import Sequence

from openbook.indexing.index_builder import Progress
from openbook_lab.evaluation.answer_log import AnswerLog, GivenAnswer
from openbook_lab.evaluation.reader import BatchReader, Decode, OpenQuestion

# (question, passage) pairs read together; more do not fit the cache of a processor core.
ROWS_A_BATCH = 40


def ask(
    reader: BatchReader,
    questions: Sequence[OpenQuestion | None],
    decodes: Sequence[Decode],
    log: AnswerLog,
    *,
    progress: Progress,
    stage: str,
) -> dict[Decode, list[GivenAnswer | None]]:
    """By decoding, the answer to each question, None for None. What the log lacks is asked and written.

    The log knows a question by its text, passages and scores: the same passages are read once, whatever chose them.
    """
    keys = [None if question is None else question.key for question in questions]
    by_key = {
        key: question for key, question in zip(keys, questions, strict=True) if key is not None and question is not None
    }
    waiting: dict[int, list[str]] = {}
    for key, question in by_key.items():
        if _missing(log, decodes, [key]):
            waiting.setdefault(len(question.passages), []).append(key)
    # progress counts passages where their number differs, since they take the time
    alike = len({len(question.passages) for question in by_key.values()}) < 2
    weight = {key: 1 if alike else max(1, len(question.passages)) for key, question in by_key.items()}
    stage, total = stage if alike else f"{stage}, passages", sum(weight.values())
    answered = total - sum(weight[key] for group in waiting.values() for key in group)
    progress.update(answered, total, stage)
    # the most passages first, then the longest: what does not fit into memory fails at once
    for n_docs, group in sorted(waiting.items(), reverse=True):
        group.sort(key=lambda key: -max((len(one.text) for one in by_key[key].passages), default=0))
        size = max(1, ROWS_A_BATCH // max(1, n_docs))
        for first in range(0, len(group), size):
            batch = group[first : first + size]
            missing = _missing(log, decodes, batch)
            read = reader.read([by_key[key] for key in batch], missing)
            for decode, answers in zip(missing, read, strict=True):
                log.add(decode.key, zip(batch, answers, strict=True))
            answered += sum(weight[key] for key in batch)
            progress.update(answered, total, stage)
    return {decode: [None if key is None else log.get(decode.key, key) for key in keys] for decode in decodes}


def _missing(log: AnswerLog, decodes: Sequence[Decode], keys: Sequence[str]) -> list[Decode]:
    return [decode for decode in decodes if any(log.get(decode.key, key) is None for key in keys)]
