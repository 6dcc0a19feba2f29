"""An open snapshot with those who read it, and the end of the last of them."""

import logging
import threading
import time
from collections.abc import Sequence

from openbook.storage.snapshot import IndexSnapshot

logger = logging.getLogger(__name__)


class Drain:
    """The end of the last lease on each of some retired snapshots."""

    def __init__(self, events: Sequence[threading.Event]) -> None:
        self._events = tuple(events)

    def is_set(self) -> bool:
        return all(event.is_set() for event in self._events)

    def wait(self, timeout: float | None = None) -> bool:
        """True once all are closed, False where `timeout` seconds were not enough."""
        until = None if timeout is None else time.monotonic() + timeout
        return all(event.wait(None if until is None else max(0.0, until - time.monotonic())) for event in self._events)


class Opened:
    """An opened snapshot with the number of leases on it. Only LiveIndex touches the fields, under its lock."""

    __slots__ = ("closed", "generation", "last_leased", "leases", "retired", "snapshot")

    def __init__(self, snapshot: IndexSnapshot) -> None:
        self.snapshot = snapshot
        # the last one under which a lease was given, once retired
        self.generation = 0
        self.leases = 0
        self.last_leased = 0
        self.retired = False
        self.closed = threading.Event()

    @property
    def version(self) -> str:
        return self.snapshot.info.version


def close_all(unused: Sequence[Opened]) -> None:
    """Close the snapshots, and tell whoever waits for it."""
    for opened in unused:
        try:
            opened.snapshot.close()
        except Exception:
            # the question whose lease ended last has its answer; it must not fail for the old index's sake
            logger.exception("closing index %s failed", opened.version)
        finally:
            opened.closed.set()
