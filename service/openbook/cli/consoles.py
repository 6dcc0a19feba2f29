"""Where the commands write: answers to standard output, progress and errors to standard error."""

import json
import unicodedata
from typing import Any

import typer
from rich.console import Console

# A pipe has no width. Wide enough that nothing is ever folded or cut there.
PIPED_WIDTH = 100_000


def output() -> Console:
    """Standard output. Coloured and as wide as the terminal; plain and unfolded where it is none."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PIPED_WIDTH)


def messages() -> Console:
    """Standard error."""
    console = Console(stderr=True, highlight=False)
    return console if console.is_terminal else Console(stderr=True, highlight=False, width=PIPED_WIDTH)


def print_json(content: Any) -> None:
    typer.echo(json.dumps(content, indent=2, ensure_ascii=False))


def printable(text: str) -> str:
    """`text` of equal length without what a terminal would obey: control characters become spaces or U+FFFD."""
    return "".join(
        character
        if unicodedata.category(character) not in ("Cc", "Cf", "Cs")
        else " "
        if character in "\n\r\t"
        else "\ufffd"
        for character in text
    )
