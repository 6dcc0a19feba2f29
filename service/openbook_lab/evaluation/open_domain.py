"""Questions whose passage has to be found: decodings, K at test time.

The paper's sections 4.1 and 4.5 on a book of one's own: learned retrieval beside frozen, and marginalising over K
passages beside reading the first passage alone.
"""

import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from openbook.settings import Settings
from openbook_lab.datasets.golds import Golds
from openbook_lab.evaluation.answer_log import AnswerLog
from openbook_lab.evaluation.book import write_book
from openbook_lab.evaluation.marks import ANSWER_METRICS, Marks, mark_answers
from openbook_lab.evaluation.options import Options, Part, load_checkpoints
from openbook_lab.evaluation.reader import GREEDY, BatchReader, Decode, ask
from openbook_lab.evaluation.reports import Report, Rows, Table, run_facts, with_rows
from openbook_lab.evaluation.retrieval import RetrievalFigures, retrieve
from openbook_lab.evaluation.statistics import percent
from openbook_lab.evaluation.sweep_plot import SWEEP_TITLE

RECALL_AT = (1, 5, 20)


@dataclass(frozen=True, slots=True)
class Row:
    """The marks of one retrieval over K passages with one decoding."""

    retrieval: str
    n_docs: int
    decode: Decode
    marks: Marks


def measure_open(settings: Settings, options: Options) -> Report:
    """Each part with each retriever; the sweep over K with the first alone. Answers are kept and not asked again."""
    asked = options.asked()
    book = write_book(asked.every, options.passages)
    (checkpoint,) = load_checkpoints(settings)
    reader, log = BatchReader(checkpoint), AnswerLog.of(options.work, checkpoint)
    texts = [question.text for question in asked.chosen]
    golds = [Golds(question.answers) for question in asked.chosen]
    rows: list[Row] = []
    retrievers = options.searchers
    words = bool({"bm25", "hybrid"} & set(retrievers))
    with options.opened(book, [checkpoint], bm25=words) as (snapshot, progress):
        started = time.perf_counter()
        retrievals = [retrieve(checkpoint, texts, snapshot, one, options.encoder) for one in retrievers]
        for retrieval in retrievals:
            parts = [part for part in options.part if part != "sweep" or retrieval is retrievals[0]]
            by_k = asked_with(options, parts)
            for number, (k, decodes) in enumerate(by_k.items(), start=1):
                stage = f"{retrieval.name}: {retrieved(k)} ({number} of {len(by_k)})"
                given = ask(reader, retrieval.best(texts, k), decodes, log, progress=progress, stage=stage)
                rows += [
                    Row(retrieval.name, k, decode, mark_answers(answers, golds)) for decode, answers in given.items()
                ]
        tables = [recall_table(retrievals, golds, len(book)), answers_table(rows)]
        if "sweep" in options.part:
            tables.append(sweep_table(retrievals[0], rows, golds, options))
        facts = {
            **asked.facts(),
            "seed": options.seed,
            "passages": len(book),
            "passage encoder": snapshot.info.encoder_name,
            **run_facts(started),
        }
    return Report("open", facts, with_rows(*tables))


def asked_with(options: Options, parts: Collection[Part]) -> dict[int, list[Decode]]:
    """By the number of passages, the decodings; what two parts want is there once."""
    beams, thorough, fast = decodes_of(options)
    wanted: dict[int, dict[Decode, None]] = defaultdict(dict)
    if "decodings" in parts:
        wanted[options.n_docs] |= dict.fromkeys((GREEDY, beams, thorough, fast))
        wanted[1] |= dict.fromkeys((GREEDY, beams))
    if "sweep" in parts:
        for k in options.k:
            wanted[k] |= dict.fromkeys((GREEDY, best(options, k)))
    return {k: list(decodes) for k, decodes in wanted.items()}


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


def recall_table(retrievals: Sequence[RetrievalFigures], golds: Sequence[Golds], n_passages: int) -> Table:
    """How often the first k hold a passage with an answer."""
    rows: Rows = [
        (one.name, k, len(golds), percent(any(of_question[:k]) for of_question in one.held(golds)))
        for one in retrievals
        for k in RECALL_AT
    ]
    return Table(f"Retrieval from {n_passages:,} passages", ("retrieval", "k", "questions", "answer in top k"), rows)


def answers_table(rows: Sequence[Row]) -> Table:
    """Everything that was asked."""
    cells: Rows = [(row.retrieval, retrieved(row.n_docs), str(row.decode), *row.marks.cells()) for row in rows]
    return Table("Answers", ("checkpoint", "passages", "decoding", "questions", *ANSWER_METRICS), cells)


def sweep_table(retrieval: RetrievalFigures, rows: Sequence[Row], golds: Sequence[Golds], options: Options) -> Table:
    """Marks at each K of the sweep (Figure 3), with how often an answer stands in the top K."""
    at = {(row.n_docs, row.decode): row.marks for row in rows if row.retrieval == retrieval.name}
    held = retrieval.held(golds)
    _, thorough, _ = decodes_of(options)
    cells: Rows = []
    for k in sorted(set(options.k)):
        recall = percent(any(of_question[:k]) for of_question in held)
        for name, decode in ((GREEDY, GREEDY), (thorough, best(options, k))):
            cells.append((retrieval.name, k, str(name), *at[k, decode].cells(), recall))
    columns = ("checkpoint", "K", "decoding", "questions", *ANSWER_METRICS, "answer in a passage")
    return Table(SWEEP_TITLE, columns, cells)
