"""Open-domain question answering over an index (Table 1), and what is retrieved for it."""

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from openbook.indexing.index_builder import Progress
from openbook.rag.checkpoint import Checkpoint
from openbook.storage.snapshot import IndexSnapshot
from openbook_lab.datasets.golds import Golds
from openbook_lab.datasets.question_files import QaQuestion
from openbook_lab.evaluation.answer_log import GivenAnswer
from openbook_lab.evaluation.index_asking import PaperPlan, ask_each
from openbook_lab.evaluation.marks import mark_answers
from openbook_lab.evaluation.retrieval import CLOSED_BOOK
from openbook_lab.evaluation.statistics import percent
from openbook_lab.evaluation.sweep_plot import SWEEP_TITLE
from openbook_lab.evaluation.tables import Cell, Report, Rows, Table, run_facts, with_rows

RECALL_AT = (1, 5, 10, 20, 50)


def measure_qa(
    checkpoint: Checkpoint,
    files: Sequence[tuple[str, Sequence[QaQuestion]]],
    snapshot: IndexSnapshot | None,
    plan: PaperPlan,
    *,
    work: Path,
    progress: Progress,
) -> Report:
    """Exact match, F1, recall, and exact match where no passage holds an answer, of each file by its name; and the same
    for each K of the plan's sweep.

    Answers are kept in `work` and not asked again. Raises TooManyDocs for an index with fewer than `plan.n_docs`
    passages, RetrieverUnavailable for "bm25" without its files.
    """
    started = time.perf_counter()
    answered: Rows = []
    recalled: Rows = []
    swept: Rows = []
    for name, questions in files:
        golds = [question.golds for question in questions]
        texts = [question.text for question in questions]
        for one in ask_each(checkpoint, texts, snapshot, plan, work=work, progress=progress, name=name):
            held = one.retrieval.held(golds)
            recalled += [
                (name, one.retriever, k, len(held), percent(any(of_text[:k]) for of_text in held))
                for k in RECALL_AT
                if k <= min(map(len, held))
            ]
            rows, more = one.rows(name, plan, partial(qa_cells, golds, held))
            if one.retriever == CLOSED_BOOK:
                # no passage, so nothing that an answer could stand in
                rows = [(*row[:-2], None, None) for row in rows]
            answered += rows
            swept += more
    marked = ("decoding", "questions", "EM", "F1", "answer in a passage", "EM, answer in no passage")
    return Report(
        "qa",
        {**plan.facts(checkpoint, snapshot), **run_facts(started)},
        with_rows(
            Table("Open-domain answers", ("file", "retriever", *marked), tuple(answered)),
            Table("Retrieval", ("file", "retriever", "k", "questions", "answer in top k"), tuple(recalled)),
            Table(SWEEP_TITLE, ("file", "retriever", "K", *marked), tuple(swept)),
        ),
    )


def qa_cells(
    golds: Sequence[Golds], held: Sequence[Sequence[bool]], answers: Sequence[GivenAnswer], k: int
) -> tuple[Cell, ...]:
    """How many questions; EM; F1; the share whose first `k` passages hold an answer; and EM over the others, which an
    extractive reader could not have answered (section 4.1)."""
    marks = mark_answers(answers, golds)
    aided = [any(of_question[:k]) for of_question in held]
    unaided = [right for right, is_aided in zip(marks.by_metric["EM"], aided, strict=True) if not is_aided]
    return *marks.cells(), percent(aided), percent(unaided)
