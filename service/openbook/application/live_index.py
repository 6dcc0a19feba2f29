"""The open indexes: which one is live, who reads which snapshot, and when the last reader has left."""

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from openbook.entities import IndexVersion
from openbook.errors import IndexNotResident, IndexTooLarge, NoLiveIndex
from openbook.storage.manifest import resident_bytes
from openbook.storage.snapshot import Identity, IndexSnapshot

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to read `snapshot`, and what to call it. Good until the `with` block that gave it ends."""

    snapshot: IndexSnapshot
    index: IndexVersion


@dataclass(frozen=True, slots=True)
class Resident:
    """An open snapshot, when it was made, and the bytes that it holds once all its pages are read.

    One that is `retiring` closes when its last lease ends, and gets no new lease. `last_leased` is larger for a later
    lease; `identity` says which files are mapped.
    """

    index: IndexVersion
    bytes: int
    live: bool = False
    retiring: bool = False
    leases: int = 0
    last_leased: int = 0
    identity: Identity = ()
    created_at: str = ""


@dataclass(slots=True, eq=False)
class _Opened:
    """An opened snapshot with the number of leases on it. LiveIndex touches the fields under its lock."""

    snapshot: IndexSnapshot
    # once retired: the last one under which a lease was given
    generation: int = 0
    leases: int = 0
    last_leased: int = 0
    retired: bool = False

    @property
    def version(self) -> str:
        return self.snapshot.info.version


class LiveIndex:
    """Holds the live snapshot, up to `residents` - 1 others, and the generation, the number of swaps so far.

    A version has at most one snapshot that is not retiring, so that a version that is named means one text.
    Safe to call from any thread. The lock is held for a few assignments and never while a file is opened, searched
    or closed, so that a flip costs a question nothing.
    """

    def __init__(self, snapshot: IndexSnapshot | None = None, *, residents: int = 1) -> None:
        self._lock = threading.Condition()
        self._limit = residents
        self._generation = 0
        self._clock = 0
        self._hint = "No index is being served yet."
        self._live: _Opened | None = None
        self._was_live: _Opened | None = None
        self._opened: list[_Opened] = []
        self._n_closing = 0
        if snapshot is not None:
            self._live = self._add(snapshot)

    # --- reading -------------------------------------------------------------------------------------------

    @contextmanager
    def lease(self, version: str | None = None) -> Iterator[Lease]:
        """Keep the live snapshot open for the length of a `with` block, whatever is swapped meanwhile.

        With `version`, a snapshot of that version: the live one or another resident, under the present generation.
        Raises NoLiveIndex, IndexNotResident. The thread that ends the last lease of a retired snapshot closes it.
        """
        with self.leases((version,)) as (lease,):
            yield lease

    @contextmanager
    def leases(self, versions: Sequence[str | None]) -> Iterator[tuple[Lease, ...]]:
        """As `lease`, on several versions at one moment: all of them or none."""
        with self._lock:
            taken = [self._wanted(version) for version in versions]
            given = tuple(Lease(opened.snapshot, self._index_of(opened)) for opened in taken)
            for opened in taken:
                opened.leases += 1
                self._used(opened)
        try:
            yield given
        finally:
            with self._changing():
                for opened in taken:
                    opened.leases -= 1

    def explain(self, hint: str) -> None:
        """Tell questions why nothing is live, while that is so."""
        with self._lock:
            self._hint = hint

    def check(self, version: str | None = None) -> None:
        """Raise what `lease` would raise now."""
        with self._lock:
            self._wanted(version)

    def now(self) -> IndexVersion | None:
        """What a question asked now would read."""
        with self._lock:
            return self._index_of(self._live) if self._live is not None else None

    def resident(self, version: str) -> bool:
        """Whether a lease on `version` would be given now."""
        with self._lock:
            return self._find(version) is not None

    def residents(self) -> tuple[Resident, ...]:
        """What is open, in the order of opening: the live one, its residents, and those still being read."""
        with self._lock:
            return tuple(
                Resident(
                    self._index_of(opened),
                    resident_bytes(opened.snapshot.info),
                    live=opened is self._live,
                    retiring=opened.retired,
                    leases=opened.leases,
                    last_leased=opened.last_leased,
                    identity=opened.snapshot.identity,
                    created_at=opened.snapshot.info.created_at,
                )
                for opened in self._opened
            )

    # --- changing ------------------------------------------------------------------------------------------

    def flip(self, snapshot: IndexSnapshot) -> int:
        """Make `snapshot` the live one and return the new generation.

        A snapshot that is open here already becomes live as it is. The one before stays as a resident while there
        is room; beyond that the one whose last lease began longest ago retires.
        """
        with self._changing():
            self._make_live(snapshot)
            self._generation += 1
            return self._generation

    def check_room(self, version: str) -> None:
        """Raise IndexTooLarge where `add_resident` would, before anything is read."""
        if self._limit < 2:
            raise IndexTooLarge("residents", version=version, limit=self._limit)

    def add_resident(self, snapshot: IndexSnapshot) -> None:
        """Add a resident that is not live. Where there is no room, the one least recently leased retires.

        A version that is live stays as it is, and `snapshot` is closed. Raises IndexTooLarge where there is room
        for the live one alone.
        """
        self.check_room(snapshot.info.version)
        with self._changing():
            opened = self._known(snapshot) or self._add(snapshot)
            if self._live is None or self._live.version != opened.version:
                opened.retired = False
                self._retire_others(opened)
                self._make_room(spared=opened)
            elif opened is not self._live:
                self._retire([opened])
            self._used(opened)

    def retire_residents(self, version: str | None = None) -> None:
        """Retire the resident of this version, or all of them; the live one stays."""
        with self._changing():
            self._retire([one for one in self._opened if one is not self._live and version in (None, one.version)])

    def retire_all(self, hint: str) -> None:
        """Retire all that is open with nothing in its place; `hint` tells questions why there is none."""
        with self._changing():
            self._hint = hint
            self._was_live, self._live = self._live, None
            self._retire(self._opened)

    def drained(self, *, within_s: float) -> bool:
        """Whether all that is open has closed, at the latest after so many seconds."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._opened and not self._n_closing, within_s)

    def restore(self, snapshot: IndexSnapshot | None = None) -> bool:
        """Undo `retire_all` under the same generation, since no swap has happened.

        Serves `snapshot`, or else what was live while it is still being read; False where that has been closed.
        """
        with self._changing():
            if snapshot is None:
                snapshot = next((one.snapshot for one in self._opened if one is self._was_live), None)
            if snapshot is not None:
                self._make_live(snapshot)
        return snapshot is not None

    def close(self) -> None:
        """Serve nothing more. What is still read closes when its last lease ends."""
        self.retire_all("The service is shutting down.")

    # --- under the lock ------------------------------------------------------------------------------------

    def _add(self, snapshot: IndexSnapshot) -> _Opened:
        opened = _Opened(snapshot)
        self._opened.append(opened)
        return opened

    def _find(self, version: str) -> _Opened | None:
        return next((one for one in self._opened if one.version == version and not one.retired), None)

    def _known(self, snapshot: IndexSnapshot) -> _Opened | None:
        return next((one for one in self._opened if one.snapshot is snapshot), None)

    def _wanted(self, version: str | None) -> _Opened:
        """The snapshot that a lease on `version` leads to."""
        found = self._find(version) if version is not None else self._live
        if found is not None:
            return found
        if self._live is None or version is None:
            raise NoLiveIndex(hint=self._hint)
        open_now = tuple(opened.version for opened in self._opened if not opened.retired)
        raise IndexNotResident(version=version, resident=open_now)

    def _index_of(self, opened: _Opened) -> IndexVersion:
        generation = opened.generation if opened.retired else self._generation
        return IndexVersion(opened.version, generation, opened.snapshot.info.snapshot_date)

    def _make_live(self, snapshot: IndexSnapshot) -> None:
        opened = self._known(snapshot) or self._add(snapshot)
        opened.retired = False
        if self._live is not None:
            # a rollback leads to it, so having been live counts as use
            self._used(self._live)
        self._live = opened
        self._was_live = None
        self._retire_others(opened)
        self._make_room(spared=opened)

    def _used(self, opened: _Opened) -> None:
        self._clock += 1
        opened.last_leased = self._clock

    def _retire_others(self, opened: _Opened) -> None:
        """One version, one text: an older opening of the same version gives way."""
        self._retire([one for one in self._opened if one is not opened and one.version == opened.version])

    def _make_room(self, *, spared: _Opened) -> None:
        waiting = sorted(
            (one for one in self._opened if not one.retired and one is not self._live and one is not spared),
            key=lambda one: one.last_leased,
        )
        n_open = sum(not one.retired for one in self._opened)
        self._retire(waiting[: max(0, n_open - self._limit)])

    def _retire(self, leaving: Sequence[_Opened]) -> None:
        for opened in leaving:
            if not opened.retired:
                opened.generation = self._generation
                opened.retired = True

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the lock, then close what has no lease any more: closing a file takes time that no lease waits for.

        What has retired leaves the list under the lock, so that one thread closes it.
        """
        with self._lock:
            yield
            unused = [opened for opened in self._opened if opened.retired and not opened.leases]
            self._opened = [opened for opened in self._opened if opened not in unused]
            self._n_closing += len(unused)
        for opened in unused:
            try:
                opened.snapshot.close()
            except Exception:
                # the question whose lease ended last has its answer; it must not fail because of the old index
                logger.exception("closing index %s failed", opened.version)
        if unused:
            with self._lock:
                self._n_closing -= len(unused)
                self._lock.notify_all()
