"""openbook bench precision"""

from dataclasses import dataclass
from typing import Annotated, Literal

from openbook.cli.options import option, with_options
from openbook.settings import Settings
from openbook_lab.benchmarks.engine_command import chosen
from openbook_lab.evaluation.question_commands import BookQuestions, set_threads

Precision = Literal["float32", "bfloat16", "int8"]
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16", "int8")


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledQuestions(BookQuestions):
    """A precision costs little: a sample is enough to see it."""

    sample: int | None = option(1000, "Ask so many questions, drawn by --seed. Default: all.", min=1)


@with_options
def precision(
    settings: Annotated[Settings, "checkpoint", "threads"],
    options: SampledQuestions,
    precisions: str = option(",".join(PRECISIONS), "The others are compared with the first."),
    num_beams: int = option(4, "Width of the beam search, beside greedy decoding.", min=2),
    thorough: bool = option(False, "RAG-Sequence's thorough decoding, too.", "--thorough/--no-thorough"),
) -> None:
    """What a precision costs in answers: exact match, F1, and the share of questions that are answered otherwise.

    The questions are asked of the paragraphs of all questions, in 100-word pieces, with the passages that the question
    encoder finds in float32. Runs on the processor.
    """
    from openbook.rag.checkpoint import Checkpoint, load_checkpoint
    from openbook_lab.benchmarks.precision import measure_precisions
    from openbook_lab.evaluation.book import write_book
    from openbook_lab.evaluation.reader import GREEDY, Decode

    asked = options.asked()
    book = write_book(asked.every, options.passages)
    names = chosen(precisions, PRECISIONS, "--precisions")
    set_threads(settings)
    checkpoints: dict[str, Checkpoint] = {
        name: load_checkpoint(settings.checkpoint, device="cpu", dtype=name) for name in names
    }
    decodes = [GREEDY, Decode("token", num_beams), *([Decode("sequence", num_beams)] if thorough else [])]
    with options.opened(book, [checkpoints[names[0]]]) as (snapshot, progress):
        report = measure_precisions(
            checkpoints, asked, book, snapshot, decodes, n_docs=options.n_docs, work=options.work, progress=progress
        )
    options.show(report)
