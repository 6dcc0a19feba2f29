"""Where the commands write: answers to standard output, progress and errors to standard error."""

import json
import time
import unicodedata
from typing import Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

# A pipe has no width. Wide enough that nothing is ever folded or cut there.
PIPED_WIDTH = 100_000
SECONDS_BETWEEN_LINES = 30.0


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


class ProgressBar:
    """Long work on standard error: a bar for each stage on a terminal, now and then a line where it is none."""

    def __init__(self) -> None:
        self._console = messages()
        self._progress = Progress(
            TextColumn("{task.description:<8}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._last_line = time.monotonic()

    def __enter__(self) -> "ProgressBar":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def update(self, done: int, total: int | None, what: str) -> None:
        """Stage `what` has `done` of `total`; None: nobody knows yet of how many."""
        if not self._console.is_terminal:
            self._say(done, total, what)
            return
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(what, total=total)
        self._progress.update(self._tasks[what], completed=done, total=total)

    def _say(self, done: int, total: int | None, what: str) -> None:
        now = time.monotonic()
        if done == total or now - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = now
            self._console.print(f"{what}: {done:,}" + ("" if total is None else f" of {total:,}"), markup=False)


class StageBars:
    """The stages of a swap on standard error: a bar for each on a terminal, now and then a line where it is none."""

    def __init__(self) -> None:
        self._console = messages()
        self._progress = Progress(
            TextColumn("{task.description:<8}"),
            BarColumn(bar_width=30),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
            # what stays is the report of the whole
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}
        self._last_line = time.monotonic()

    def __enter__(self) -> "StageBars":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def update(self, stage: str, fraction: float | None) -> None:
        """`stage` is being done, and of it `fraction`; None: nobody knows how much. The stages before have ended."""
        if not self._console.is_terminal:
            self._say(stage, fraction)
            return
        for earlier, task in self._tasks.items():
            if earlier != stage:
                self._progress.update(task, completed=1.0, total=1.0)
        if stage not in self._tasks:
            self._tasks[stage] = self._progress.add_task(stage, total=None)
        self._progress.update(self._tasks[stage], completed=fraction or 0.0, total=None if fraction is None else 1.0)

    def _say(self, stage: str, fraction: float | None) -> None:
        now = time.monotonic()
        if now - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = now
            self._console.print(stage if fraction is None else f"{stage}: {fraction:.0%}", markup=False)
