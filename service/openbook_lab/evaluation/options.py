"""Every option of an experiment, said once. A command offers those that its row of `commands.py` names."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from openbook.cli.client import quieten_libraries
from openbook.cli.options import argument, environment_name, file_to_write, option, plot_to_write
from openbook.cli.progress import ProgressBar
from openbook.entities import Decoding, MarginalKind, Passage
from openbook.errors import SettingInvalid
from openbook.settings import Settings
from openbook_lab.datasets.questions import HELD_OUT_ARTICLES
from openbook_lab.encyclopedia.world import DEMO_YEARS
from openbook_lab.evaluation.asked import QuestionSet, choose_questions
from openbook_lab.evaluation.reports import ReportFiles

if TYPE_CHECKING:
    from openbook.rag.checkpoint import Checkpoint
    from openbook.storage.snapshot import IndexSnapshot

T = TypeVar("T")

Finding = Literal["dense", "frozen", "bm25", "hybrid", "closed book"]
Searching = Literal["dense", "frozen", "bm25", "hybrid"]
CLOSED_BOOK: Finding = "closed book"
Part = Literal["decodings", "sweep"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(ReportFiles):
    """What an experiment is asked for; one that does not offer an option finds its default here.

    Raises SettingInvalid for a plot without a K to draw.
    """

    # which questions, texts and claims
    questions: tuple[Path, ...] = argument(
        "QUESTIONS...", "JSON lines with question, answers, title and context (SQuAD's).", ()
    )
    files: tuple[Path, ...] = argument("FILE...", "In the form in which it is published.", ())
    texts: tuple[Path, ...] = option(
        (),
        "Texts to write: MS-MARCO NLG, Jeopardy or SearchQA, or lines of input, references; again for more.",
        metavar="FILE",
    )
    patterns: bool = option(False, "The answers are regular expressions (CuratedTrec as DrQA has it).")
    held_out: tuple[str, ...] = option(
        (), "Ask about this article; again for more. Default: those that training held out.", metavar="TITLE"
    )
    every: bool = option(False, "Ask about every article.", "--all")
    sample: int | None = option(
        None, "So many questions, of each file, version or style; drawn by --seed. Default: all.", min=1
    )
    seed: int = option(0, "What is drawn follows from it.")
    target: tuple[str, ...] = option(
        (),
        "What the checkpoint says for SUPPORTS, REFUTES and NOT ENOUGH INFO: given three times, in this order. "
        "Default: these words.",
    )
    # of the encyclopedia
    versions: tuple[str, ...] = option(
        tuple(DEMO_YEARS), "Version to ask; give it again for more. Default: wiki-2016, wiki-2018.", "--index"
    )
    # asked of what, and of whom
    passages: tuple[Path, ...] = option(
        (), "Passages to search beside the paragraphs: .jsonl, or .tsv as DPR's; again for more.", metavar="FILE"
    )
    encoder: Path | None = option(
        None, "The passage encoder; without it all-MiniLM-L6-v2 from its package.", metavar="FOLDER"
    )
    answers_before: Path | None = option(
        None, "Compare with an earlier run: what its --answers wrote as .csv.", "--against", metavar="FILE"
    )
    frozen: str | None = option(
        None,
        "One that was trained with its question encoder frozen. Without it, the passage encoder's vectors of the "
        "questions search for --checkpoint's generator.",
        metavar="CHECKPOINT",
    )
    url: str | None = option(
        None,
        "Ask the service there, swapping its index, with the token of "
        f"{environment_name('admin_token')}, where another is to be asked; else in this process.",
    )
    # how
    n_docs: int = option(5, "K: passages to retrieve and marginalise over.", min=1, max=50)
    k: tuple[int, ...] = option((), "K at test time: ask with so many passages, too; again for more.", min=1, max=50)
    part: tuple[Part, ...] = option(
        ("decodings", "sweep"),
        "decodings: each way of decoding. sweep: K at test time. Again for more. Default: both.",
    )
    model: tuple[MarginalKind, ...] = option(
        ("token", "sequence"), "RAG-Token or RAG-Sequence; again for more. Default: both."
    )
    one_model: MarginalKind = option("token", "RAG-Token or RAG-Sequence.", "--model")
    num_beams: int = option(1, "Width of the beam search; 1 is greedy.", min=1)
    decoding: Decoding = option("thorough", "How RAG-Sequence scores its candidates.")
    max_new_tokens: int = option(64, "Longest text, in tokens.", min=1)
    retriever: tuple[Searching, ...] = option(
        (),
        "dense: the checkpoint's question encoder. frozen: the passage encoder in its place. bm25: words. hybrid: "
        "dense and bm25, weighed as the checkpoint says. Again for more. Default: dense.",
    )
    one_retriever: Literal["dense", "bm25", "hybrid"] | None = option(
        None, "dense, bm25, hybrid (with no_answer as it is calibrated). Default: dense.", "--retriever"
    )
    closed_book: bool = option(
        False,
        "Ask the generator without any passage, too. Without --retriever nothing else is asked, and no index is "
        "needed.",
    )
    # what stays
    work: Path = option(
        Path("runs/eval"),
        "Keeps answers and the index: the same command goes on from what is there.",
        metavar="FOLDER",
    )
    answers_file: Path | None = option(
        None,
        "Write each question with its answer and evidence there, .csv or .md.",
        "--answers",
        metavar="FILE",
        callback=file_to_write,
    )
    plot: Path | None = option(None, "Draw K at test time there, .png or .svg.", metavar="FILE", callback=plot_to_write)

    def progress(self) -> ProgressBar:
        return ProgressBar(stopped=f"stopped; the same command goes on from the answers in {self.work}")

    @property
    def titles(self) -> tuple[str, ...] | None:
        """The articles that are asked about; None: all."""
        return None if self.every else self.held_out or HELD_OUT_ARTICLES

    def asked(self) -> QuestionSet:
        return choose_questions(self.questions, held_out=self.titles, sample=self.sample, seed=self.seed)

    @contextmanager
    def opened(
        self, book: "Sequence[Passage]", asked_by: "Sequence[Checkpoint]", *, bm25: bool = False
    ) -> "Iterator[tuple[IndexSnapshot, ProgressBar]]":
        """The book's index, built unless it is there, and the progress of what is measured over it."""
        from openbook_lab.evaluation.book import open_book

        with self.progress() as progress:
            building = open_book(
                book, self.work, asked_by=asked_by, encoder_folder=self.encoder, progress=progress, bm25=bm25
            )
            with building as snapshot:
                yield snapshot, progress

    def drawn(self, every: list[T]) -> list[T]:
        """`sample` of them, in the order drawn."""
        return every if self.sample is None else random.Random(self.seed).sample(every, min(self.sample, len(every)))

    def read(self, files: Sequence[Path], read: Callable[[Path], list[T]]) -> list[tuple[str, list[T]]]:
        """The name of each file, and what is drawn of it."""
        return [(file.name, self.drawn(read(file))) for file in files]

    @property
    def models(self) -> tuple[MarginalKind, ...]:
        return tuple(dict.fromkeys(self.model))

    @property
    def sweep(self) -> tuple[int, ...]:
        """Each K to ask with beside `n_docs`, ascending (Figure 3)."""
        return tuple(sorted(set(self.k)))

    @property
    def searchers(self) -> tuple[Searching, ...]:
        """Each retriever once; the others are compared with the first."""
        return tuple(dict.fromkeys(self.retriever or ("dense",)))

    @property
    def retrievers(self) -> tuple[Finding, ...]:
        """Each once; the closed book comes last, and alone where no other is asked for."""
        if not self.closed_book:
            return self.searchers
        return (*(self.searchers if self.retriever else ()), CLOSED_BOOK)


def books_of(given: Sequence[str], sample: int | None, seed: int) -> dict[str, QuestionSet]:
    """The questions by version. Raises SettingInvalid for what is not VERSION=FILE, SourceInvalid."""
    files: dict[str, list[Path]] = {}
    for pair in given:
        version, equals, file = pair.partition("=")
        if not (version and equals and file):
            raise SettingInvalid(setting="--book", reason=f"takes VERSION=FILE, not {pair!r}")
        files.setdefault(version, []).append(Path(file))
    return {v: choose_questions(some, held_out=None, sample=sample, seed=seed) for v, some in files.items()}


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
