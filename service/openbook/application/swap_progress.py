"""The progress of a swap while it goes on, and the report of how it ended."""

import datetime
from dataclasses import dataclass, field
from typing import Literal

SwapPolicy = Literal["availability", "resource"]
# "load" opens a version beside the live one without a flip, "check" until it has answered what is guarded
Errand = Literal["availability", "resource", "load", "check"]
SwapState = Literal["idle", "running", "done", "failed"]
Stage = Literal["pull", "verify", "open", "drain", "warm", "guard", "flip", "current"]


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
    code: str | None = None
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


def utc_now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
