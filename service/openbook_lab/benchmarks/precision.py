"""What a precision costs in answers: the same questions over the same passages, in each precision that is there."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from openbook.indexing.index_builder import Progress
from openbook.rag.checkpoint import Checkpoint
from openbook.storage.snapshot import IndexSnapshot
from openbook_lab.evaluation.answer_log import AnswerLog, GivenAnswer
from openbook_lab.evaluation.asked import Asked
from openbook_lab.evaluation.asking import Marks, Setting, ask, difference, mark
from openbook_lab.evaluation.book import Book
from openbook_lab.evaluation.contestants import PassageChoices, retrieve_learned
from openbook_lab.evaluation.open_domain import describe
from openbook_lab.evaluation.reader import BatchReader, Decode
from openbook_lab.evaluation.reading import log_path
from openbook_lab.evaluation.statistics import bootstrap
from openbook_lab.evaluation.tables import Cell, Report, Table, machine, percent


def measure_precisions(
    checkpoints: Mapping[str, Checkpoint],
    asked: Asked,
    book: Book,
    snapshot: IndexSnapshot,
    decodes: Sequence[Decode],
    *,
    n_docs: int,
    work: Path,
    progress: Progress,
) -> Report:
    """One checkpoint in several precisions, by their names; the first is what the others are held against.

    Its question encoder finds the passages for all: what differs is the generator. Answers are kept in `work`.
    """
    started = time.perf_counter()
    exact, first = next(iter(checkpoints.items()))
    questions = asked.chosen
    golds = [question.answers for question in questions]
    contestant = retrieve_learned(first.name, first, questions, snapshot)
    setting = Setting(PassageChoices(contestant, questions, book, snapshot).retrieved(n_docs), tuple(decodes))
    given: dict[str, dict[Decode, list[GivenAnswer | None]]] = {}
    for precision, checkpoint in checkpoints.items():
        log = AnswerLog(log_path(work, checkpoint))
        reader = BatchReader(checkpoint)
        given[precision] = ask(reader, setting, len(questions), log, progress=progress, stage=precision)
    rows: list[tuple[Cell, ...]] = []
    for decode in decodes:
        marks = {precision: mark(answers[decode], golds) for precision, answers in given.items()}
        for precision in checkpoints:
            differing = _differing(given[precision][decode], given[exact][decode])
            rows.append(
                (describe(decode), precision, *_cells(marks[precision], marks[exact]), percent(bootstrap(differing)))
            )
    columns = (
        *("decoding", "precision", "questions", "EM", "F1"),
        *(f"EM, points over {exact}", f"F1, points over {exact}", f"% answered otherwise than {exact}"),
    )
    facts = {
        "checkpoint": first.name,
        **asked.facts(),
        "passages": len(book.passages),
        "K": n_docs,
        "machine": machine(),
        "seconds": round(time.perf_counter() - started, 1),
    }
    return Report("bench precision", facts, (Table("Answers in each precision", columns, tuple(rows), digits=2),))


def _cells(marks: Marks, exact: Marks) -> tuple[Cell, ...]:
    _, matched, overlap = difference(marks, exact)
    return marks.questions, *marks.intervals(), matched, overlap


def _differing(given: Sequence[GivenAnswer | None], exact: Sequence[GivenAnswer | None]) -> list[float]:
    pairs = zip(given, exact, strict=True)
    return [float(one.text != other.text) for one, other in pairs if one is not None and other is not None]
