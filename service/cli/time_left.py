"""How far long work is and how long it has yet to go."""

import time

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from service.cli.consoles import SECONDS_BETWEEN_LINES, messages


class TimeLeft:
    """Stages on standard error: a bar for each on a terminal, now and then a line where it is none.

    What a stage had done when it was first heard of was done before, and says nothing of its speed.
    """

    def __init__(self) -> None:
        self._console = messages()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._begun: dict[str, tuple[float, int]] = {}
        self._last_line = time.monotonic()

    def __enter__(self) -> "TimeLeft":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def update(self, done: int, total: int | None, what: str) -> None:
        """Stage `what` has `done` of `total`; None: nobody knows yet of how many."""
        if self._console.is_terminal:
            if what not in self._tasks:
                self._tasks[what] = self._progress.add_task(what, total=total)
            self._progress.update(self._tasks[what], completed=done, total=total)
            return
        now = time.monotonic()
        began, before = self._begun.setdefault(what, (now, done))
        if done == total or now - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = now
            line = f"{what}: {done:,}" + ("" if total is None else f" of {total:,}")
            if total is not None and before < done < total:
                line += f", {(now - began) * (total - done) / (done - before):,.0f} s left"
            self._console.print(line, markup=False)
