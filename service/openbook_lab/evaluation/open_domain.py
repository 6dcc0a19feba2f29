"""Questions whose passage has to be found: decodings, K at test time.

The paper's sections 4.1 and 4.5 on a book of one's own: learned retrieval against frozen, one checkpoint against
another, and marginalising over K passages against reading the first passage alone.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from openbook.settings import Settings
from openbook_lab.datasets.golds import Golds
from openbook_lab.datasets.questions import Question
from openbook_lab.evaluation.answer_log import AnswerLog
from openbook_lab.evaluation.book import Book, write_book
from openbook_lab.evaluation.marks import ANSWER_METRICS, Marks, mark_answers
from openbook_lab.evaluation.options import Options, Part, load_checkpoints
from openbook_lab.evaluation.reader import GREEDY, BatchReader, Decode, OpenQuestion, ask
from openbook_lab.evaluation.reports import Report, Rows, Table, run_facts, with_rows
from openbook_lab.evaluation.retrieval import RetrievalFigures, retrieve
from openbook_lab.evaluation.statistics import percent
from openbook_lab.evaluation.sweep_plot import SWEEP_TITLE

RECALL_AT = (1, 5, 20)

Best = Callable[[int], Sequence[OpenQuestion]]


@dataclass(frozen=True, slots=True)
class Setting:
    """What each question is read with, and how it is decoded."""

    questions: Sequence[OpenQuestion]
    decodes: tuple[Decode, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """The marks of one retrieval in one setting with one decoding."""

    retrieval: str
    what: str
    decode: Decode
    marks: Marks


def measure_open(settings: Settings, options: Options) -> Report:
    """Each part with each retriever of the first checkpoint, and with the first retriever of the others.

    The sweep over K is of the first retriever alone. Answers are kept and not asked again.
    """
    asked = options.asked()
    book = write_book(asked.every, options.passages)
    first, *others = load_checkpoints(settings, options.against)
    questions = asked.chosen
    texts = [question.text for question in questions]
    golds = [Golds(question.answers) for question in questions]
    rows: list[Row] = []
    retrievers = options.searchers
    words = bool({"bm25", "hybrid"} & set(retrievers))
    with options.opened(book, [first, *others], bm25=words) as (snapshot, progress):
        started = time.perf_counter()
        asking = [*((first, one) for one in retrievers), *((other, retrievers[0]) for other in others)]
        retrievals = [retrieve(checkpoint, texts, snapshot, one, options.encoder) for checkpoint, one in asking]
        for retrieval in retrievals:
            parts = [part for part in options.part if part != "sweep" or retrieval is retrievals[0]]
            settings_by_name = settings_of(partial(retrieval.best, texts), options, parts)
            reader, log = BatchReader(retrieval.checkpoint), AnswerLog.of(options.work, retrieval.checkpoint)
            for number, (what, setting) in enumerate(settings_by_name.items(), start=1):
                stage = f"{retrieval.name}: {what} ({number} of {len(settings_by_name)})"
                given = ask(reader, setting.questions, setting.decodes, log, progress=progress, stage=stage)
                rows += [
                    Row(retrieval.name, what, decode, mark_answers(answers, golds)) for decode, answers in given.items()
                ]
        tables = [recall_table(retrievals, questions, book), answers_table(rows), differences_table(rows, options)]
        if "sweep" in options.part:
            tables.append(sweep_table(retrievals[0], rows, golds, options))
        facts = {
            **asked.facts(),
            "seed": options.seed,
            "passages": len(book.passages),
            "passage encoder": snapshot.info.encoder_name,
            **run_facts(started),
        }
    return Report("open", facts, with_rows(*tables))


def settings_of(best_of: Best, options: Options, parts: Collection[Part]) -> Mapping[str, Setting]:
    """The settings by name; `best_of` gives the questions with their best K passages.

    A setting that two parts want is there once, with the decodings of both.
    """
    settings: dict[str, Setting] = {}

    def add(what: str, questions: Sequence[OpenQuestion], *decodes: Decode) -> None:
        before = settings[what].decodes if what in settings else ()
        settings[what] = Setting(questions, tuple(dict.fromkeys([*before, *decodes])))

    n_docs, beams, thorough, fast = options.n_docs, *decodes_of(options)
    if "decodings" in parts:
        add(retrieved(n_docs), best_of(n_docs), GREEDY, beams, thorough, fast)
        add(retrieved(1), best_of(1), GREEDY, beams)
    if "sweep" in parts:
        for k in options.k:
            add(retrieved(k), best_of(k), GREEDY, best(options, k))
    return settings


def decodes_of(options: Options) -> tuple[Decode, Decode, Decode]:
    """RAG-Token, then RAG-Sequence thorough and fast, each with beams."""
    n = options.num_beams
    return Decode("token", n), Decode("sequence", n), Decode("sequence", n, "fast")


def best(options: Options, k: int) -> Decode:
    """Thorough decoding; over one passage RAG-Sequence says what RAG-Token says."""
    beams, thorough, _ = decodes_of(options)
    return thorough if k > 1 else beams


def retrieved(n_docs: int) -> str:
    return "top passage alone" if n_docs == 1 else f"{n_docs} retrieved"


def recall_table(retrievals: Sequence[RetrievalFigures], questions: Sequence[Question], book: Book) -> Table:
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
    return Table(f"Retrieval from {len(book.passages):,} passages", columns, rows)


def answers_table(rows: Sequence[Row]) -> Table:
    """Everything that was asked."""
    cells: Rows = [(row.retrieval, row.what, str(row.decode), *row.marks.cells()) for row in rows]
    return Table("Answers", ("checkpoint", "passages", "decoding", "questions", *ANSWER_METRICS), cells)


def differences_table(rows: Sequence[Row], options: Options) -> Table:
    """What each step is worth, on the same questions, in points; an interval that holds 0 is no difference."""
    at = {(row.retrieval, row.what, row.decode): row.marks for row in rows}
    first = rows[0].retrieval
    found, top = retrieved(options.n_docs), retrieved(1)
    beams, thorough, fast = decodes_of(options)
    pairs = [
        ("all K against the top passage alone", found, GREEDY, top, GREEDY),
        ("all K against the top passage alone", found, beams, top, beams),
        ("all K against the top passage alone", found, thorough, top, beams),
        ("beam search against greedy", found, beams, found, GREEDY),
        ("RAG-Sequence against RAG-Token", found, thorough, found, beams),
        ("thorough against fast", found, thorough, found, fast),
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
    columns = ("checkpoint", "what", "decoding", "questions", *(f"{metric}, points" for metric in ANSWER_METRICS))
    return Table("Differences on the same questions", columns, cells)


def sweep_table(retrieval: RetrievalFigures, rows: Sequence[Row], golds: Sequence[Golds], options: Options) -> Table:
    """Marks at each K of the sweep (Figure 3), with how often an answer stands in the top K."""
    at = {(row.what, row.decode): row.marks for row in rows if row.retrieval == retrieval.name}
    held = retrieval.held(golds)
    _, thorough, _ = decodes_of(options)
    cells: Rows = []
    for k in sorted(set(options.k)):
        recall = percent(any(of_question[:k]) for of_question in held)
        for name, decode in ((GREEDY, GREEDY), (thorough, best(options, k))):
            cells.append((retrieval.name, k, str(name), *at[retrieved(k), decode].cells(), recall))
    columns = ("checkpoint", "K", "decoding", "questions", *ANSWER_METRICS, "answer in a passage")
    return Table(SWEEP_TITLE, columns, cells)
