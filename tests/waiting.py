"""How a test waits: for a state that stays until the test has seen it, as long as a busy machine may take."""

import asyncio
import time
from collections.abc import Callable

# Longer than any step takes beside other work; the suite's own limit (pyproject.toml) is twice that.
PATIENCE_S = 300.0
# What a test holds back until it has looked is held for longer than anybody looks.
HELD_S = 2 * PATIENCE_S


def until(
    condition: Callable[[], object], *, what: str = "it", limit_s: float = PATIENCE_S, every_s: float = 0.01
) -> float:
    """Wait for it; the seconds that it took. AssertionError where it does not come."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < limit_s, f"waited {limit_s:.0f} s in vain for {what}"
        time.sleep(every_s)
    return time.monotonic() - started


async def reached(condition: Callable[[], object], *, what: str = "it", limit_s: float = PATIENCE_S) -> None:
    """The same in an event loop, which goes on meanwhile."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < limit_s, f"waited {limit_s:.0f} s in vain for {what}"
        await asyncio.sleep(0.005)
