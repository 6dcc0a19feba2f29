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

from openbook.cli.consoles import duration, messages, per_second

SECONDS_BETWEEN_LINES = 30.0


class Rate(ProgressColumn):
    """So many a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(per_second(speed) if speed else "")


class ProgressBar:
    """A bar for each stage of work that is counted: how much is done, how fast, and the time left.

    What a stage has done at its first update was done before, and says nothing of its speed. `stopped` is printed
    where Ctrl-C ends the work: what is kept, and how to go on.
    """

    def __init__(self, *columns: ProgressColumn, stopped: str = "", transient: bool = False) -> None:
        self._console = messages()
        self._stopped = stopped
        counted = (MofNCompleteColumn(), Rate(), TimeRemainingColumn(elapsed_when_finished=True))
        self._progress = Progress(
            TextColumn("{task.description:<9}"),
            BarColumn(bar_width=24),
            *(columns or counted),
            console=self._console,
            disable=not self._console.is_terminal,
            # a batch on a slow processor takes seconds
            speed_estimate_period=120.0,
            transient=transient,
        )
        self._tasks: dict[str, TaskID] = {}
        self._begun: dict[str, tuple[float, int]] = {}
        self._done: dict[str, int] = {}
        self._last_line = time.monotonic()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self._progress.stop()
        if self._stopped and error is KeyboardInterrupt:
            self._say(self._stopped)

    def update(self, done: int, total: int | None, what: str) -> None:
        """Stage `what` has `done` of `total`, None while that is unknown. Less than before is a new beginning."""
        if done < self._done.get(what, done + 1):
            self._begun[what] = (time.monotonic(), done)
        self._done[what] = done
        began, before = self._begun[what]
        if self._console.is_terminal:
            self._draw(what, done, total)
        elif done == total or self._is_time_for_a_line():
            self._say(_line(what, done, total, done - before, time.monotonic() - began))

    def _draw(self, stage: str, done: float, total: float | None) -> None:
        if stage not in self._tasks:
            self._tasks[stage] = self._progress.add_task(stage, total=total, completed=int(done))
        self._progress.update(self._tasks[stage], completed=done, total=total)

    def _is_time_for_a_line(self) -> bool:
        return time.monotonic() - self._last_line >= SECONDS_BETWEEN_LINES

    def _say(self, line: str) -> None:
        self._last_line = time.monotonic()
        self._console.print(line, markup=False)


class StageBars(ProgressBar):
    """The stages of a swap, each a share of itself. The terminal is clean again at the end."""

    def __init__(self) -> None:
        super().__init__(TaskProgressColumn(), TimeElapsedColumn(), transient=True)

    def show(self, stage: str, fraction: float | None) -> None:
        """`fraction` of `stage` is done, None while that is unknown. The stages before it have ended."""
        if self._console.is_terminal:
            for earlier in self._tasks.keys() - {stage}:
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
