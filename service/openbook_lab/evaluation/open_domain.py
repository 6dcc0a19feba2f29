"""Questions whose passage has to be found: decodings, gold passages among found ones, K at test time.

The paper's sections 4.1 and 4.5 on a book of one's own: learned retrieval against frozen, one checkpoint against
another, and marginalising over K passages against reading the first passage alone.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from openbook.indexing.index_builder import Progress
from openbook.rag.checkpoint import Checkpoint
from openbook.storage.snapshot import IndexSnapshot
from openbook_lab.datasets.golds import Golds
from openbook_lab.datasets.questions import Question
from openbook_lab.evaluation.answer_log import AnswerLog
from openbook_lab.evaluation.asked import QuestionSet
from openbook_lab.evaluation.asking import ask
from openbook_lab.evaluation.book import Book
from openbook_lab.evaluation.marks import Marks, mark_answers
from openbook_lab.evaluation.reader import GREEDY, BatchReader, Decode, OpenQuestion
from openbook_lab.evaluation.retrieval import PassageChoices, Retrieval, retrieve
from openbook_lab.evaluation.statistics import percent
from openbook_lab.evaluation.sweep_plot import SWEEP_TITLE
from openbook_lab.evaluation.tables import Report, Rows, Table, run_facts, with_rows

Part = Literal["decodings", "gold", "sweep"]
PARTS: tuple[Part, ...] = ("decodings", "gold", "sweep")
K_SWEEP = (1, 2, 3, 5, 8, 10, 15, 20)
RECALL_AT = (1, 5, 20)
GOLD_ALONE = "gold piece alone"


@dataclass(frozen=True, slots=True)
class OpenPlan:
    """What is asked: which parts, over how many passages, with how many beams where a beam search is asked for."""

    parts: Collection[Part] = PARTS
    n_docs: int = 5
    num_beams: int = 4
    sweep: Sequence[int] = K_SWEEP

    @property
    def beams(self) -> Decode:
        return Decode("token", self.num_beams)

    @property
    def thorough(self) -> Decode:
        return Decode("sequence", self.num_beams)

    @property
    def fast(self) -> Decode:
        return Decode("sequence", self.num_beams, "fast")

    def best(self, k: int) -> Decode:
        """Thorough decoding; over one passage RAG-Sequence says what RAG-Token says."""
        return self.thorough if k > 1 else self.beams


@dataclass(frozen=True, slots=True)
class Setting:
    """What each question is read with, None where there is no such passage, and how it is decoded."""

    questions: Sequence[OpenQuestion | None]
    decodes: tuple[Decode, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """The marks of one retrieval in one setting with one decoding."""

    retrieval: str
    what: str
    decode: Decode
    marks: Marks


def measure_open(
    checkpoints: Sequence[Checkpoint],
    asked: QuestionSet,
    book: Book,
    snapshot: IndexSnapshot,
    plan: OpenPlan,
    *,
    frozen: bool,
    bm25: bool = False,
    encoder_folder: Path | None,
    seed: int,
    work: Path,
    progress: Progress,
) -> Report:
    """All that the plan asks for, of each checkpoint; of the first also with frozen retrieval, if `frozen`, and with
    BM25, if `bm25`, which `snapshot` must then hold. The sweep over K is of the first checkpoint alone.

    Answers are kept in `work` and not asked again.
    """
    started = time.perf_counter()
    questions = asked.chosen
    texts = [question.text for question in questions]
    golds = [Golds(question.answers) for question in questions]
    first, *others = checkpoints
    retrievals = [retrieve(first, texts, snapshot)]
    if frozen:
        retrievals.append(retrieve(first, texts, snapshot, "frozen", encoder_folder))
    if bm25:
        retrievals.append(retrieve(first, texts, snapshot, "bm25"))
    retrievals += [retrieve(checkpoint, texts, snapshot) for checkpoint in others]
    rows: list[Row] = []
    for retrieval in retrievals:
        of_first = retrieval is retrievals[0]
        parts = [part for part in plan.parts if part != "sweep" or of_first]
        settings = settings_of(PassageChoices(retrieval, questions, book, snapshot), replace(plan, parts=parts))
        reader, log = BatchReader(retrieval.checkpoint), AnswerLog.of(work, retrieval.checkpoint)
        for number, (what, setting) in enumerate(settings.items(), start=1):
            stage = f"{retrieval.name}: {what} ({number} of {len(settings)})"
            given = ask(reader, setting.questions, setting.decodes, log, progress=progress, stage=stage)
            rows += [
                Row(retrieval.name, what, decode, mark_answers(answers, golds)) for decode, answers in given.items()
            ]
    tables = [recall_table(retrievals, questions, book), answers_table(rows), differences_table(rows, plan)]
    if "sweep" in plan.parts:
        tables.append(sweep_table(retrievals[0], rows, golds, plan))
    return Report(
        "open",
        {
            **asked.facts(),
            "seed": seed,
            "passages": len(book.passages),
            "passage encoder": snapshot.info.encoder_name,
            **run_facts(started),
        },
        with_rows(*tables),
    )


def settings_of(choices: PassageChoices, plan: OpenPlan) -> Mapping[str, Setting]:
    """The settings by name. A setting that two parts want is there once, with the decodings of both."""
    settings: dict[str, Setting] = {}

    def add(what: str, questions: Sequence[OpenQuestion | None], *decodes: Decode) -> None:
        before = settings[what].decodes if what in settings else ()
        settings[what] = Setting(questions, tuple(dict.fromkeys([*before, *decodes])))

    n_docs = plan.n_docs
    if "decodings" in plan.parts:
        add(retrieved(n_docs), choices.retrieved(n_docs), GREEDY, plan.beams, plan.thorough, plan.fast)
        add(retrieved(1), choices.retrieved(1), GREEDY, plan.beams)
    if "gold" in plan.parts:
        add(GOLD_ALONE, choices.gold_alone(), GREEDY, plan.beams)
        add(gold_among(n_docs), choices.gold_among(n_docs), GREEDY, plan.thorough)
        add(gold_and_wrong(n_docs), choices.gold_and_wrong(n_docs), GREEDY, plan.thorough)
    if "sweep" in plan.parts:
        for k in plan.sweep:
            add(retrieved(k), choices.retrieved(k), GREEDY, plan.best(k))
    return settings


def retrieved(n_docs: int) -> str:
    return "top passage alone" if n_docs == 1 else f"{n_docs} retrieved"


def gold_among(n_docs: int) -> str:
    return f"{n_docs} retrieved, gold piece among them"


def gold_and_wrong(n_docs: int) -> str:
    return f"gold piece and {n_docs - 1} nearest wrong"


def recall_table(retrievals: Sequence[Retrieval], questions: Sequence[Question], book: Book) -> Table:
    """How often the first k hold a passage with an answer, and the gold piece of the question's own paragraph."""
    golds = [Golds(question.answers) for question in questions]
    pieces = [set(book.gold_rows(question)) for question in questions]
    rows: Rows = []
    for retrieval in retrievals:
        held = retrieval.held(golds)
        for k in RECALL_AT:
            found = [
                bool(gold & set(passages.rows[:k]))
                for gold, passages in zip(pieces, retrieval.found, strict=True)
                if gold
            ]
            in_top = percent(any(of_question[:k]) for of_question in held)
            rows.append((retrieval.name, k, len(held), in_top, len(found), percent(found)))
    columns = ("retrieval", "k", "questions", "answer in top k", "with a gold piece", "gold piece in top k")
    return Table(f"Retrieval from {len(book.passages):,} passages", columns, tuple(rows))


