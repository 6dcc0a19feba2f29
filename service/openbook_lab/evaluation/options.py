"""The options that several commands share. A measurement takes the object itself: its fields are said once, here."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from openbook.cli.client import quieten_libraries
from openbook.cli.options import REQUIRED, argument, option, plot_to_write
from openbook.cli.progress import ProgressBar
from openbook.entities import Decoding, ModelKind
from openbook.errors import SettingInvalid
from openbook.settings import Settings
from openbook_lab.datasets.questions import HELD_OUT_ARTICLES, Question
from openbook_lab.evaluation.asked import QuestionSet, choose_questions
from openbook_lab.evaluation.reports import ReportFiles

if TYPE_CHECKING:
    from openbook.rag.checkpoint import Checkpoint
    from openbook.storage.snapshot import IndexSnapshot
    from openbook_lab.evaluation.book import Book

T = TypeVar("T")

Finding = Literal["dense", "frozen", "bm25", "hybrid", "closed book"]
Searching = Literal["dense", "frozen", "bm25", "hybrid"]
CLOSED_BOOK: Finding = "closed book"
Part = Literal["decodings", "gold", "sweep"]
RETRIEVERS = option(
    (),
    "dense: the checkpoint's question encoder. frozen: the passage encoder in its place. bm25: words. hybrid: dense "
    "and bm25, weighed as the checkpoint says. Again for more. Default: dense.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement(ReportFiles):
    """What every measurement of a checkpoint takes."""

    seed: int = option(0, "What is drawn follows from it.")
    work: Path = option(
        Path("runs/eval"),
        "Keeps answers and the index: the same command goes on from what is there.",
        metavar="FOLDER",
    )

    def progress(self) -> ProgressBar:
        return ProgressBar(stopped=f"stopped; the same command continues from the answers in {self.work}")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionOptions(Measurement):
    """Which questions are asked."""

    questions: tuple[Path, ...] = argument(
        "QUESTIONS...", "JSON lines with question, answers, title and context (SQuAD's)."
    )
    held_out: tuple[str, ...] = option(
        (), "Ask about this article; again for more. Default: those that training held out.", metavar="TITLE"
    )
    every: bool = option(False, "Ask about every article.", "--all")
    sample: int | None = option(None, "Ask so many questions, drawn by --seed. Default: all.", min=1)

    @property
    def titles(self) -> tuple[str, ...] | None:
        """The articles that are asked about; None: all."""
        return None if self.every else self.held_out or HELD_OUT_ARTICLES

    def asked(self) -> QuestionSet:
        return choose_questions(self.questions, held_out=self.titles, sample=self.sample, seed=self.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class BookQuestions(QuestionOptions):
    """What the questions are asked of: their paragraphs, and more passages."""

    passages: tuple[Path, ...] = option(
        (), "Passages to search beside the paragraphs: .jsonl, or .tsv as DPR's; again for more.", metavar="FILE"
    )
    encoder: Path | None = option(
        None, "The passage encoder; without it all-MiniLM-L6-v2 from its package.", metavar="FOLDER"
    )
    n_docs: int = option(5, "K: passages to retrieve and marginalise over.", min=1)

    @contextmanager
    def opened(
        self, book: "Book", asked_by: "Sequence[Checkpoint]", *, bm25: bool = False
    ) -> "Iterator[tuple[IndexSnapshot, ProgressBar]]":
        """The book's index, built unless it is there, and the progress of what is measured over it."""
        from openbook_lab.evaluation.book import open_book

        with (
            self.progress() as progress,
            open_book(
                book, self.work, asked_by=asked_by, encoder_folder=self.encoder, progress=progress, bm25=bm25
            ) as snapshot,
        ):
            yield snapshot, progress


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenQuestions(BookQuestions):
    """What is compared in the open domain: which parts, over how many passages, of which checkpoints."""

    part: tuple[Part, ...] = option(
        ("decodings", "gold", "sweep"),
        "decodings: each way of decoding. gold: the gold passage among wrong ones. sweep: K at test time. "
        "Again for more. Default: all three.",
    )
    k: tuple[int, ...] = option(
        (1, 2, 3, 5, 8, 10, 15, 20), "K of the sweep; again for more. Default: 1, 2, 3, 5 ... 20.", min=1
    )
    num_beams: int = option(4, "Width of the beam search, beside greedy decoding.", min=2)
    against: tuple[str, ...] = option((), "Another checkpoint, side by side; again for more.", metavar="CHECKPOINT")
    retriever: tuple[Searching, ...] = RETRIEVERS

    @property
    def retrievers(self) -> tuple[Searching, ...]:
        """Each once; the others are compared with the first."""
        return tuple(dict.fromkeys(self.retriever or ("dense",)))


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedFiles(Measurement):
    """How much of public files is asked over an index."""

    n_docs: int = option(5, "K: passages to retrieve and marginalise over.", min=1, max=50)
    sample: int | None = option(None, "So many of each file, drawn by --seed. Default: all.", min=1)

    def drawn(self, every: list[T]) -> list[T]:
        """`sample` of them, in the order drawn."""
        return every if self.sample is None else random.Random(self.seed).sample(every, min(self.sample, len(every)))

    def read(self, files: Sequence[Path], read: Callable[[Path], list[T]]) -> list[tuple[str, list[T]]]:
        """The name of each file, and what is drawn of it."""
        return [(file.name, self.drawn(read(file))) for file in files]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicFiles(IndexedFiles):
    """The same under both models of the paper."""

    model: tuple[ModelKind, ...] = option(
        ("token", "sequence"), "RAG-Token or RAG-Sequence; again for more. Default: both."
    )

    @property
    def models(self) -> tuple[ModelKind, ...]:
        return tuple(dict.fromkeys(self.model))


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded(PublicFiles):
    """How answers are decoded."""

    num_beams: int = option(1, "Width of the beam search; 1 is greedy.", min=1)
    decoding: Decoding = option("thorough", "How RAG-Sequence scores its candidates.")
    encoder: Path | None = option(
        None, "The passage encoder; without it all-MiniLM-L6-v2 from its package.", metavar="FOLDER"
    )

    @property
    def sweep(self) -> tuple[int, ...]:
        """Each K to ask with beside `n_docs`, ascending (Figure 3)."""
        return ()


