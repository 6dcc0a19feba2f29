"""How often contestants take turns: until their fastest times agree, or the machine has shown that it is too busy."""

import math
from collections.abc import Collection, Iterator, Sequence

# Fastest times that lie further apart are not those of an idle machine.
STEADY = 0.05
# Turns are at most so many times those that were asked for.
MOST_TIMES = 4


def spread(seconds: Sequence[float]) -> float | None:
    """How far the fastest fifth lies apart, two times at least, as a share of the fastest; None of a single time."""
    fastest = sorted(seconds)[: max(2, math.ceil(len(seconds) / 5))]
    return fastest[-1] / fastest[0] - 1 if len(fastest) > 1 else None


def turns(least: int, measured: Collection[Sequence[float]]) -> Iterator[int]:
    """The numbers of the turns: `least`, then more while times of any of the measured are not steady."""
    for turn in range(least * MOST_TIMES):
        if turn >= least and not any(unsteady(spread(one)) for one in measured):
            return
        yield turn


def unsteady(apart: float | None) -> bool:
    """Whether this spread is that of a machine that is too busy."""
    return apart is not None and apart > STEADY


def percent_apart(apart: float | None) -> str | None:
    """A cell of a table: the spread, and what it says about the machine where it is too large."""
    return None if apart is None else f"{apart:.1%}{', too busy' if unsteady(apart) else ''}"
