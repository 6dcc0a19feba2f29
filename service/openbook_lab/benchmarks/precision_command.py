"""openbook bench precision"""

from contextlib import closing
from typing import Annotated, Literal

import typer

from openbook.cli.client import quieten_libraries
from openbook.cli.options import takes_settings
from openbook.cli.progress import ProgressBar
from openbook.settings import Settings
from openbook_lab.benchmarks.engine_command import chosen
from openbook_lab.evaluation.question_commands import (
    WORK,
    All,
    Encoder,
    HeldOut,
    Passages,
    Questions,
    Sample,
    Seed,
    Work,
)
from openbook_lab.evaluation.reports import JsonFile, MarkdownFile, show

Precision = Literal["float32", "bfloat16", "int8"]
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16", "int8")


@takes_settings("checkpoint", "threads")
def precision(
    settings: Settings,
    questions: Questions,
    passages: Passages = None,
    precisions: Annotated[str, typer.Option(help="The first is what the others are held against.")] = ",".join(
        PRECISIONS
    ),
    held_out: HeldOut = None,
    every: All = False,
    sample: Sample = 1000,
    seed: Seed = 0,
    n_docs: Annotated[int, typer.Option(min=1, help="K: passages to retrieve and marginalise over.")] = 5,
    num_beams: Annotated[int, typer.Option(min=2, help="Width of the beam search, beside greedy decoding.")] = 4,
    thorough: Annotated[bool, typer.Option(help="RAG-Sequence's thorough decoding, too.")] = False,
    encoder: Encoder = None,
    work: Work = WORK,
    json_file: JsonFile = None,
    markdown_file: MarkdownFile = None,
) -> None:
    """What a precision costs in answers: exact match, F1, and the share of questions that are answered otherwise.

    The questions are asked of the paragraphs of all questions, in 100-word pieces, with the passages that the question
    encoder finds in float32. Runs on the processor.
    """
    import torch

    from openbook.rag.checkpoint import Checkpoint, load_checkpoint
    from openbook_lab.benchmarks.precision import measure_precisions
    from openbook_lab.datasets.questions import HELD_OUT_ARTICLES
    from openbook_lab.evaluation.asked import choose_questions
    from openbook_lab.evaluation.book import open_book, write_book
    from openbook_lab.evaluation.reader import GREEDY, Decode

    quieten_libraries()
    if settings.threads:
        torch.set_num_threads(settings.threads)
    titles = None if every else held_out or list(HELD_OUT_ARTICLES)
    asked = choose_questions(questions, held_out=titles, sample=sample, seed=seed)
    book = write_book(asked.every, passages or [])
    names = chosen(precisions, PRECISIONS, "--precisions")
    checkpoints: dict[str, Checkpoint] = {
        name: load_checkpoint(settings.checkpoint, device="cpu", dtype=name) for name in names
    }
    decodes = [GREEDY, Decode("token", num_beams), *([Decode("sequence", num_beams)] if thorough else [])]
    first = [next(iter(checkpoints.values()))]
    with (
        ProgressBar() as progress,
        closing(open_book(book, work, asked_by=first, encoder_folder=encoder, progress=progress)) as snapshot,
    ):
        report = measure_precisions(
            checkpoints, asked, book, snapshot, decodes, n_docs=n_docs, work=work, progress=progress
        )
    show(report, json_file, markdown_file)
