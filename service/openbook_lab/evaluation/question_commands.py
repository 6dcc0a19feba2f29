"""openbook eval reading, open, posteriors: question files, asked of a checkpoint"""

from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openbook.cli.client import quieten_libraries
from openbook.cli.options import takes_settings
from openbook.cli.places import plot_to_write
from openbook.cli.progress import ProgressBar
from openbook.settings import Settings
from openbook_lab.evaluation.reports import JsonFile, MarkdownFile, show

if TYPE_CHECKING:
    from openbook.rag.checkpoint import Checkpoint

COMPUTING = ("checkpoint", "device", "dtype", "threads")

Questions = Annotated[
    list[Path],
    typer.Argument(metavar="QUESTIONS...", help="JSON lines with question, answers, title and context (SQuAD's)."),
]
HeldOut = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TITLE", help="Ask about this article; again for more. Default: those that training held out."
    ),
]
All = Annotated[bool, typer.Option("--all", help="Ask about every article.")]
Sample = Annotated[int | None, typer.Option(min=1, help="Ask so many questions, drawn by --seed. Default: all.")]
Seed = Annotated[int, typer.Option(help="What is drawn follows from it.")]
Against = Annotated[
    list[str] | None, typer.Option(metavar="CHECKPOINT", help="Another checkpoint, side by side; again for more.")
]
Work = Annotated[
    Path,
    typer.Option(metavar="FOLDER", help="Keeps answers and the index: the same command goes on from what is there."),
]
Passages = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE", help="Passages to search beside the paragraphs: .jsonl, or .tsv as DPR's; again for more."
    ),
]
Encoder = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="The passage encoder; without it all-MiniLM-L6-v2 from its package."),
]
WORK = Path("runs/eval")


class Part(StrEnum):
    """Of `open`: typer takes no list of literals."""

    decodings = "decodings"
    gold = "gold"
    sweep = "sweep"


@takes_settings(*COMPUTING)
def reading(
    settings: Settings,
    questions: Questions,
    held_out: HeldOut = None,
    every: All = False,
    sample: Sample = None,
    seed: Seed = 0,
    num_beams: Annotated[
        list[int] | None, typer.Option(min=1, help="Width of the beam search; again for more. Default: 1, greedy.")
    ] = None,
    against: Against = None,
    work: Work = WORK,
    json_file: JsonFile = None,
    markdown_file: MarkdownFile = None,
) -> None:
    """Reading alone: exact match and F1 with the paragraph of each question given whole."""
    from openbook_lab.evaluation.asked import choose_questions
    from openbook_lab.evaluation.reading import read_paragraphs

    asked = choose_questions(questions, held_out=_titles(held_out, every), sample=sample, seed=seed)
    checkpoints = load_checkpoints(settings, against)
    with ProgressBar(stopped=kept_in(work)) as progress:
        report = read_paragraphs(
            checkpoints, asked, work=work, num_beams=num_beams or [1], seed=seed, progress=progress
        )
    show(report, json_file, markdown_file)


@takes_settings(*COMPUTING)
def open_domain(
    settings: Settings,
    questions: Questions,
    passages: Passages = None,
    held_out: HeldOut = None,
    every: All = False,
    sample: Sample = None,
    seed: Seed = 0,
    part: Annotated[
        list[Part] | None,
        typer.Option(
            help="decodings: each way of decoding. gold: the gold passage among wrong ones. sweep: K at test time. "
            "Again for more. Default: all three."
        ),
    ] = None,
    n_docs: Annotated[int, typer.Option(min=1, help="K of decodings and gold.")] = 5,
    k: Annotated[
        list[int] | None, typer.Option("--k", min=1, help="K of the sweep; again for more. Default: 1, 2, 3, 5 ... 20.")
    ] = None,
    num_beams: Annotated[int, typer.Option(min=2, help="Width of the beam search, beside greedy decoding.")] = 4,
    against: Against = None,
    frozen: Annotated[
        bool, typer.Option("--frozen", help="Retrieve with the passage encoder's vectors of the questions, too.")
    ] = False,
    bm25: Annotated[bool, typer.Option("--bm25", help="Retrieve with BM25, too: its scores are the prior's.")] = False,
    encoder: Encoder = None,
    work: Work = WORK,
    json_file: JsonFile = None,
    markdown_file: MarkdownFile = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            callback=plot_to_write,
            help="Draw EM and recall over K there, .png or .svg; needs matplotlib.",
        ),
    ] = None,
) -> None:
    """Open domain: questions asked of the paragraphs of all questions, in 100-word pieces, and of more passages.

    Shows how often an answer is retrieved, exact match and F1 of each way of decoding with a 95% interval, what the
    gold passage is worth, K at test time, and the differences on the same questions.
    """
    from openbook_lab.evaluation.asked import choose_questions
    from openbook_lab.evaluation.book import open_book, write_book
    from openbook_lab.evaluation.open_domain import K_SWEEP, PARTS, OpenPlan, measure_open
    from openbook_lab.evaluation.sweep_plot import draw_sweep

    asked = choose_questions(questions, held_out=_titles(held_out, every), sample=sample, seed=seed)
    book = write_book(asked.every, passages or [])
    checkpoints = load_checkpoints(settings, against)
    plan = OpenPlan([one.value for one in part] if part else PARTS, n_docs, num_beams, tuple(k or K_SWEEP))
    with (
        ProgressBar(stopped=kept_in(work)) as progress,
        closing(
            open_book(book, work, asked_by=checkpoints, encoder_folder=encoder, progress=progress, bm25=bm25)
        ) as snapshot,
    ):
        report = measure_open(
            checkpoints,
            asked,
            book,
            snapshot,
            plan,
            frozen=frozen,
            bm25=bm25,
            encoder_folder=encoder,
            seed=seed,
            work=work,
            progress=progress,
        )
    show(report, json_file, markdown_file)
    if plot is not None:
        draw_sweep(report, plot)


