"""The progress of a swap while it goes on, and the report of how it ended."""

import datetime
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from openbook.errors import ShuttingDown

SwapPolicy = Literal["availability", "resource"]
# "load" opens a version beside the live one without a flip
Errand = Literal["availability", "resource", "load"]
SwapState = Literal["idle", "running", "done", "failed"]
Stage = Literal["verify", "open", "drain", "warm", "flip", "current"]


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
    """Watches one swap: its thread says what it does, any thread may ask for the progress."""

    def __init__(self, version: str | None, previous: str | None, policy: Errand, actor: str) -> None:
        self.version = version
        self.previous = previous
        self.policy: Errand = policy
        self.actor = actor
        self._lock = threading.Lock()
        self._progress = SwapProgress("running", previous=previous, policy=policy, actor=actor, started_at=utc_now())
        self._entered: float | None = None
        self._stopped = threading.Event()

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
        self._change(fraction=fraction)

    def check(self) -> None:
        """To be called while there is a way back. Raises ShuttingDown once the swap is to end."""
        if self._stopped.is_set():
            raise ShuttingDown(version=self.version)

    def stop(self) -> None:
        """End the swap at its next report; one that has been flipped by then is a swap that happened."""
        self._stopped.set()

    def stopped(self) -> bool:
        return self._stopped.is_set()

    def done(self) -> None:
        self._change(state="done", stage=None, fraction=None)

    def failed(self, code: str, detail: str) -> None:
        self._change(state="failed", error=code, detail=detail, fraction=None)

    def seconds(self) -> dict[str, float]:
        """Of each stage in the order in which they began, and "total"."""
        return self.progress().seconds

    def progress(self) -> SwapProgress:
        with self._lock:
            stages = self._stages()
            return replace(self._progress, version=self.version, seconds=stages | {"total": sum(stages.values())})

    def _change(self, **changed: Any) -> None:
        with self._lock:
            self._progress = replace(self._progress, **changed)

    def _stages(self) -> dict[str, float]:
        stages = self._progress.seconds
        if self._progress.stage is None or self._entered is None:
            return stages
        return stages | {self._progress.stage: time.perf_counter() - self._entered}


def utc_now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
