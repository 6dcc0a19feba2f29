"""Questions whose passage has to be found: decodings, gold passages among found ones, K at test time.

The paper's sections 4.1 and 4.5 on a book of one's own: learned retrieval against frozen, one checkpoint against
another, and what marginalising over K passages is worth against the first passage alone.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from openbook.indexing.index_builder import Progress
from openbook.rag.checkpoint import Checkpoint
from openbook.storage.snapshot import IndexSnapshot
from openbook_lab.datasets.qa_metrics import has_answer
from openbook_lab.datasets.questions import Question
from openbook_lab.evaluation.answer_log import AnswerLog
from openbook_lab.evaluation.asked import Asked
from openbook_lab.evaluation.asking import Marks, Setting, ask, difference, mark
from openbook_lab.evaluation.book import Book
from openbook_lab.evaluation.contestants import (
    Contestant,
    PassageChoices,
    retrieve_bm25,
    retrieve_frozen,
    retrieve_learned,
)
from openbook_lab.evaluation.reader import GREEDY, BatchReader, Decode, OpenQuestion
from openbook_lab.evaluation.reading import log_path
from openbook_lab.evaluation.statistics import bootstrap
from openbook_lab.evaluation.sweep_plot import SWEEP_TITLE
from openbook_lab.evaluation.tables import Cell, Report, Table, machine, percent

Part = Literal["decodings", "gold", "sweep"]
PARTS: tuple[Part, ...] = ("decodings", "gold", "sweep")
K_SWEEP = (1, 2, 3, 5, 8, 10, 15, 20)
RECALL_AT = (1, 5, 20)


@dataclass(frozen=True, slots=True)
class OpenPlan:
    """What is asked: which parts, over how many passages, with how many beams where a beam search is asked for."""

    parts: Collection[Part] = PARTS
    n_docs: int = 5
    num_beams: int = 4
    sweep: Sequence[int] = K_SWEEP


@dataclass(frozen=True, slots=True)
class Row:
    """The marks of one contestant in one setting."""

    contestant: str
    what: str
    decode: Decode
    marks: Marks


def measure_open(
    checkpoints: Sequence[Checkpoint],
    asked: Asked,
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
    """Everything that the plan asks for, of each checkpoint; of the first also with frozen retrieval, if `frozen`,
    and with BM25, if `bm25`, which `snapshot` must then hold.

    The sweep over K is the first one's alone. Answers are kept in `work`, and what is there is not asked again.
    """
    started = time.perf_counter()
    questions = asked.chosen
    contestants = [retrieve_learned(checkpoint.name, checkpoint, questions, snapshot) for checkpoint in checkpoints]
    if frozen:
        contestants.insert(1, retrieve_frozen(contestants[0], questions, snapshot, encoder_folder))
    if bm25:
        contestants.insert(1 + frozen, retrieve_bm25(contestants[0], questions, snapshot))
    others = replace(plan, parts=[part for part in plan.parts if part != "sweep"])
    rows: list[Row] = []
    for number, contestant in enumerate(contestants):
        choices = PassageChoices(contestant, questions, book, snapshot)
        settings = settings_of(choices, others if number else plan)
        log = AnswerLog(log_path(work, contestant.checkpoint))
        rows += ask_all(contestant, settings, questions, log, progress)
    facts = {
        **asked.facts(),
        "seed": seed,
        "passages": len(book.passages),
        "passage encoder": snapshot.info.encoder_name,
        "machine": machine(),
        "seconds": round(time.perf_counter() - started, 1),
    }
    tables = [recall_table(contestants, questions, book), answers_table(rows), differences_table(rows, plan)]
    if "sweep" in plan.parts:
        tables.append(sweep_table(contestants[0], rows, questions, plan))
    return Report("open", facts, tuple(table for table in tables if table.rows))


def ask_all(
    contestant: Contestant,
    settings: Mapping[str, Setting],
    questions: Sequence[Question],
    log: AnswerLog,
    progress: Progress,
) -> list[Row]:
    """All settings in their order, each marked."""
    reader = BatchReader(contestant.checkpoint)
    golds = [question.answers for question in questions]
    rows = []
    for number, (what, setting) in enumerate(settings.items(), start=1):
        stage = f"{contestant.name}: {what} ({number} of {len(settings)})"
        given = ask(reader, setting, len(questions), log, progress=progress, stage=stage)
        rows += [Row(contestant.name, what, decode, mark(answers, golds)) for decode, answers in given.items()]
    return rows


def recall_table(contestants: Sequence[Contestant], questions: Sequence[Question], book: Book) -> Table:
    """Among the first k: a passage that holds an answer, and the piece of the question's own paragraph that does."""
    rows: list[tuple[Cell, ...]] = []
    for contestant in contestants:
        for k in RECALL_AT:
            held, found = [], []
            for question, retrieved in zip(questions, contestant.found, strict=True):
                texts = [passage.text for passage in retrieved.passages[:k]]
                held.append(float(any(has_answer(text, question.answers) for text in texts)))
                gold = book.gold_rows(question)
                if gold:
                    found.append(float(bool(set(gold) & set(retrieved.rows[:k]))))
            rows.append(
                (contestant.name, k, len(held), percent(bootstrap(held)), len(found), percent(bootstrap(found)))
            )
    columns = ("retrieval", "k", "questions", "answer in top k", "with a gold piece", "gold piece in top k")
    return Table(f"Retrieval from {len(book.passages):,} passages", columns, tuple(rows))


