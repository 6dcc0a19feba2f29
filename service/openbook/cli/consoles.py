"""How commands write: answers to standard output, progress and errors to standard error."""

import json
import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from typing import IO, Any

import typer
from rich import box
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

# A pipe has no width. Wide enough that nothing is folded or cut there.
PIPED_WIDTH = 100_000
FILLED = re.compile(r"(?<! ) +\n")
MEGABYTE = 1_000_000


def output() -> Console:
    """Standard output. Coloured and as wide as the terminal; plain and unfolded where it is none."""
    return _console(stderr=False)


def messages() -> Console:
    """Standard error."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False)
    if console.is_terminal:
        return console
    file: Any = _Unpadded(console.file)
    return Console(file=file, highlight=False, width=PIPED_WIDTH)


class _Unpadded:
    """A file without the blanks with which Rich fills lines to the width of a table or a text."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, text: str) -> int:
        return self._file.write(FILLED.sub("\n", text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def say(line: str, style: str | None = None) -> None:
    """One line on standard error. Brackets in it are brackets."""
    messages().print(line, style=style, markup=False)


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


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str | Text | None]],
    *,
    right: Collection[str] = (),
    folded: Collection[str] = (),
) -> Table:
    """A table with a line under its head: `right` columns hold numbers, `folded` ones may take several lines."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", no_wrap=column not in folded)
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(printable(cell or "")) for cell in row))
    return made


def megabytes(n_bytes: float) -> str:
    """71.2, without a unit, for a column of a table."""
    return f"{n_bytes / MEGABYTE:,.1f}"


def size(n_bytes: float) -> str:
    """In powers of 1000: 71.2 GB."""
    return decimal(round(n_bytes))


def duration(seconds: float) -> str:
    """42 s, 17 min, 5.3 h, 12 days."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"


def per_second(rate: float) -> str:
    """1,200/s, 4.7/s, 0.013/s."""
    return f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s"
