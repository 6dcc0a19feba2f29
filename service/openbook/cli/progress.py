"""How far long work is, on standard error: bars on a terminal, now and then a line where it is none."""

import time
from typing import Self

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from openbook.cli.consoles import messages
from openbook.cli.quantities import duration, per_second

SECONDS_BETWEEN_LINES = 30.0


class Rate(ProgressColumn):
    """So many a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(per_second(speed) if speed else "")


class Bars:
    """A bar for each stage while this is entered; `columns` are what stands in it beside the stage's name.

    `stopped` is said where Ctrl-C ends the work: what is kept, and how to go on.
    """

    def __init__(self, *columns: ProgressColumn, transient: bool = False, stopped: str = "") -> None:
        self._console = messages()
        self._stopped = stopped
        self._progress = Progress(
            TextColumn("{task.description:<9}"),
            BarColumn(bar_width=24),
            *columns,
            console=self._console,
            disable=not self._console.is_terminal,
            # a batch on a slow processor takes seconds
            speed_estimate_period=120.0,
            transient=transient,
        )
        self._tasks: dict[str, TaskID] = {}
        self._last_line = time.monotonic()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self._progress.stop()
        if self._stopped and error is KeyboardInterrupt:
            self._say(self._stopped)

    def _draw(self, stage: str, done: float, total: float | None) -> None:
        if stage not in self._tasks:
            self._tasks[stage] = self._progress.add_task(stage, total=total, completed=int(done))
        self._progress.update(self._tasks[stage], completed=done, total=total)

    def _is_time_for_a_line(self) -> bool:
        return time.monotonic() - self._last_line >= SECONDS_BETWEEN_LINES

    def _say(self, line: str) -> None:
        self._last_line = time.monotonic()
        self._console.print(line, markup=False)


class ProgressBar(Bars):
    """Work that is counted: how much is done, how fast it goes, how long it has yet to go.

    What a stage had done when it was first heard of was done before, and says nothing of its speed.
    """

    def __init__(self, *, stopped: str = "") -> None:
        super().__init__(MofNCompleteColumn(), Rate(), TimeRemainingColumn(elapsed_when_finished=True), stopped=stopped)
        self._begun: dict[str, tuple[float, int]] = {}

    def update(self, done: int, total: int | None, what: str) -> None:
        """Stage `what` has `done` of `total`; None: nobody knows yet of how many."""
        began, before = self._begun.setdefault(what, (time.monotonic(), done))
        if self._console.is_terminal:
            self._draw(what, done, total)
        elif done == total or self._is_time_for_a_line():
            self._say(_line(what, done, total, done - before, time.monotonic() - began))


class StageBars(Bars):
    """The stages of a swap, each of which is a share of itself. On a terminal nothing of them stays."""

    def __init__(self) -> None:
        super().__init__(TaskProgressColumn(), TimeElapsedColumn(), transient=True)

    def update(self, stage: str, fraction: float | None) -> None:
        """`stage` is being done, and of it `fraction`; None: nobody knows how much. The stages before have ended."""
        if self._console.is_terminal:
            for earlier in self._tasks:
                if earlier != stage:
                    self._draw(earlier, 1.0, 1.0)
            self._draw(stage, fraction or 0.0, None if fraction is None else 1.0)
        elif self._is_time_for_a_line():
            self._say(stage if fraction is None else f"{stage}: {fraction:.0%}")


def _line(what: str, done: int, total: int | None, just_done: int, seconds: float) -> str:
    line = f"{what}: {done:,}" + ("" if total is None else f" of {total:,}")
    if just_done <= 0 or seconds <= 0:
        return line
    rate = just_done / seconds
    line += f", {per_second(rate)}"
    return line if total is None or done >= total else f"{line}, {duration((total - done) / rate)} left"