CLOSED_BOOK_TOO = option(
    False,
    "Ask the generator without any passage, too. Without --retriever nothing else is asked, and no index is needed.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept(Decoded):
    """What is asked with each retriever and each K. Raises SettingInvalid for a plot without a K to draw."""

    retriever: tuple[Searching, ...] = RETRIEVERS
    closed_book: bool = CLOSED_BOOK_TOO
    k: tuple[int, ...] = option((), "K at test time: ask with so many passages, too; again for more.", min=1, max=50)
    plot: Path | None = option(
        None, "Draw --k there, .png or .svg; needs matplotlib.", metavar="FILE", callback=plot_to_write
    )

    def __post_init__(self) -> None:
        if self.plot is not None and not self.k:
            raise SettingInvalid(setting="--plot", reason="draws K at test time; give each K with --k")

    @property
    def retrievers(self) -> tuple[Finding, ...]:
        """Each once; the closed book comes last."""
        asked: tuple[Finding, ...] = self.retriever or (() if self.closed_book else ("dense",))
        return (*dict.fromkeys(asked), *((CLOSED_BOOK,) if self.closed_book else ()))

    @property
    def sweep(self) -> tuple[int, ...]:
        return tuple(sorted(set(self.k)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptTexts(Swept):
    """The same for texts, which the paper decodes with four beams."""

    num_beams: int = option(4, "Width of the beam search; 1 is greedy.", min=1)
    decoding: Decoding = option("fast", "How RAG-Sequence scores its candidates.")


@dataclass(frozen=True, slots=True)
class QuestionedBook:
    """A version, and the questions that it is asked."""

    version: str
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationOptions(Measurement):
    """Which questions of which versions a checkpoint is fitted to."""

    book: tuple[str, ...] = option(
        REQUIRED,
        "A version and a file of questions with answers, as of eval open; again for more files or versions, which are "
        "fitted together. The version must hold BM25.",
        metavar="VERSION=FILE",
    )
    n_docs: int = option(5, "K: passages to marginalise over.", min=1, max=10)
    sample: int | None = option(None, "So many questions of each version, drawn by --seed. Default: all.", min=1)
    work: Path = option(
        Path("runs/calibrate"),
        "Keeps what the generator read: the same command goes on from what is there.",
        metavar="FOLDER",
    )
    plot: Path | None = option(
        None, "Draw risk over coverage there, .png or .svg.", metavar="FILE", callback=plot_to_write
    )

    def books(self) -> list[QuestionedBook]:
        """Each version with its questions. Raises SettingInvalid for what is not VERSION=FILE, SourceInvalid."""
        files: dict[str, list[Path]] = {}
        for given in self.book:
            version, equals, file = given.partition("=")
            if not (version and equals and file):
                raise SettingInvalid(setting="--book", reason=f"takes VERSION=FILE, not {given!r}")
            files.setdefault(version, []).append(Path(file))
        return [
            QuestionedBook(version, choose_questions(some, held_out=None, sample=self.sample, seed=self.seed).chosen)
            for version, some in files.items()
        ]


def load_checkpoints(settings: Settings, others: Sequence[str] = ()) -> "list[Checkpoint]":
    """The checkpoint of the settings, then the others, on the device and in the precision of the settings."""
    from openbook.rag.checkpoint import load_checkpoint

    set_threads(settings)
    return [
        load_checkpoint(source, device=settings.device, dtype=settings.dtype)
        for source in (settings.checkpoint, *others)
    ]


def set_threads(settings: Settings) -> None:
    """Before a checkpoint is loaded: as many threads as the settings say, and no advice of libraries."""
    import torch

    quieten_libraries()
    if settings.threads:
        torch.set_num_threads(settings.threads)