@takes_settings(*COMPUTING)
def posteriors(
    settings: Settings,
    questions: Questions,
    passages: Passages = None,
    unanswerable: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="Questions that their paragraph does not answer (SQuAD 2.0's); again for more."
        ),
    ] = None,
    held_out: HeldOut = None,
    every: All = False,
    sample: Sample = None,
    seed: Seed = 0,
    n_docs: Annotated[int, typer.Option(min=1, help="K: passages to retrieve and marginalise over.")] = 5,
    num_beams: Annotated[int, typer.Option(min=1, help="Width of the beam search; 1 is greedy.")] = 4,
    encoder: Encoder = None,
    work: Work = WORK,
    json_file: JsonFile = None,
    markdown_file: MarkdownFile = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", callback=plot_to_write, help="Draw the curves there, .png or .svg; needs matplotlib."
        ),
    ] = None,
) -> None:
    """Posteriors and probabilities: which passage an answer is from, and whether there is one at all.

    Asks questions that the book answers, questions that their paragraph does not answer, and the former again without
    their articles. Shows how often the passage of the largest posterior holds a right answer, how well log_prob tells
    the three apart (AUC), and which threshold keeps how many right answers.
    """
    from openbook_lab.evaluation.answerability import draw_curves
    from openbook_lab.evaluation.asked import choose_questions, choose_unanswerable
    from openbook_lab.evaluation.book import open_book, write_book
    from openbook_lab.evaluation.posteriors import measure_posteriors
    from openbook_lab.evaluation.reader import Decode

    titles = _titles(held_out, every)
    asked = choose_questions(questions, held_out=titles, sample=sample, seed=seed)
    impossible = choose_unanswerable(unanswerable or [], held_out=titles, sample=sample, seed=seed)
    book = write_book([*asked.every, *impossible.every], passages or [])
    (checkpoint,) = load_checkpoints(settings, None)
    with (
        ProgressBar(stopped=kept_in(work)) as progress,
        closing(open_book(book, work, asked_by=[checkpoint], encoder_folder=encoder, progress=progress)) as snapshot,
    ):
        report, outcomes = measure_posteriors(
            checkpoint,
            asked,
            impossible.chosen,
            book,
            snapshot,
            decodes=(Decode("token", num_beams), Decode("sequence", num_beams)),
            n_docs=n_docs,
            seed=seed,
            work=work,
            progress=progress,
        )
    show(report, json_file, markdown_file)
    if plot is not None:
        draw_curves(outcomes, plot)


def _titles(held_out: list[str] | None, every: bool) -> list[str] | None:
    from openbook_lab.datasets.questions import HELD_OUT_ARTICLES

    return None if every else held_out or list(HELD_OUT_ARTICLES)


def kept_in(work: Path) -> str:
    """What is said where Ctrl-C ends a measurement."""
    return f"stopped; the same command goes on from the answers in {work}"


def load_checkpoints(settings: Settings, others: list[str] | None) -> "list[Checkpoint]":
    """The checkpoint of the settings, then the others, as the settings say."""
    import torch

    from openbook.rag.checkpoint import load_checkpoint

    quieten_libraries()
    if settings.threads:
        torch.set_num_threads(settings.threads)
    sources = [settings.checkpoint, *(others or ())]
    return [load_checkpoint(source, device=settings.device, dtype=settings.dtype) for source in sources]
