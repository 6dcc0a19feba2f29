"""openbook bench engine"""

import tempfile
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from openbook.cli.options import folder_to_fill, option, with_options
from openbook.cli.progress import ProgressBar
from openbook.settings import Settings
from openbook_lab.evaluation.reports import ReportFiles

Name = TypeVar("Name", bound=str)


@with_options
def engine(
    settings: Annotated[Settings, "checkpoint"],
    files: ReportFiles,
    shapes: str = option(
        "mini,bart-large", "mini: the checkpoint. bart-large: BERT-base and BART-large, random weights."
    ),
    modes: str = option(
        "token greedy,token beams,sequence thorough,sequence fast",
        "Of: token greedy, token beams, sequence thorough, sequence fast.",
    ),
    contestants: str = option(
        "openbook float32,openbook bfloat16,openbook int8,transformers float32,transformers bfloat16",
        "Of: openbook float32 | bfloat16 | int8, transformers float32 | bfloat16, and for sequence fast alone "
        "ctranslate2 float32 | int8 (pip install 'openbook-lab[ctranslate2]').",
    ),
    threads: str = option("1,2", "Numbers of threads."),
    repeats: int = option(3, "Answers to each; the fastest counts.", min=1),
    n_docs: int = option(5, "K: passages.", min=1),
    length: int = option(160, "Tokens of a passage with its question.", min=1),
    new_tokens: int = option(16, "Tokens of an answer; none ends before.", min=1),
    num_beams: int = option(4, "Beams, where they are not one.", min=2),
    folder: Path | None = option(None, "Where the random weights are written: 2 GB.", callback=folder_to_fill),
) -> None:
    """Measure an answer of the engine beside transformers' own RAG: same weights, same work, in the same run.

    Lists are separated by commas, and the first word of several names stands for all of them: "openbook,transformers".
    Each contestant has a process of its own, and all are in memory at once: 8 GB for bart-large.
    """
    from openbook_lab.benchmarks.engine import Plan, measure_engine
    from openbook_lab.benchmarks.engine_work import CONTESTANTS, MODES, SHAPES, Work, write_shapes

    plan = Plan(
        contestants=chosen(contestants, CONTESTANTS, "--contestants"),
        modes=chosen(modes, MODES, "--modes"),
        threads=numbers(threads, "--threads"),
        repeats=repeats,
        work=Work(n_docs=n_docs, length=length, new_tokens=new_tokens, num_beams=num_beams),
    )
    names = chosen(shapes, SHAPES, "--shapes")
    with tempfile.TemporaryDirectory(prefix="openbook-bench-", dir=folder) as made, ProgressBar() as progress:
        folders = write_shapes(names, Path(made), Path(settings.checkpoint), progress.update)
        report = measure_engine(folders, plan, progress.update)
    files.show(report)


def chosen(given: str, known: tuple[Name, ...], option: str) -> tuple[Name, ...]:
    """The names in a list separated by commas. The first word of several stands for all of them."""
    names: dict[Name, None] = {}  # each once, in the order in which they were given
    for name in (one.strip() for one in given.split(",")):
        meant = [one for one in known if one == name or one.startswith(f"{name} ")]
        if not meant:
            raise typer.BadParameter(f"{name!r} is none of: {', '.join(known)}", param_hint=option)
        names |= dict.fromkeys(meant)
    return tuple(names)


def numbers(given: str, option: str) -> tuple[int, ...]:
    """Whole numbers above zero in a list separated by commas."""
    if not all(one.strip().isdecimal() and int(one) > 0 for one in given.split(",")):
        raise typer.BadParameter(f"{given!r} is no list of numbers above 0", param_hint=option)
    return tuple(int(one) for one in given.split(","))
