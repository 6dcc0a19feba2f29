"""How far a build is, how fast it goes, and how long it has yet to go."""

import time

from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import ProgressColumn as Column
from rich.text import Text

from service.cli.consoles import SECONDS_BETWEEN_LINES, messages


class Rate(Column):
    """So many a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if not speed else f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.1f}/s")


class BuildProgress:
    """Stages on standard error: a bar for each on a terminal, now and then a line where it is none.

    What a stage had done when it was first heard of was done before, and says nothing of its speed.
    """

    def __init__(self) -> None:
        self._console = messages()
        self._progress = Progress(
            TextColumn("{task.description:<9}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            Rate(),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=self._console,
            disable=not self._console.is_terminal,
            # a batch on a slow processor takes seconds
            speed_estimate_period=120.0,
        )
        self._tasks: dict[str, TaskID] = {}
        self._begun: dict[str, tuple[float, int]] = {}
        self._last_line = time.monotonic()

    def __enter__(self) -> "BuildProgress":
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
            self._tasks[what] = self._progress.add_task(what, total=total, completed=done)
        self._progress.update(self._tasks[what], completed=done, total=total)

    def _say(self, done: int, total: int | None, what: str) -> None:
        now = time.monotonic()
        began, before = self._begun.setdefault(what, (now, done))
        if done != total and now - self._last_line < SECONDS_BETWEEN_LINES:
            return
        self._last_line = now
        line = f"{what}: {done:,}" + ("" if total is None else f" of {total:,}")
        if done > before and now > began:
            rate = (done - before) / (now - began)
            line += f", {rate:,.1f}/s"
            if total is not None and done < total:
                line += f", {duration((total - done) / rate)} left"
        self._console.print(line, markup=False)


def duration(seconds: float) -> str:
    """For people: 42 s, 17 min, 5.3 h, 12 days."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"


def size(n_bytes: float) -> str:
    """For people, in powers of 1000: 71.2 GB."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:,.0f} bytes" if unit == "bytes" else f"{n_bytes:,.1f} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:,.1f} TB"
