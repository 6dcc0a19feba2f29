"""openbook eval qa, fever, generation, ablation, seeds: the paper's experiments on public files, over an index"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from openbook.cli.options import argument, option, plot_to_write, with_options
from openbook.entities import Decoding, ModelKind, RetrieverKind
from openbook.errors import OpenbookError, SettingInvalid, TooManyDocs
from openbook.settings import Settings
from openbook.storage.index_store import IndexStore
from openbook.storage.verification import check_compatible
from openbook_lab.evaluation.question_commands import Measurement, load_checkpoints
from openbook_lab.evaluation.reports import ReportFiles

if TYPE_CHECKING:
    from openbook.rag.checkpoint import Checkpoint
    from openbook.storage.snapshot import IndexSnapshot
    from openbook_lab.evaluation.index_asking import PaperPlan
    from openbook_lab.evaluation.retrieval import Finding
    from openbook_lab.evaluation.tables import Report

T = TypeVar("T")

Searching = Annotated[Settings, "checkpoint", "indexes", "index", "device", "dtype", "threads"]
QUESTIONS = "Questions: NQ-open, TriviaQA, WebQuestions, CuratedTrec, DPR's .csv, SQuAD."
PATTERNS = option(False, "The answers are regular expressions (CuratedTrec as DrQA has it).")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicFiles(Measurement):
    """How public files are asked over an index."""

    model: tuple[ModelKind, ...] = option(
        ("token", "sequence"), "RAG-Token or RAG-Sequence; again for more. Default: both."
    )
    n_docs: int = option(5, "K: passages to retrieve and marginalise over.", min=1, max=50)
    sample: int | None = option(None, "So many of each file, drawn by --seed. Default: all.", min=1)

    def drawn(self, every: list[T]) -> list[T]:
        """`sample` of them, in the order drawn."""
        return every if self.sample is None else random.Random(self.seed).sample(every, min(self.sample, len(every)))

    def read(self, files: Sequence[Path], read: Callable[[Path], list[T]]) -> list[tuple[str, list[T]]]:
        """The name of each file, and what is drawn of it."""
        return [(file.name, self.drawn(read(file))) for file in files]

    @property
    def models(self) -> list[ModelKind]:
        return list(dict.fromkeys(self.model))


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded(PublicFiles):
    """How answers are decoded."""

    num_beams: int = option(1, "Width of the beam search; 1 is greedy.", min=1)
    decoding: Decoding = option("thorough", "How RAG-Sequence scores its candidates.")
    encoder: Path | None = option(
        None, "The passage encoder; without it all-MiniLM-L6-v2 from its package.", metavar="FOLDER"
    )

    def plan(self) -> "PaperPlan":
        from openbook_lab.evaluation.index_asking import PaperPlan

        return PaperPlan(("dense",), self.models, self.n_docs, self.num_beams, self.decoding, self.encoder)


CLOSED_BOOK = option(
    False,
    "Ask the generator without any passage, too. Without --retriever nothing else is asked, and no index is needed.",
)


@dataclass(frozen=True, kw_only=True)
class Swept(Decoded):
    """What is asked with each retriever and each K (the paper's Figure 3)."""

    retriever: tuple[Literal["dense", "frozen", "bm25"], ...] = option(
        (),
        "dense: the checkpoint's question encoder. frozen: the passage encoder in its place. bm25: words. "
        "Again for more. Default: dense.",
    )
    closed_book: bool = CLOSED_BOOK
    k: tuple[int, ...] = option((), "K at test time: ask with so many passages, too; again for more.", min=1, max=50)
    plot: Path | None = option(
        None, "Draw --k there, .png or .svg; needs matplotlib.", metavar="FILE", callback=plot_to_write
    )

    def plan(self) -> "PaperPlan":
        asked: tuple[Finding, ...] = self.retriever or (() if self.closed_book else ("dense",))
        closed: tuple[Finding, ...] = ("closed book",) if self.closed_book else ()
        return replace(super().plan(), retrievers=[*dict.fromkeys(asked), *closed], sweep=sorted(set(self.k)))

    def check_plot(self) -> None:
        """Before there is work that would be lost."""
        if self.plot is not None and not self.k:
            raise SettingInvalid(setting="--plot", reason="draws K at test time; give each K with --k")

    def show(self, report: "Report") -> None:
        from openbook_lab.evaluation.sweep_plot import draw_sweep

        super().show(report)
        if self.plot is not None:
            draw_sweep(report, self.plot)


@dataclass(frozen=True, kw_only=True)
class SweptTexts(Swept):
    """The same for texts, which the paper decodes with four beams."""

    num_beams: int = option(4, "Width of the beam search; 1 is greedy.", min=1)
    decoding: Decoding = option("fast", "How RAG-Sequence scores its candidates.")


@with_options
def qa(
    settings: Searching,
    options: Swept,
    files: tuple[Path, ...] = argument("FILE...", QUESTIONS),
    patterns: bool = PATTERNS,
) -> None:
    """Open-domain question answering over an index: the paper's Table 1.

    Shows exact match and F1 of each file with a 95% interval, how often the passages hold an answer, and exact match
    where they hold none; with --k again for each K (Figure 3).
    """
    from openbook_lab.datasets.question_files import read_qa
    from openbook_lab.evaluation.paper import measure_qa

    options.check_plot()
    asked = options.read(files, partial(read_qa, patterns=patterns))
    (checkpoint,) = load_checkpoints(settings)
    plan = options.plan()
    with options.progress() as progress, open_for(plan, settings, checkpoint) as snapshot:
        report = measure_qa(checkpoint, asked, snapshot, plan, work=options.work, progress=progress)
    options.show(report)


@with_options
def fever(
    settings: Searching,
    options: PublicFiles,
    file: Path = argument("FILE", "FEVER's JSON lines: claim, label, evidence."),
    target: tuple[str, ...] = option(
        (),
        "What the checkpoint says for SUPPORTS, REFUTES and NOT ENOUGH INFO: given three times, in this order. "
        "Default: these words.",
    ),
    retriever: RetrieverKind | None = option(None, "dense or bm25. Default: dense, or none with --closed-book."),
    closed_book: bool = CLOSED_BOOK,
) -> None:
    """Fact verification: which label is the likeliest, and whether the gold article is found (Table 2)."""
    from openbook_lab.datasets.claim_files import LABELS, read_claims
    from openbook_lab.evaluation.claims import measure_claims
    from openbook_lab.evaluation.index_asking import PaperPlan

    if target and len(set(target)) != len(LABELS):
        raise SettingInvalid(setting="--target", reason=f"takes three different ones, for {', '.join(LABELS)}")
    claims = options.drawn(read_claims(file))
    (checkpoint,) = load_checkpoints(settings)
    plan = PaperPlan(("closed book" if closed_book and retriever is None else "dense",), n_docs=options.n_docs)
    with options.progress() as progress, open_for(plan, settings, checkpoint) as snapshot:
        report = measure_claims(
            checkpoint,
            claims,
            snapshot,
            targets=target or LABELS,
            models=options.models,
            retriever=retriever or "dense",
            n_docs=options.n_docs,
            closed_book=closed_book,
            work=options.work,
            progress=progress,
        )
    options.show(report)


@with_options
def generation(
    settings: Searching,
    options: SweptTexts,
    files: tuple[Path, ...] = argument("FILE...", "MS-MARCO NLG, Jeopardy or SearchQA; or lines of input, references."),
    max_new_tokens: int = option(64, "Longest text, in tokens.", min=1),
) -> None:
    """Abstractive answers and Jeopardy clues: BLEU-1, ROUGE-L, Q-BLEU-1, diversity (Tables 2, 4 and 5); with --k again
    for each K (Figure 3)."""
    from openbook_lab.datasets.generation_files import read_prompts
    from openbook_lab.evaluation.generation import measure_generation

    options.check_plot()
    prompts = options.read(files, read_prompts)
    (checkpoint,) = load_checkpoints(settings)
    plan = options.plan()
    with options.progress() as progress, open_for(plan, settings, checkpoint) as snapshot:
        report = measure_generation(
            checkpoint, prompts, snapshot, plan, max_new_tokens=max_new_tokens, work=options.work, progress=progress
        )
    options.show(report)


@with_options
def ablation(
    settings: Searching,
    options: Decoded,
    files: tuple[Path, ...] = argument("[FILE]...", QUESTIONS, default=()),
    texts: tuple[Path, ...] = option((), "Texts to write, as of eval generation; again for more.", metavar="FILE"),
    frozen: str | None = option(
        None,
        "One that was trained with its question encoder frozen. Without it, the passage encoder's vectors of the "
        "questions search for --checkpoint's generator.",
        metavar="CHECKPOINT",
    ),
    patterns: bool = PATTERNS,
    max_new_tokens: int = option(64, "Longest text of --texts, in tokens.", min=1),
) -> None:
    """What retrieval is worth: learned, frozen, BM25, and no passages at all (Table 6).

    One table of the same questions, each row with its difference from learned retrieval and that difference's paired
    95% interval. The index must hold BM25: openbook index bm25 VERSION.
    """
    from openbook_lab.datasets.generation_files import read_prompts
    from openbook_lab.datasets.question_files import read_qa
    from openbook_lab.evaluation.ablation import arms_of, measure_ablation

    if not files and not texts:
        raise SettingInvalid(setting="FILE", reason="name a file of questions, or one of --texts")
    asked = options.read(files, partial(read_qa, patterns=patterns))
    prompts = options.read(texts, read_prompts)
    checkpoint, *others = load_checkpoints(settings, (frozen,) if frozen else ())
    opened = open_index(settings, options.n_docs, checkpoint, *others)
    with options.progress() as progress, closing(opened) as snapshot:
        report = measure_ablation(
            arms_of(checkpoint, *others),
            asked,
            prompts,
            snapshot,
            options.plan(),
            max_new_tokens=max_new_tokens,
            work=options.work,
            progress=progress,
        )
    options.show(report)


@with_options
def seeds(
    files: ReportFiles,
    reports: tuple[str, ...] = argument(
        "[ARM=]REPORT...",
        "What --json of one command wrote, once for each seed. Reports that are to be compared carry the name of "
        "their arm: learned=a0.json learned=a1.json frozen=b0.json frozen=b1.json.",
    ),
    measure: tuple[str, ...] = option((), "Such as EM; again for more. Default: all.", metavar="COLUMN"),
    row: tuple[str, ...] = option(
        (), "Rows that this text stands in; again: all of them must. Default: all.", metavar="TEXT"
    ),
) -> None:
    """Mean and spread over seeds, of the reports that other commands wrote with --json.

    Of several arms also how far the first is from each other one: the seeds paired in the order given, with the 95%
    interval of Student's t.
    """
    from openbook_lab.evaluation.seeds import measure_seeds, read_reports

    arms: dict[str, list[Path]] = {}
    for one in reports:
        arm, equals, file = one.partition("=")
        # an equals sign may be the file's own
        named = equals and not Path(one).exists()
        arms.setdefault(arm if named else "", []).append(Path(file if named else one))
    files.show(measure_seeds({arm: read_reports(of_arm) for arm, of_arm in arms.items()}, measures=measure, texts=row))


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
