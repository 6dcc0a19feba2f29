"""The versions of an object store, as a service on this machine sees them: named there, opened from copies here."""

import hashlib
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from openbook.entities import IndexInfo
from openbook.errors import (
    IndexCorrupt,
    IndexInUse,
    IndexTooLarge,
    NoIndexes,
    OpenbookError,
    StoreUnreachable,
    UnknownIndex,
)
from openbook.plugins.objects.copying import local_info, pull, push, read_remote, verify_remote
from openbook.plugins.objects.object_store import ObjectStore
from openbook.plugins.objects.settings import ObjectsSettings
from openbook.settings import Settings
from openbook.storage import workplace
from openbook.storage.current import NO_CURRENT, CurrentMark, StoreMark
from openbook.storage.index_store import IndexStore, age, check_version_name
from openbook.storage.opening import RemoteVersions, ignore
from openbook.storage.placing import delete_version, prune

# What a service shows of the store may be so old: anyone may ask for it, and each look costs a call.
LOOK_S = 5.0
# So long waits for the list who has it refreshed.
PATIENCE_S = 1.0
# A store that has not answered is not asked for so long, but for the mark of CURRENT.
AWAY_S = 5.0

T = TypeVar("T")

logger = logging.getLogger(__name__)


class RemoteStore(RemoteVersions):
    """Takes names, CURRENT and manifests from `objects`, the object store, and keeps copies of versions in a folder.

    `open`, `check`, `find` and `file` are about copies: `fetch` brings one. Where the store does not answer, copies
    that are here can be opened all the same. At least `keep` copies stay. `count` receives the bytes that come.
    """

    def __init__(self, objects: ObjectStore, settings: Settings, count: Callable[[int], None] = ignore) -> None:
        of_copies = settings if isinstance(settings, ObjectsSettings) else ObjectsSettings()
        super().__init__(of_copies.cache / hashlib.sha256(objects.url.encode()).hexdigest()[:16], settings)
        self.url = objects.url
        self.objects = objects
        self.copies = IndexStore(self.folder, settings)
        self._keep = of_copies.keep_local
        self._count = count
        # held by who refreshes the list, and never waited for
        self._listing = threading.Lock()
        self._listed: dict[str, StoreMark] | None = None
        self._list_at: float | None = None
        # what was read of each version, and the mark that the list had for it before
        self._manifests: dict[str, tuple[StoreMark | None, IndexInfo | IndexCorrupt]] = {}
        self._away_until = 0.0

    def end(self) -> None:
        super().end()
        self.objects.ending.set()

    # --- names ---------------------------------------------------------------------------------------------

    def versions(self) -> tuple[str, ...]:
        """As in the store, at most LOOK_S seconds ago; the copies where it has not answered since the start.

        One caller has the list refreshed and waits PATIENCE_S seconds for it, the others get the last one. The first
        list is waited for.
        """
        is_due = self._list_at is None or time.monotonic() >= self._list_at
        if is_due and self._listing.acquire(blocking=False):
            refreshed = threading.Event()
            patience_s = PATIENCE_S if self._list_at is not None else None
            try:
                threading.Thread(target=self._refresh, args=(refreshed,), name="store-list", daemon=True).start()
            except BaseException:
                self._listing.release()
                raise
            refreshed.wait(patience_s)
        return tuple(self._listed) if self._listed is not None else self.copies.versions()

    def _refresh(self, refreshed: threading.Event) -> None:
        try:
            with suppress(StoreUnreachable):
                listed = self._ask(self.objects.manifests)
                for version in self._manifests.keys() - listed.keys():
                    self._manifests.pop(version, None)
                self._listed = listed
        finally:
            self._list_at = time.monotonic() + LOOK_S
            self._listing.release()
            refreshed.set()

    def newest_first(self) -> tuple[str, ...]:
        """Of the copies: a service opens no other version unasked."""
        return self.copies.newest_first()

    def info(self, version: str) -> IndexInfo:
        """The manifest that the list names, read once; the copy's if the store does not answer.

        Anyone may ask for any name: one that is not in the list costs no call of the store.
        """
        check_version_name(version)
        available = self.versions()
        mark, found = self._manifests.get(version, (None, None))
        if found is not None and mark == self._mark(version):
            return _raised(found)
        if version not in available:
            if self._listed is None or self._is_away():
                raise self._away()
            raise UnknownIndex(version=version, available=available)
        return self.info_now(version)

    def info_now(self, version: str) -> IndexInfo:
        """The manifest in the store now; the copy's if the store does not answer."""
        # taken before the manifest is read: one that is replaced meanwhile is read again
        mark = self._mark(check_version_name(version))
        try:
            found: IndexInfo | IndexCorrupt = self._ask(lambda: read_remote(self.objects, version)[0])
        except StoreUnreachable:
            if version not in self.copies.versions():
                raise
            return self.copies.info(version)
        except IndexCorrupt as error:
            # a traceback that is kept would grow from call to call
            found = error.with_traceback(None)
        self._manifests[version] = mark, found
        return _raised(found)

    def _mark(self, version: str) -> StoreMark | None:
        return (self._listed or {}).get(version)

    def _ask(self, call: Callable[[], T], *, while_away: bool = False) -> T:
        """What the store answers. Raises StoreUnreachable, at once for AWAY_S seconds after it has not answered."""
        if self._is_away() and not while_away:
            raise self._away()
        try:
            answer = call()
        except StoreUnreachable:
            self._away_until = time.monotonic() + AWAY_S
            raise
        self._away_until = 0.0
        return answer

    def _is_away(self) -> bool:
        return time.monotonic() < self._away_until

    def _away(self) -> StoreUnreachable:
        return StoreUnreachable(url=self.objects.url, reason="it has not answered just now")

    def verify(self, version: str, report: Callable[[str], None] | None = None) -> IndexInfo:
        """Read every byte of a version in the store; `report` gets a line for each file. Raises what `pull` raises."""
        return verify_remote(self.objects, version, report)

    def default_version(self) -> str:
        """The version that CURRENT names, else the one with the newest text.

        If the store does not answer, the copies decide. Raises StoreUnreachable if there is no copy either.
        """
        try:
            named = self._ask(self.current)
            if named is not None:
                self._ask(lambda: read_remote(self.objects, named))
                return named
            found = []
            for version in self._ask(self.objects.versions):
                with suppress(IndexCorrupt):
                    found.append(self._ask(partial(read_remote, self.objects, version))[0])
        except StoreUnreachable as error:
            if not self.copies.versions():
                raise
            version = self.copies.default_version()
            logger.warning("%s The copy of %s is served meanwhile.", error, version)
            return version
        if not found:
            raise NoIndexes("store", folder=self.objects.url)
        return max(found, key=age).version

    # --- CURRENT -------------------------------------------------------------------------------------------

    def current(self) -> str | None:
        name = self.objects.current()
        return check_version_name(name) if name is not None else None

    def current_mark(self) -> CurrentMark | None:
        """Asks a store that has not answered just now, too: who follows CURRENT notices first that it is back."""
        return self._ask(self.objects.current_mark, while_away=True)

    def claim_current(self) -> CurrentMark | None:
        return self._ask(self.objects.current_mark) or NO_CURRENT

    def set_current(self, version: str, *, since: CurrentMark | None = None) -> CurrentMark:
        """Make CURRENT in the store name `version`, unless another process has written it.

        That is: since `claim_current` gave `since`, or without one since this call. Raises CurrentConflict,
        UnknownIndex.
        """
        check_version_name(version)
        since = since or self.claim_current()
        self._ask(lambda: read_remote(self.objects, version))
        expected = since if isinstance(since, StoreMark) else None
        return self._ask(lambda: self.objects.write_current(version, expected))

    # --- copies --------------------------------------------------------------------------------------------

    def is_here(self, version: str) -> bool:
        """Whether the copy is what the store has now; any copy will do where the store does not answer."""
        copy = local_info(self.copies, version)
        if copy is None:
            return False
        try:
            return self._ask(lambda: read_remote(self.objects, version))[0] == copy
        except (StoreUnreachable, UnknownIndex):
            # one that the store has no more can still be gone back to
            return True

    def fetch(self, version: str, report: Callable[[float], None]) -> None:
        """Bring a copy here, as `copying.pull` does; older copies give way where the disk is too small for both."""
        try:
            pull(self.objects, self.copies, version, report, self._count)
        except IndexTooLarge:
            # what a stopped pull of this version has left is gone on with
            own = workplace.hidden(self.folder, "pulling", version)
            workplace.remove_dead(set(workplace.hidden(self.folder, "pulling")).difference(own))
            self._tidy(0, ())
            pull(self.objects, self.copies, version, report, self._count)

    def receive(
        self, store: IndexStore, version: str, report: Callable[[float], None], *, replace: bool = False
    ) -> bool:
        return push(self.objects, store, version, report, replace=replace)

    def remove(self, version: str) -> None:
        """As RemoteVersions. Copies stay."""
        available = self.objects.versions()
        if version not in available:
            raise UnknownIndex(version=version, available=available)
        if self.current() == check_version_name(version):
            raise IndexInUse(version=version, reason="CURRENT names it, and services start with it")
        self.objects.remove(version)

    def settle(self, version: str, previous: str | None) -> None:
        """`version` is live: a start without the store is to come back on it, and copies that nobody needs go."""
        try:
            self.copies.set_current(version)
            with suppress(OpenbookError):
                (self.copies.find(version)).touch()
            self._tidy(self._keep, (version, previous))
        except (OpenbookError, OSError) as error:
            logger.warning("the folder of copies could not be tidied: %s", error)

    def _tidy(self, keep: int, needed: tuple[str | None, ...]) -> None:
        """Remove the copies that were live longest ago, but for so many.

        Spares `needed`, what CURRENT in the folder names, what a process has open, and what the store lacks.
        """
        copies = self.copies.versions()
        ages = {version: (self.folder / version).stat().st_mtime for version in copies}
        n_left = len(copies)
        for version in sorted(copies, key=lambda version: ages[version]):
            if n_left <= keep:
                break
            with suppress(OpenbookError):
                if version in needed or self.copies.is_in_use(version) or not self._is_in_store(version):
                    continue
                delete_version(self.copies, version)
                n_left -= 1
                logger.info("removed the copy of %s", version)
        prune(self.copies, older_than_s=0.0)

    def _is_in_store(self, version: str) -> bool:
        return self._ask(lambda: read_remote(self.objects, version))[0] == local_info(self.copies, version)


def _raised(found: IndexInfo | IndexCorrupt) -> IndexInfo:
    """`found`; raises it where it is an error."""
    if isinstance(found, IndexCorrupt):
        raise found.with_traceback(None)
    return found