def answers_table(rows: Sequence[Row]) -> Table:
    """Everything that was asked."""
    cells = tuple(
        (row.contestant, row.what, describe(row.decode), row.marks.questions, *row.marks.intervals()) for row in rows
    )
    return Table("Answers", ("checkpoint", "passages", "decoding", "questions", "EM", "F1"), cells)


def differences_table(rows: Sequence[Row], plan: OpenPlan) -> Table:
    """What each step is worth, on the same questions, in points; an interval that holds 0 is no difference."""
    at = {(row.contestant, row.what, row.decode): row.marks for row in rows}
    first = rows[0].contestant
    beams = Decode("token", plan.num_beams)
    thorough, fast = Decode("sequence", plan.num_beams), Decode("sequence", plan.num_beams, "fast")
    found, top, gold = retrieved(plan.n_docs), retrieved(1), "gold piece alone"
    pairs = [
        ("all K against the top passage alone", found, GREEDY, top, GREEDY),
        ("all K against the top passage alone", found, beams, top, beams),
        ("all K against the top passage alone", found, thorough, top, beams),
        ("beam search against greedy", found, beams, found, GREEDY),
        ("RAG-Sequence against RAG-Token", found, thorough, found, beams),
        ("thorough against fast", found, thorough, found, fast),
        *(
            (f"{what}, against the gold piece alone", what, decode, gold, beams if decode == thorough else decode)
            for what in (gold_among(plan.n_docs), gold_and_wrong(plan.n_docs))
            for decode in (GREEDY, thorough)
        ),
    ]
    cells: list[tuple[Cell, ...]] = []
    for what, left, left_decode, right, right_decode in pairs:
        mine, theirs = at.get((first, left, left_decode)), at.get((first, right, right_decode))
        if mine is not None and theirs is not None:
            cells.append((first, what, describe(left_decode), *difference(mine, theirs)))
    for row in rows:
        mine = at.get((first, row.what, row.decode))
        if row.contestant != first and mine is not None:
            what = f"against {row.contestant}: {row.what}"
            cells.append((first, what, describe(row.decode), *difference(mine, row.marks)))
    columns = ("checkpoint", "what", "decoding", "questions", "EM, points", "F1, points")
    return Table("Differences on the same questions", columns, tuple(cells))


def sweep_table(contestant: Contestant, rows: Sequence[Row], questions: Sequence[Question], plan: OpenPlan) -> Table:
    """What each K of the sweep is worth to the contestant (Figure 3), with how often an answer stands in the top K."""
    at = {(row.what, row.decode): row.marks for row in rows if row.contestant == contestant.name}
    held = [
        [has_answer(passage.text, question.answers) for passage in found.passages]
        for question, found in zip(questions, contestant.found, strict=True)
    ]
    cells: list[tuple[Cell, ...]] = []
    for k in sorted(set(plan.sweep)):
        recall = percent(bootstrap([float(any(one[:k])) for one in held]))
        # one passage alone is one model
        sequence = Decode("sequence", plan.num_beams)
        for said, asked in ((GREEDY, GREEDY), (sequence, sequence if k > 1 else Decode("token", plan.num_beams))):
            marks = at[retrieved(k), asked]
            cells.append((contestant.name, k, describe(said), marks.questions, *marks.intervals(), recall))
    columns = ("checkpoint", "K", "decoding", "questions", "EM", "F1", "answer in a passage")
    return Table(SWEEP_TITLE, columns, tuple(cells))


def describe(decode: Decode) -> str:
    """As people say it."""
    beams = "greedy" if decode.num_beams == 1 else f"{decode.num_beams} beams"
    return f"RAG-Token, {beams}" if decode.model == "token" else f"RAG-Sequence, {decode.decoding}, {beams}"


def retrieved(n_docs: int) -> str:
    return "top passage alone" if n_docs == 1 else f"{n_docs} retrieved"


def gold_among(n_docs: int) -> str:
    return f"{n_docs} retrieved, gold piece among them"


def gold_and_wrong(n_docs: int) -> str:
    return f"gold piece and {n_docs - 1} nearest wrong"


def settings_of(choices: PassageChoices, plan: OpenPlan) -> Mapping[str, Setting]:
    """By what is read. What two parts want is there once, with the decodings of both."""
    beams = Decode("token", plan.num_beams)
    thorough, fast = Decode("sequence", plan.num_beams), Decode("sequence", plan.num_beams, "fast")
    settings: dict[str, Setting] = {}

    def add(what: str, passages: Callable[[int], OpenQuestion | None], *decodes: Decode) -> None:
        before = settings[what].decodes if what in settings else ()
        settings[what] = Setting(passages, tuple(dict.fromkeys([*before, *decodes])))

    n_docs = plan.n_docs
    if "decodings" in plan.parts:
        add(retrieved(n_docs), choices.retrieved(n_docs), GREEDY, beams, thorough, fast)
        add(retrieved(1), choices.retrieved(1), GREEDY, beams)
    if "gold" in plan.parts:
        add("gold piece alone", choices.gold_alone(), GREEDY, beams)
        add(gold_among(n_docs), choices.gold_among(n_docs), GREEDY, thorough)
        add(gold_and_wrong(n_docs), choices.gold_and_wrong(n_docs), GREEDY, thorough)
    if "sweep" in plan.parts:
        for k in plan.sweep:
            # one passage alone is one model: RAG-Sequence would say what RAG-Token says
            add(retrieved(k), choices.retrieved(k), GREEDY, *((thorough,) if k > 1 else (beams,)))
    return settings
