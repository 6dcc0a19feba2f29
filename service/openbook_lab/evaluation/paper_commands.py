"""openbook eval qa, fever, generation: the public files, asked of an index of one's own"""

import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from openbook.cli.options import takes_settings
from openbook.cli.places import plot_to_write
from openbook.cli.progress import ProgressBar
from openbook.entities import Decoding, ModelKind, RetrieverKind
from openbook.errors import OpenbookError, SettingInvalid, TooManyDocs
from openbook.settings import Settings
from openbook.storage.index_store import IndexStore
from openbook.storage.verification import check_compatible
from openbook_lab.evaluation.question_commands import WORK, Encoder, Seed, Work, kept_in, load_checkpoints
from openbook_lab.evaluation.reports import JsonFile, MarkdownFile, show

if TYPE_CHECKING:
    from openbook.rag.checkpoint import Checkpoint
    from openbook.storage.snapshot import IndexSnapshot
    from openbook_lab.evaluation.index_asking import PaperPlan
    from openbook_lab.evaluation.retrieval import Finding
    from openbook_lab.evaluation.tables import Report

T = TypeVar("T")
READING = ("checkpoint", "indexes", "index", "device", "dtype", "threads")


class Found(StrEnum):
    """Typer takes no list of literals."""

    dense = "dense"
    frozen = "frozen"
    bm25 = "bm25"


class Model(StrEnum):
    token = "token"
    sequence = "sequence"


Retrievers = Annotated[
    list[Found] | None,
    typer.Option(
        "--retriever",
        help="dense: the checkpoint's question encoder. frozen: the passage encoder in its place. bm25: words. "
        "Again for more. Default: dense.",
    ),
]
Models = Annotated[
    list[Model] | None, typer.Option("--model", help="RAG-Token or RAG-Sequence; again for more. Default: both.")
]
Docs = Annotated[int, typer.Option(min=1, max=50, help="K: passages to retrieve and marginalise over.")]
Beams = Annotated[int, typer.Option(min=1, help="Width of the beam search; 1 is greedy.")]
DecodingOption = Annotated[Decoding, typer.Option(help="How RAG-Sequence scores its candidates.")]
ClosedBook = Annotated[
    bool,
    typer.Option(
        "--closed-book",
        help="Ask the generator without any passage, too. Without --retriever nothing else is asked, and no index is "
        "needed.",
    ),
]
Sweep = Annotated[
    list[int] | None,
    typer.Option("--k", min=1, max=50, help="K at test time: ask with so many passages, too; again for more."),
]
Plot = Annotated[
    Path | None,
    typer.Option(
        "--plot", metavar="FILE", callback=plot_to_write, help="Draw --k there, .png or .svg; needs matplotlib."
    ),
]
Patterns = Annotated[
    bool, typer.Option("--patterns", help="The answers are regular expressions (CuratedTrec as DrQA has it).")
]
Sample = Annotated[int | None, typer.Option(min=1, help="So many of each file, drawn by --seed. Default: all.")]


@takes_settings(*READING)
def qa(
    settings: Settings,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...", help="Questions: NQ-open, TriviaQA, WebQuestions, CuratedTrec, DPR's .csv, SQuAD."
        ),
    ],
    patterns: Patterns = False,
    retriever: Retrievers = None,
    closed_book: ClosedBook = False,
    model: Models = None,
    n_docs: Docs = 5,
    k: Sweep = None,
    num_beams: Beams = 1,
    decoding: DecodingOption = "thorough",
    sample: Sample = None,
    seed: Seed = 0,
    encoder: Encoder = None,
    work: Work = WORK,
    json_file: JsonFile = None,
    markdown_file: MarkdownFile = None,
    plot: Plot = None,
) -> None:
    """Open-domain question answering over an index: the paper's Table 1.

    Shows exact match and F1 of each file with a 95% interval, how often the passages hold an answer, and exact match
    where they hold none; with --k again for each K (Figure 3).
    """
    from openbook_lab.datasets.question_files import read_qa
    from openbook_lab.evaluation.index_asking import PaperPlan
    from openbook_lab.evaluation.paper import measure_qa

    check_plot(plot, k)
    asked = [(file.name, drawn(read_qa(file, patterns=patterns), sample, seed)) for file in files]
    (checkpoint,) = load_checkpoints(settings, None)
    plan = PaperPlan(finders(retriever, closed_book), models(model), n_docs, num_beams, decoding, encoder, sweep(k))
    with ProgressBar(stopped=kept_in(work)) as progress, open_for(plan, settings, checkpoint) as snapshot:
        report = measure_qa(checkpoint, asked, snapshot, plan, work=work, progress=progress)
    show(report, json_file, markdown_file)
    draw(report, plot)


