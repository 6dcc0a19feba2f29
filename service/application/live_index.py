"""The live index: who reads which snapshot, and when the last reader has left."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from service.entities import IndexVersion
from service.errors import IndexNotResident, NoLiveIndex
from service.storage.snapshot import IndexSnapshot

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to read `snapshot`, and what to call it. Good until the `with` block that gave it ends."""

    snapshot: IndexSnapshot
    index: IndexVersion


@dataclass(frozen=True, slots=True)
class Resident:
    """An open snapshot, and the bytes that it holds once all its pages are read."""

    index: IndexVersion
    bytes: int


class _Opened:
    """An opened snapshot with the number of leases on it. Only LiveIndex touches the counters, under its lock."""

    __slots__ = ("closed", "index", "leases", "retired", "snapshot")

    def __init__(self, snapshot: IndexSnapshot, generation: int) -> None:
        self.snapshot = snapshot
        self.index = IndexVersion(snapshot.info.version, generation, snapshot.info.snapshot_date)
        self.leases = 0
        self.retired = False
        self.closed = threading.Event()


class LiveIndex:
    """Holds the live snapshot and the generation, the number of swaps so far.

    Safe to call from any thread. The lock is held for a few assignments and never while a file is opened, searched
    or closed, so that a flip costs a question nothing.
    """

    def __init__(self, snapshot: IndexSnapshot | None = None) -> None:
        self._lock = threading.Lock()
        self._generation = 0
        self._hint = "No index is being served yet."
        self._live = _Opened(snapshot, 0) if snapshot is not None else None
        self._residents = [self._live] if self._live is not None else []

    @contextmanager
    def lease(self, version: str | None = None) -> Iterator[Lease]:
        """Keep the live snapshot open for the length of a `with` block, whatever is swapped meanwhile.

        With `version`, only a snapshot of that version will do. Raises NoLiveIndex, IndexNotResident.
        The thread that ends the last lease of a retired snapshot closes it.
        """
        resident = self._take(version)
        try:
            yield Lease(resident.snapshot, resident.index)
        finally:
            self._give_back(resident)

    def flip(self, snapshot: IndexSnapshot) -> int:
        """Make `snapshot` the live one and return the new generation. The one before retires."""
        with self._lock:
            self._generation += 1
            generation = self._generation
            retired = self._replace(_Opened(snapshot, generation))
        self._close_if_unused(retired)
        return generation

    def let_go(self, hint: str) -> threading.Event | None:
        """Retire the live snapshot with none in its place; `hint` tells questions why there is none.

        The event is set when its last lease has ended and it is closed; None where nothing was live.
        """
        with self._lock:
            self._hint = hint
            retired = self._replace(None)
        self._close_if_unused(retired)
        return retired.closed if retired is not None else None

    def come_back(self, snapshot: IndexSnapshot) -> None:
        """Undo `let_go`: serve `snapshot` under the generation that was let go, since no swap has happened."""
        with self._lock:
            retired = self._replace(_Opened(snapshot, self._generation))
        self._close_if_unused(retired)

    def check(self, version: str | None = None) -> None:
        """Raise what `lease` would raise now."""
        with self._lock:
            self._wanted(version)

    def now(self) -> IndexVersion | None:
        """What a question asked now would read."""
        live = self._live
        return live.index if live is not None else None

    def residents(self) -> tuple[Resident, ...]:
        """What is open: the live snapshot, and those that retired but are still being read."""
        with self._lock:
            snapshots = [(resident.index, resident.snapshot) for resident in self._residents]
        return tuple(Resident(index, snapshot.resident_bytes()) for index, snapshot in snapshots)

    def close(self) -> None:
        """Serve nothing more. What is still read closes when its last lease ends."""
        self.let_go("The service is shutting down.")

    def _take(self, version: str | None) -> _Opened:
        with self._lock:
            wanted = self._wanted(version)
            wanted.leases += 1
            return wanted

    def _wanted(self, version: str | None) -> _Opened:
        """Under the lock: what a lease on `version` is a lease on."""
        if self._live is None:
            raise NoLiveIndex(hint=self._hint)
        if version is not None and self._live.index.version != version:
            raise IndexNotResident(version=version, resident=(self._live.index.version,))
        return self._live

    def _give_back(self, resident: _Opened) -> None:
        with self._lock:
            resident.leases -= 1
        self._close_if_unused(resident)

    def _replace(self, resident: _Opened | None) -> _Opened | None:
        """Under the lock: put `resident` where the live one was, and return that one, retired."""
        retired, self._live = self._live, resident
        if resident is not None:
            self._residents.append(resident)
        if retired is not None:
            retired.retired = True
        return retired

    def _close_if_unused(self, resident: _Opened | None) -> None:
        if resident is None:
            return
        with self._lock:
            if not resident.retired or resident.leases or resident not in self._residents:
                return
            # off the list first: whoever takes it off is the one who closes it
            self._residents.remove(resident)
        try:
            resident.snapshot.close()
        except Exception:
            # the question whose lease ended last has its answer; it must not fail for the old index's sake
            logger.exception("closing index %s failed", resident.index.version)
        finally:
            resident.closed.set()
