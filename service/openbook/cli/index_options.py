"""The options of whatever makes an index: its type, and the numbers that a type has."""

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, TypeVar

import typer

from openbook.cli.options import gathers

T = TypeVar("T")

IndexChoice = Annotated[
    str,
    typer.Option(
        "--index",
        "--type",
        help="auto chooses by size and memory; flat compares with every passage; hnsw is the paper's graph; ivfpq "
        "keeps short codes in memory and the vectors on the disk; or a FAISS factory string such as IVF4096,SQ8.",
    ),
]
Numbers = Mapping[str, int | None]
# Those of choose_index, which knows their bounds.
HELP = {
    "m": "hnsw: links of a vector. Without it 32.",
    "ef_construction": "hnsw: candidates looked at when a vector is linked: 200.",
    "ef_search": "hnsw: candidates looked at by a search: 128.",
    "nlist": "ivfpq: lists. Without it about four times the root of N.",
    "nprobe": "ivfpq: lists looked at by a search.",
    "code_bytes": "ivfpq: bytes of a code. Without it 64.",
    "candidates": "ivfpq: rows that a search scores exactly. Without it 200.",
}


def takes_index_numbers(command: Callable[..., T]) -> Callable[..., T]:
    """Give a command one option for each number of an index; the command itself takes `numbers: Numbers`."""
    options = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[int | None, typer.Option(f"--{name.replace('_', '-')}", help=text)],
        )
        for name, text in HELP.items()
    ]
    return gathers(command, "numbers", options, dict)
