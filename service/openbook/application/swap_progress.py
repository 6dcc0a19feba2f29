"""The progress of a swap while it goes on, and the report of how it ended."""

import datetime
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

from openbook.errors import ShuttingDown, code_of

SwapPolicy = Literal["availability", "resource"]
# "load" opens a version beside the live one without a flip
Errand = Literal["availability", "resource", "load"]
SwapState = Literal["idle", "running", "done", "failed"]
Stage = Literal["pull", "verify", "open", "drain", "warm", "flip", "current"]


@dataclass(frozen=True, slots=True)
class SwapProgress:
    """The swap under way, or the last one; "idle" before the first.

    `fraction` is the share of `stage` that is done, where that is known; after a failure, `stage` is where it failed.
    `seconds` has the stages so far, the present one included, and "total".
    """

    state: SwapState = "idle"
    version: str | None = None
    previous: str | None = None
    policy: Errand | None = None
    actor: str = ""
    stage: Stage | None = None
    fraction: float | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    started_at: str | None = None
    error: str | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class SwapReport:
    """A swap that happened. `seconds` has one entry a stage and "total"; `durable` is false where CURRENT could not
    be written, so that a restart would come back on another version."""

    version: str
    previous: str | None
    generation: int
    durable: bool
    seconds: dict[str, float]


@dataclass(frozen=True, slots=True)
class LoadReport:
    """A version that is resident. `seconds` has one entry a stage and "total"."""

    version: str
    seconds: dict[str, float]


class SwapWatch:
    """Watches one swap: its thread says what it does, any thread may ask for the progress.

    `ending` is set where the service ends and the swap has to.
    """

    def __init__(
        self, version: str | None, previous: str | None, policy: Errand, actor: str, ending: threading.Event
    ) -> None:
        self.version = version
        self.previous = previous
        self.policy: Errand = policy
        self.actor = actor
        self.ending = ending
        self._lock = threading.Lock()
        self._progress = SwapProgress("running", previous=previous, policy=policy, actor=actor, started_at=utc_now())
        self._entered: float | None = None

    @contextmanager
    def stage(self, name: Stage) -> Iterator[None]:
        """The swap is in this stage for the length of a `with` block."""
        with self._lock:
            self._entered = time.perf_counter()
            self._progress = replace(self._progress, stage=name, fraction=None)
        try:
            yield
        finally:
            with self._lock:
                self._progress = replace(self._progress, seconds=self._stages())
                self._entered = None

    def report(self, fraction: float) -> None:
        """How much of the present stage is done, between 0 and 1. Raises what `check` raises."""
        self.check()
        with self._lock:
            self._progress = replace(self._progress, fraction=fraction)

    def check(self) -> None:
        """Call this while there is a way back. Raises ShuttingDown once the service ends."""
        if self.ending.is_set():
            raise ShuttingDown(version=self.version)

    def end(self, error: BaseException | None) -> None:
        with self._lock:
            if error is None:
                self._progress = replace(self._progress, state="done", stage=None, fraction=None)
            else:
                code, detail = code_of(error), str(error)
                self._progress = replace(self._progress, state="failed", error=code, detail=detail, fraction=None)

    def seconds(self) -> dict[str, float]:
        """Of each stage in the order in which they began, and "total"."""
        return self.progress().seconds

    def progress(self) -> SwapProgress:
        with self._lock:
            stages = self._stages()
            return replace(self._progress, version=self.version, seconds=stages | {"total": sum(stages.values())})

    def _stages(self) -> dict[str, float]:
        stages = self._progress.seconds
        if self._progress.stage is None or self._entered is None:
            return stages
        return stages | {self._progress.stage: time.perf_counter() - self._entered}


def utc_now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
