"""openbook eval reading, open, posteriors: question files, asked of a checkpoint"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from openbook.cli.client import quieten_libraries
from openbook.cli.options import argument, option, plot_to_write, with_options
from openbook.cli.progress import ProgressBar
from openbook.settings import Settings
from openbook_lab.evaluation.reports import ReportFiles

if TYPE_CHECKING:
    from openbook.rag.checkpoint import Checkpoint
    from openbook.storage.snapshot import IndexSnapshot
    from openbook_lab.evaluation.asked import QuestionSet
    from openbook_lab.evaluation.book import Book

Computing = Annotated[Settings, "checkpoint", "device", "dtype", "threads"]


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
        return ProgressBar(stopped=f"stopped; the same command goes on from the answers in {self.work}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions(Measurement):
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
        from openbook_lab.datasets.questions import HELD_OUT_ARTICLES

        return None if self.every else self.held_out or HELD_OUT_ARTICLES

    def asked(self) -> "QuestionSet":
        from openbook_lab.evaluation.asked import choose_questions

        return choose_questions(self.questions, held_out=self.titles, sample=self.sample, seed=self.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class BookQuestions(Questions):
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

        with self.progress() as progress:
            snapshot = open_book(
                book, self.work, asked_by=asked_by, encoder_folder=self.encoder, progress=progress, bm25=bm25
            )
            try:
                yield snapshot, progress
            finally:
                snapshot.close()


@with_options
def reading(
    settings: Computing,
    options: Questions,
    num_beams: tuple[int, ...] = option((1,), "Width of the beam search; again for more. Default: 1, greedy.", min=1),
    against: tuple[str, ...] = option((), "Another checkpoint, side by side; again for more.", metavar="CHECKPOINT"),
) -> None:
    """Reading alone: exact match and F1 with the paragraph of each question given whole."""
    from openbook_lab.evaluation.reading import read_paragraphs

    asked = options.asked()
    checkpoints = load_checkpoints(settings, against)
    with options.progress() as progress:
        report = read_paragraphs(
            checkpoints, asked, work=options.work, num_beams=num_beams, seed=options.seed, progress=progress
        )
    options.show(report)


@with_options
def open_domain(
    settings: Computing,
    options: BookQuestions,
    part: tuple[Literal["decodings", "gold", "sweep"], ...] = option(
        ("decodings", "gold", "sweep"),
        "decodings: each way of decoding. gold: the gold passage among wrong ones. sweep: K at test time. "
        "Again for more. Default: all three.",
    ),
    k: tuple[int, ...] = option((), "K of the sweep; again for more. Default: 1, 2, 3, 5 ... 20.", min=1),
    num_beams: int = option(4, "Width of the beam search, beside greedy decoding.", min=2),
    against: tuple[str, ...] = option((), "Another checkpoint, side by side; again for more.", metavar="CHECKPOINT"),
    frozen: bool = option(False, "Retrieve with the passage encoder's vectors of the questions, too."),
    bm25: bool = option(False, "Retrieve with BM25, too: its scores are the prior's."),
    plot: Path | None = option(
        None, "Draw EM and recall over K there, .png or .svg; needs matplotlib.", metavar="FILE", callback=plot_to_write
    ),
) -> None:
    """Open domain: questions asked of the paragraphs of all questions, in 100-word pieces, and of more passages.

    Shows how often an answer is retrieved, exact match and F1 of each way of decoding with a 95% interval, what the
    gold passage is worth, K at test time, and the differences on the same questions.
    """
    from openbook_lab.evaluation.book import write_book
    from openbook_lab.evaluation.open_domain import K_SWEEP, OpenPlan, measure_open
    from openbook_lab.evaluation.sweep_plot import draw_sweep

    asked = options.asked()
    book = write_book(asked.every, options.passages)
    checkpoints = load_checkpoints(settings, against)
    plan = OpenPlan(part, options.n_docs, num_beams, k or K_SWEEP)
    with options.opened(book, checkpoints, bm25=bm25) as (snapshot, progress):
        report = measure_open(
            checkpoints,
            asked,
            book,
            snapshot,
            plan,
            frozen=frozen,
            bm25=bm25,
            encoder_folder=options.encoder,
            seed=options.seed,
            work=options.work,
            progress=progress,
        )
    options.show(report)
    if plot is not None:
        draw_sweep(report, plot)


@with_options
def posteriors(
    settings: Computing,
    options: BookQuestions,
    unanswerable: tuple[Path, ...] = option(
        (), "Questions that their paragraph does not answer (SQuAD 2.0's); again for more.", metavar="FILE"
    ),
    num_beams: int = option(4, "Width of the beam search; 1 is greedy.", min=1),
    plot: Path | None = option(
        None, "Draw the curves there, .png or .svg; needs matplotlib.", metavar="FILE", callback=plot_to_write
    ),
) -> None:
    """Posteriors and probabilities: which passage an answer is from, and whether there is one at all.

    Asks questions that the book answers, questions that their paragraph does not answer, and the former again without
    their articles. Shows how often the passage of the largest posterior holds a right answer, how well log_prob tells
    the three apart (AUC), and which threshold keeps how many right answers.
    """
    from openbook_lab.evaluation.answerability import draw_curves
    from openbook_lab.evaluation.asked import choose_unanswerable
    from openbook_lab.evaluation.book import write_book
    from openbook_lab.evaluation.posteriors import measure_posteriors
    from openbook_lab.evaluation.reader import Decode

    asked = options.asked()
    impossible = choose_unanswerable(unanswerable, held_out=options.titles, sample=options.sample, seed=options.seed)
    book = write_book([*asked.every, *impossible.every], options.passages)
    (checkpoint,) = load_checkpoints(settings)
    with options.opened(book, [checkpoint]) as (snapshot, progress):
        report, outcomes = measure_posteriors(
            checkpoint,
            asked,
            impossible.chosen,
            book,
            snapshot,
            decodes=(Decode("token", num_beams), Decode("sequence", num_beams)),
            n_docs=options.n_docs,
            seed=options.seed,
            work=options.work,
            progress=progress,
        )
    options.show(report)
    if plot is not None:
        draw_curves(outcomes, plot)


def load_checkpoints(settings: Settings, others: tuple[str, ...] = ()) -> "list[Checkpoint]":
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
