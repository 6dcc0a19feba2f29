"""How far a swap has come: what anyone may ask while it goes on, and what is told of how it ended."""

import datetime
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from openbook.errors import ShuttingDown

SwapPolicy = Literal["availability", "resource"]
# "load" opens a version beside the live one without a flip
Errand = Literal["availability", "resource", "load"]
SwapState = Literal["idle", "running", "done", "failed"]
Stage = Literal["verify", "open", "drain", "warm", "flip", "current"]


@dataclass(frozen=True, slots=True)
class SwapProgress:
    """The swap under way, or the last one; "idle" before the first.

    `fraction` is the share of `stage` that is done, where that is known; `stage` is the one in which it failed, once
    it has. `seconds` has the stages so far, the present one included, and "total".
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
    """Watches one swap: its thread tells what it does, any thread may ask for the progress."""

    def __init__(self, version: str | None, previous: str | None, policy: Errand, actor: str) -> None:
        self.version = version
        self.previous = previous
        self.policy: Errand = policy
        self.actor = actor
        self.started_at = utc_now()
        self._lock = threading.Lock()
        self._state: SwapState = "running"
        self._stage: Stage | None = None
        self._entered = 0.0
        self._fraction: float | None = None
        self._seconds: dict[str, float] = {}
        self._error: str | None = None
        self._detail = ""
        self._stopped = threading.Event()

    @contextmanager
    def stage(self, name: Stage) -> Iterator[None]:
        """For the length of a `with` block this is what is being done."""
        with self._lock:
            self._stage, self._entered, self._fraction = name, time.perf_counter(), None
        try:
            yield
        finally:
            with self._lock:
                self._seconds[name] = time.perf_counter() - self._entered
                self._entered = 0.0

    def report(self, fraction: float) -> None:
        """How much of the present stage is done, between 0 and 1. Raises what `check` raises."""
        self.check()
        with self._lock:
            self._fraction = fraction

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
        with self._lock:
            self._state, self._stage, self._fraction = "done", None, None

    def failed(self, code: str, detail: str) -> None:
        with self._lock:
            self._state, self._error, self._detail, self._fraction = "failed", code, detail, None

    def seconds(self) -> dict[str, float]:
        """Of each stage in the order in which they began, and "total"."""
        with self._lock:
            return self._so_far()

    def progress(self) -> SwapProgress:
        with self._lock:
            return SwapProgress(
                state=self._state,
                version=self.version,
                previous=self.previous,
                policy=self.policy,
                actor=self.actor,
                stage=self._stage,
                fraction=self._fraction,
                seconds=self._so_far(),
                started_at=self.started_at,
                error=self._error,
                detail=self._detail,
            )

    def _so_far(self) -> dict[str, float]:
        seconds = dict(self._seconds)
        if self._stage is not None and self._entered:
            seconds[self._stage] = time.perf_counter() - self._entered
        return seconds | {"total": sum(seconds.values())}


def utc_now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
