"""The folder of index versions: what is there, opening one, and which one is current; `placing` writes into it."""

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from filelock import FileLock

from openbook.entities import IndexInfo
from openbook.errors import IndexCorrupt, NoIndexes, UnknownIndex
from openbook.settings import Settings
from openbook.storage import current, durable
from openbook.storage.current import CurrentMark
from openbook.storage.manifest import MANIFEST, Manifest, open_manifest
from openbook.storage.snapshot import Identity, IndexSnapshot
from openbook.storage.verification import (
    Verification,
    check_compatible,
    check_files,
    check_opened,
    open_checked,
)

T = TypeVar("T")

VERSION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
LOCK = ".lock"
LOCK_S = 60.0


def check_version_name(version: str) -> str:
    """`version` itself; raises UnknownIndex for what could not be, or could leave, a folder of versions."""
    if not VERSION_NAME.fullmatch(version):
        raise UnknownIndex("name", version=version)
    return version


class IndexStore:
    """A folder that holds CURRENT and for each version `<version>/manifest.json`, which names the version's files.

    Several processes may read and publish at once; every call looks at the folder. Who changes which version a name
    or CURRENT leads to holds `lock`; another user's processes may take it too. The vectors of versions may lie in
    databases that `settings` allow, and nowhere else.
    """

    def __init__(self, folder: Path, settings: Settings | None = None) -> None:
        self.folder = folder
        self.settings = settings
        # set: what waits for a network ends soon
        self.ending = threading.Event()
        self.lock = FileLock(folder / LOCK, timeout=LOCK_S, poll_interval=0.01)

    def versions(self) -> tuple[str, ...]:
        """Names of the published versions, sorted: no half-written one, and none that may not be looked into.

        Raises IndexCorrupt.
        """
        try:
            if not self.folder.is_dir():
                return ()
            return tuple(sorted(path.name for path in self.folder.iterdir() if _is_version(path)))
        except OSError as error:
            raise IndexCorrupt("folder", reason=error.strerror) from error

    def info(self, version: str) -> IndexInfo:
        """The manifest. Raises UnknownIndex, IndexCorrupt."""
        return open_manifest(self.find(version), version).info

    def info_now(self, version: str) -> IndexInfo:
        """As `info`, for a swap: never what was there some seconds ago."""
        return self.info(version)

    def end(self) -> None:
        """End what waits for a network, here and in other threads; the service ends."""
        self.ending.set()

    def open(
        self,
        version: str,
        *,
        encoder_fingerprint: str | None = None,
        dimension: int | None = None,
    ) -> IndexSnapshot:
        """Map a version whose sizes, counts and dimension are those of its manifest; in milliseconds.

        Where they are given, the checkpoint's encoder and its dimension must be those of the index. Raises
        IndexIncompatible for others, IndexCorrupt for each thing that can be wrong, and IndexUnreachable for a database
        that does not answer.
        """

        def read(manifest: Manifest) -> IndexSnapshot:
            check_compatible(manifest.info, encoder_fingerprint, dimension)
            return open_checked(manifest, self.settings)

        return self._read(version, read)

    def check(
        self,
        version: str,
        *,
        verify: Verification = "manifest",
        report: Callable[[float], None] | None = None,
        in_order: Callable[[str], None] | None = None,
    ) -> Identity:
        """Compare a version's files with its manifest; returns which files they are. "checksum" also reads the vectors.

        `report` receives the share of the bytes that "checksum" has read, `in_order` a line for each file that is in
        order. Raises IndexCorrupt for each defect that shows so.
        """

        def compared(manifest: Manifest) -> Identity:
            identity = check_files(manifest, verify, report=report, in_order=in_order, settings=self.settings)
            if verify == "checksum":
                check_opened(manifest, self.settings)
            return identity

        return self._read(version, compared)

    def verify(self, version: str, report: Callable[[str], None] | None = None) -> IndexInfo:
        """Read every byte of a version and compare it with the manifest; `report` gets a line for each file."""
        self.check(version, verify="checksum", in_order=report)
        return open_manifest(self.find(version), version).info

    def file(self, version: str, name: str) -> Path:
        """Where a file of a version lies now."""
        return open_manifest(self.find(version), version).folder / name

    def is_in_use(self, version: str) -> bool:
        """Whether a process, on any machine, has a version open. Raises UnknownIndex, IndexCorrupt."""
        manifest = open_manifest(self.find(version), version)
        with durable.unread(manifest.folder / name for name in manifest.info.files) as unread:
            return not unread

    def find(self, version: str) -> Path:
        """The folder of a version. A symbolic link is none: it could lead anywhere.

        Raises UnknownIndex, and IndexCorrupt where the system does not say.
        """
        path = self.folder / check_version_name(version)
        try:
            is_version = path.is_dir() and not path.is_symlink()
        except OSError as error:
            raise IndexCorrupt("file", version=version, file=version, reason=error.strerror) from error
        if not is_version:
            raise UnknownIndex(version=version, available=self.versions())
        return path

    def current(self) -> str | None:
        """The version that CURRENT names; None without one. Raises UnknownIndex, IndexCorrupt."""
        name = current.read(self.folder)
        return check_version_name(name) if name is not None else None

    def claim_current(self) -> CurrentMark | None:
        """What `set_current` takes as `since`. None: in a folder the last writer of CURRENT counts."""
        return None

    def set_current(self, version: str, *, since: CurrentMark | None = None) -> CurrentMark:
        """Make `version` the one that services come back on. Raises UnknownIndex where it is not published."""
        self.find(version)
        with self.lock:
            # a deletion may have held the lock
            self.find(version)
            return current.write(self.folder, version)

    def current_mark(self) -> CurrentMark | None:
        """Changes whenever CURRENT is written, and is had without reading it; None where there is no CURRENT."""
        return current.mark(self.folder)

    def is_here(self, version: str) -> bool:
        """Whether `open` would open what is published now; otherwise `fetch` comes first."""
        return True

    def fetch(self, version: str, report: Callable[[float], None]) -> None:
        """Bring a version to where `open` finds it. `report` receives the share that is done, and may raise."""

    def settle(self, version: str, previous: str | None) -> None:
        """Called after a swap. A remote store may now delete its local copies of older versions."""

    def newest_first(self) -> tuple[str, ...]:
        """The versions whose manifest can be read, the one with the newest text first."""
        return tuple(info.version for info in sorted(self._readable()[0], key=age, reverse=True))

    def default_version(self) -> str:
        """The version that CURRENT names, else the one with the newest text.

        Raises UnknownIndex where CURRENT names a version that is gone: another one in its place would hide that.
        Raises NoIndexes, or why the only version cannot be read.
        """
        named = self.current()
        if named is not None:
            self.find(named)
            return named
        readable, defect = self._readable()
        if not readable:
            raise defect or NoIndexes(folder=self.folder)
        return max(readable, key=age).version

    def _readable(self) -> tuple[list[IndexInfo], IndexCorrupt | None]:
        """Manifests, and the last defect of one that cannot be read. Skips a version that is deleted meanwhile."""
        readable: list[IndexInfo] = []
        defect = None
        for version in self.versions():
            try:
                readable.append(self.info(version))
            except IndexCorrupt as error:
                defect = error
            except UnknownIndex:
                continue
        return readable, defect

    def _read(self, version: str, read: Callable[[Manifest], T]) -> T:
        """Read the files that the manifest names; once more where it was replaced before they were open."""
        first = open_manifest(self.find(version), version)
        try:
            return read(first)
        except IndexCorrupt:
            second = open_manifest(self.find(version), version)
            if second.mark == first.mark:
                raise
        return read(second)


def _is_version(path: Path) -> bool:
    try:
        return bool(VERSION_NAME.fullmatch(path.name)) and not path.is_symlink() and (path / MANIFEST).is_file()
    except OSError:
        # another user's folder, say: the other versions are listed all the same
        return False


def age(info: IndexInfo) -> tuple[str, str, str]:
    """Larger for newer text."""
    return info.snapshot_date or "", info.created_at, info.version