@takes_settings(*READING)
def fever(
    settings: Settings,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="FEVER's JSON lines: claim, label, evidence.")],
    target: Annotated[
        list[str] | None,
        typer.Option(
            help="What the checkpoint says for SUPPORTS, REFUTES and NOT ENOUGH INFO: given three times, in this "
            "order. Default: these words."
        ),
    ] = None,
    retriever: Annotated[
        RetrieverKind | None, typer.Option(help="dense or bm25. Default: dense, or none with --closed-book.")
    ] = None,
    closed_book: ClosedBook = False,
    model: Models = None,
    n_docs: Docs = 5,
    sample: Sample = None,
    seed: Seed = 0,
    work: Work = WORK,
    json_file: JsonFile = None,
    markdown_file: MarkdownFile = None,
) -> None:
    """Fact verification: which label is the likeliest, and whether the gold article is found (Table 2)."""
    from openbook_lab.datasets.claim_files import LABELS, read_claims
    from openbook_lab.evaluation.claims import measure_claims
    from openbook_lab.evaluation.index_asking import PaperPlan

    if target is not None and len(set(target)) != len(LABELS):
        raise SettingInvalid(setting="--target", reason=f"takes three different ones, for {', '.join(LABELS)}")
    claims = drawn(read_claims(file), sample, seed)
    (checkpoint,) = load_checkpoints(settings, None)
    found: Finding = "closed book" if closed_book and retriever is None else "dense"
    plan = PaperPlan((found,), n_docs=n_docs)
    with ProgressBar(stopped=kept_in(work)) as progress, open_for(plan, settings, checkpoint) as snapshot:
        report = measure_claims(
            checkpoint,
            claims,
            snapshot,
            targets=target or LABELS,
            models=models(model),
            retriever=retriever or "dense",
            n_docs=n_docs,
            closed_book=closed_book,
            work=work,
            progress=progress,
        )
    show(report, json_file, markdown_file)


@takes_settings(*READING)
def generation(
    settings: Settings,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="MS-MARCO NLG, Jeopardy or SearchQA; or lines of input, references."),
    ],
    retriever: Retrievers = None,
    closed_book: ClosedBook = False,
    model: Models = None,
    n_docs: Docs = 5,
    k: Sweep = None,
    num_beams: Beams = 4,
    decoding: DecodingOption = "fast",
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Longest text, in tokens.")] = 64,
    sample: Sample = None,
    seed: Seed = 0,
    encoder: Encoder = None,
    work: Work = WORK,
    json_file: JsonFile = None,
    markdown_file: MarkdownFile = None,
    plot: Plot = None,
) -> None:
    """Abstractive answers and Jeopardy clues: BLEU-1, ROUGE-L, Q-BLEU-1, diversity (Tables 2, 4 and 5); with --k again
    for each K (Figure 3)."""
    from openbook_lab.datasets.generation_files import read_prompts
    from openbook_lab.evaluation.generation import measure_generation
    from openbook_lab.evaluation.index_asking import PaperPlan

    check_plot(plot, k)
    prompts = [(file.name, drawn(read_prompts(file), sample, seed)) for file in files]
    (checkpoint,) = load_checkpoints(settings, None)
    plan = PaperPlan(finders(retriever, closed_book), models(model), n_docs, num_beams, decoding, encoder, sweep(k))
    with ProgressBar(stopped=kept_in(work)) as progress, open_for(plan, settings, checkpoint) as snapshot:
        report = measure_generation(
            checkpoint, prompts, snapshot, plan, max_new_tokens=max_new_tokens, work=work, progress=progress
        )
    show(report, json_file, markdown_file)
    draw(report, plot)


def drawn(every: list[T], sample: int | None, seed: int) -> list[T]:
    """`sample` of them, in the order drawn."""
    return every if sample is None else random.Random(seed).sample(every, min(sample, len(every)))


def finders(chosen: list[Found] | None, closed_book: bool) -> "list[Finding]":
    asked = chosen or ([] if closed_book else [Found.dense])
    closed: list[Finding] = ["closed book"] if closed_book else []
    return [*(one.value for one in dict.fromkeys(asked)), *closed]


def sweep(chosen: list[int] | None) -> tuple[int, ...]:
    return tuple(sorted(set(chosen or ())))


def models(chosen: list[Model] | None) -> list[ModelKind]:
    return [one.value for one in dict.fromkeys(chosen or list(Model))]


def check_plot(plot: Path | None, k: list[int] | None) -> None:
    """Before there is work that would be lost."""
    if plot is not None and not k:
        raise SettingInvalid(setting="--plot", reason="draws K at test time; give each K with --k")


def draw(report: "Report", plot: Path | None) -> None:
    from openbook_lab.evaluation.sweep_plot import draw_sweep

    if plot is not None:
        draw_sweep(report, plot)


@contextmanager
def open_for(plan: "PaperPlan", settings: Settings, checkpoint: "Checkpoint") -> "Iterator[IndexSnapshot | None]":
    """The index that the plan needs; None where it asks a closed book alone.

    Raises IndexIncompatible where the checkpoint's question encoder is to search vectors of another passage encoder.
    """
    if all(retriever == "closed book" for retriever in plan.retrievers):
        yield None
        return
    asking = [checkpoint] if "dense" in plan.retrievers else []
    with closing(open_index(settings, max(plan.n_docs, *plan.sweep, 1), *asking)) as snapshot:
        yield snapshot


def open_index(settings: Settings, n_docs: int, *asking: "Checkpoint") -> "IndexSnapshot":
    """The version that the settings name, or the live one. The caller closes it.

    Raises IndexIncompatible where it is not for each checkpoint `asking`, TooManyDocs.
    """
    store = IndexStore(settings.indexes)
    snapshot = store.open(settings.index or store.default_version())
    try:
        for checkpoint in asking:
            encoder = checkpoint.question_encoder.config
            dimension = int(encoder.projection_dim or encoder.hidden_size)
            check_compatible(snapshot.info, checkpoint.facts.encoder_fingerprint, dimension)
        if n_docs > len(snapshot):
            raise TooManyDocs(n_docs=n_docs, version=snapshot.info.version, n_passages=len(snapshot))
    except OpenbookError:
        snapshot.close()
        raise
    return snapshot
