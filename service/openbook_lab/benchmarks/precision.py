"""What a precision costs in answers: the same questions over the same passages, in each precision."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from openbook.indexing.index_builder import Progress
from openbook.rag.checkpoint import Checkpoint
from openbook.storage.snapshot import IndexSnapshot
from openbook_lab.datasets.golds import Golds
from openbook_lab.evaluation.answer_log import AnswerLog, GivenAnswer
from openbook_lab.evaluation.asked import QuestionSet
from openbook_lab.evaluation.asking import ask
from openbook_lab.evaluation.book import Book
from openbook_lab.evaluation.marks import mark_answers
from openbook_lab.evaluation.reader import BatchReader, Decode
from openbook_lab.evaluation.retrieval import PassageChoices, retrieve
from openbook_lab.evaluation.statistics import percent
from openbook_lab.evaluation.tables import Report, Rows, Table, run_facts


def measure_precisions(
    checkpoints: Mapping[str, Checkpoint],
    asked: QuestionSet,
    book: Book,
    snapshot: IndexSnapshot,
    decodes: Sequence[Decode],
    *,
    n_docs: int,
    work: Path,
    progress: Progress,
) -> Report:
    """One checkpoint in several precisions, by their names; the others are compared with the first.

    The question encoder of the first finds the passages for all: only the generators differ. Answers are kept in
    `work`.
    """
    started = time.perf_counter()
    exact, first = next(iter(checkpoints.items()))
    golds = [Golds(question.answers) for question in asked.chosen]
    retrieval = retrieve(first, [question.text for question in asked.chosen], snapshot)
    questions = PassageChoices(retrieval, asked.chosen, book, snapshot).retrieved(n_docs)
    given: dict[str, dict[Decode, list[GivenAnswer | None]]] = {}
    for precision, checkpoint in checkpoints.items():
        reader, log = BatchReader(checkpoint), AnswerLog.of(work, checkpoint)
        given[precision] = ask(reader, questions, decodes, log, progress=progress, stage=precision)
    rows: Rows = []
    for decode in decodes:
        base = given[exact][decode]
        for precision, answers in given.items():
            marks = mark_answers(answers[decode], golds)
            differing = percent(
                one.text != other.text
                for one, other in zip(answers[decode], base, strict=True)
                if one is not None and other is not None
            )
            points = marks.minus(mark_answers(base, golds)).means()
            rows.append((str(decode), precision, *marks.cells(), *points, differing))
    columns = (
        *("decoding", "precision", "questions", "EM", "F1"),
        *(f"EM, points over {exact}", f"F1, points over {exact}", f"% answered otherwise than {exact}"),
    )
    facts = {
        "checkpoint": first.name,
        **asked.facts(),
        "passages": len(book.passages),
        "K": n_docs,
        **run_facts(started),
    }
    return Report("bench precision", facts, (Table("Answers in each precision", columns, tuple(rows), digits=2),))
