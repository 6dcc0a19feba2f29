"""The paper's experiments over an index of one's own: open-domain answers (Table 1) and what is retrieved for them."""

import time
from collections.abc import Sequence
from pathlib import Path

from openbook.indexing.index_builder import Progress
from openbook.rag.checkpoint import Checkpoint
from openbook.storage.snapshot import IndexSnapshot
from openbook_lab.datasets.golds import Golds
from openbook_lab.datasets.question_files import QaQuestion
from openbook_lab.evaluation.answer_log import GivenAnswer
from openbook_lab.evaluation.contestants import Contestant
from openbook_lab.evaluation.index_asking import CLOSED_BOOK, PaperPlan, ask_each
from openbook_lab.evaluation.statistics import bootstrap
from openbook_lab.evaluation.sweep_plot import SWEEP_TITLE
from openbook_lab.evaluation.tables import Cell, Report, Table, machine, percent

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

    Answers are kept in `work`, and what is there is not asked again. Raises TooManyDocs for an index with fewer
    than `plan.n_docs` passages, RetrieverUnavailable for "bm25" without its files.
    """
    started = time.perf_counter()
    answered: list[tuple[Cell, ...]] = []
    recalled: list[tuple[Cell, ...]] = []
    swept: list[tuple[Cell, ...]] = []
    for name, questions in files:
        golds = [question.golds for question in questions]
        for asked in ask_each(
            checkpoint, [q.text for q in questions], snapshot, plan, work=work, progress=progress, name=name
        ):
            held = held_by(asked.found, golds)
            recalled += [
                (name, asked.retriever, k, len(held), percent(bootstrap([float(any(one[:k])) for one in held])))
                for k in RECALL_AT
                if k <= min(map(len, held))
            ]
            for decode, answers in asked.of(plan.n_docs).items():
                of_file = (name, asked.retriever, asked.describe(decode), len(answers))
                if asked.retriever == CLOSED_BOOK:
                    # there is no passage for an answer to stand in
                    answered.append((*of_file, *mark_answers(answers, golds, [False] * len(golds))[:2], None, None))
                    continue
                answered.append((*of_file, *mark_answers(answers, golds, [any(one[: plan.n_docs]) for one in held])))
                for k in plan.sweep:
                    marks = mark_answers(asked.of(k)[decode], golds, [any(one[:k]) for one in held])
                    swept.append((name, asked.retriever, k, asked.describe(decode), len(answers), *marks))
    facts = {**facts_of(checkpoint, snapshot, plan), "seconds": round(time.perf_counter() - started, 1)}
    marked = ("decoding", "questions", "EM", "F1", "answer in a passage", "EM, answer in no passage")
    tables = (
        Table("Open-domain answers", ("file", "retriever", *marked), tuple(answered)),
        Table("Retrieval", ("file", "retriever", "k", "questions", "answer in top k"), tuple(recalled)),
        Table(SWEEP_TITLE, ("file", "retriever", "K", *marked), tuple(swept)),
    )
    return Report("qa", facts, tuple(table for table in tables if table.rows))


def mark_answers(answers: Sequence[GivenAnswer], golds: Sequence[Golds], held: Sequence[bool]) -> tuple[Cell, ...]:
    """EM, F1, share of questions whose passages hold an answer, and EM over the questions whose passages do not: what
    an extractive reader could not have answered (section 4.1).

    All in percent; without F1 where the golds are patterns.
    """
    pairs = list(zip(answers, golds, strict=True))
    right = [one.exact_match(answer.text) for answer, one in pairs]
    overlap = [f1 for answer, one in pairs if (f1 := one.f1(answer.text)) is not None]
    unaided = [is_right for is_right, there in zip(right, held, strict=True) if not there]
    return tuple(percent(bootstrap([float(one) for one in values])) for values in (right, overlap, held, unaided))


def held_by(found: Contestant, golds: Sequence[Golds]) -> list[list[bool]]:
    """Of each passage that was found for each question, whether an answer stands in it."""
    return [
        [of_one.stand_in(passage.text) for passage in one.passages]
        for one, of_one in zip(found.found, golds, strict=True)
    ]


def facts_of(checkpoint: Checkpoint, snapshot: IndexSnapshot | None, plan: PaperPlan) -> dict[str, str | int | float]:
    """Without which the figures mean nothing."""
    of_index: dict[str, str | int | float] = (
        {"index": "none"}
        if snapshot is None
        else {"index": snapshot.info.version, "passages": len(snapshot), "K": plan.n_docs}
    )
    return {"checkpoint": checkpoint.name, **of_index, "machine": machine()}