def answers_table(rows: Sequence[Row]) -> Table:
    """Everything that was asked."""
    cells = tuple((row.retrieval, row.what, str(row.decode), *row.marks.cells()) for row in rows)
    return Table("Answers", ("checkpoint", "passages", "decoding", "questions", "EM", "F1"), cells)


def differences_table(rows: Sequence[Row], plan: OpenPlan) -> Table:
    """What each step is worth, on the same questions, in points; an interval that holds 0 is no difference."""
    at = {(row.retrieval, row.what, row.decode): row.marks for row in rows}
    first = rows[0].retrieval
    found, top = retrieved(plan.n_docs), retrieved(1)
    beams, thorough = plan.beams, plan.thorough
    pairs = [
        ("all K against the top passage alone", found, GREEDY, top, GREEDY),
        ("all K against the top passage alone", found, beams, top, beams),
        ("all K against the top passage alone", found, thorough, top, beams),
        ("beam search against greedy", found, beams, found, GREEDY),
        ("RAG-Sequence against RAG-Token", found, thorough, found, beams),
        ("thorough against fast", found, thorough, found, plan.fast),
        *(
            (f"{what}, against the gold piece alone", what, decode, GOLD_ALONE, beams if decode == thorough else decode)
            for what in (gold_among(plan.n_docs), gold_and_wrong(plan.n_docs))
            for decode in (GREEDY, thorough)
        ),
    ]
    cells: Rows = []
    for what, left, left_decode, right, right_decode in pairs:
        mine, theirs = at.get((first, left, left_decode)), at.get((first, right, right_decode))
        if mine is not None and theirs is not None:
            cells.append((first, what, str(left_decode), *mine.minus(theirs).cells()))
    for row in rows:
        mine = at.get((first, row.what, row.decode))
        if row.retrieval != first and mine is not None:
            what = f"against {row.retrieval}: {row.what}"
            cells.append((first, what, str(row.decode), *mine.minus(row.marks).cells()))
    columns = ("checkpoint", "what", "decoding", "questions", "EM, points", "F1, points")
    return Table("Differences on the same questions", columns, tuple(cells))


def sweep_table(retrieval: Retrieval, rows: Sequence[Row], golds: Sequence[Golds], plan: OpenPlan) -> Table:
    """Marks at each K of the sweep (Figure 3), with how often an answer stands in the top K."""
    at = {(row.what, row.decode): row.marks for row in rows if row.retrieval == retrieval.name}
    held = retrieval.held(golds)
    cells: Rows = []
    for k in sorted(set(plan.sweep)):
        recall = percent(any(of_question[:k]) for of_question in held)
        for name, decode in ((GREEDY, GREEDY), (plan.thorough, plan.best(k))):
            cells.append((retrieval.name, k, str(name), *at[retrieved(k), decode].cells(), recall))
    columns = ("checkpoint", "K", "decoding", "questions", "EM", "F1", "answer in a passage")
    return Table(SWEEP_TITLE, columns, tuple(cells))
