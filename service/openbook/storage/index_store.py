"""The folder of index versions: what is there, opening one, and which one is current.

`indexing.publishing` writes into it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from openbook.entities import IndexInfo
from openbook.errors import (
    IndexCorrupt,
    IndexUnreadable,
    InvalidVersionName,
    ManifestMissing,
    NoIndexes,
    UnknownIndex,
)
from openbook.storage import current, hidden_folders
from openbook.storage.current import CurrentMark
from openbook.storage.manifest import MANIFEST, read_manifest
from openbook.storage.snapshot import Identity, IndexSnapshot
from openbook.storage.verification import Verification, check_compatible, check_files, open_checked

T = TypeVar("T")

VERSION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
# A version that is published again while it is being read is read again, at most so often.
ATTEMPTS = 10


def check_version_name(version: str) -> str:
    """`version` itself; raises InvalidVersionName for what could not be, or could leave, a folder of versions."""
    if not VERSION_NAME.fullmatch(version):
        raise InvalidVersionName(version=version)
    return version


class IndexStore:
    """A folder that holds `<version>/{manifest.json, index.faiss, passages.arrow}` and CURRENT.

    Several processes may read and publish at once; no state is kept here, every call looks at the folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def versions(self) -> tuple[str, ...]:
        """Names of the published versions, sorted. What is half written is not among them."""
        if not self.folder.is_dir():
            return ()
        names = {
            path.name
            for path in self.folder.iterdir()
            if VERSION_NAME.fullmatch(path.name) and not path.is_symlink() and (path / MANIFEST).is_file()
        }
        aside = {hidden_folders.version_of(path) for path in hidden_folders.hidden(self.folder, None, "replaced")}
        names |= {version for version in aside if hidden_folders.replaced(self.folder, version) is not None}
        return tuple(sorted(names))

    def info(self, version: str) -> IndexInfo:
        """The manifest. Raises InvalidVersionName, UnknownIndex, ManifestMissing, ManifestInvalid."""
        check_version_name(version)
        for _ in range(ATTEMPTS - 1):
            try:
                return read_manifest(self.find(version), version)
            except (UnknownIndex, ManifestMissing):
                continue
        return read_manifest(self.find(version), version)

    def open(
        self,
        version: str,
        *,
        encoder_fingerprint: str | None = None,
        dimension: int | None = None,
        verify: Verification = "manifest",
    ) -> IndexSnapshot:
        """Map a version, checked against its manifest and, where given, against the checkpoint's encoder.

        "manifest" compares sizes, counts and dimension and takes milliseconds; "checksum" reads every byte as well.
        Raises IndexIncompatible for another encoder, and a child of IndexCorrupt for each thing that can be wrong.
        """

        def read(folder: Path, info: IndexInfo) -> IndexSnapshot:
            check_compatible(info, encoder_fingerprint, dimension)
            return open_checked(folder, info, verify)

        return self._steadily(version, read, IndexSnapshot.close)

    def check(
        self, version: str, *, verify: Verification = "manifest", report: Callable[[float], None] | None = None
    ) -> Identity:
        """Compare a version's files with its manifest without opening them; returns which files they are.

        `report` is told the share of the bytes that "checksum" has read. Raises the children of IndexCorrupt that a
        look from outside can find.
        """
        return self._steadily(version, lambda folder, info: check_files(folder, info, verify, report=report))

    def verify(self, version: str, report: Callable[[str], None] | None = None) -> IndexInfo:
        """Read every byte of a version and compare it with the manifest; `report` gets a line for each file."""
        snapshot = self._steadily(
            version, lambda folder, info: open_checked(folder, info, "checksum", report), IndexSnapshot.close
        )
        snapshot.close()
        return snapshot.info

    def current(self) -> str | None:
        """The version that CURRENT names; None without one. Raises InvalidVersionName for what is no name."""
        name = current.read(self.folder)
        return check_version_name(name) if name is not None else None

    def set_current(self, version: str) -> CurrentMark:
        """Make `version` the one that services come back on. Raises UnknownIndex where it is not published."""
        self.find(version)
        return current.write(self.folder, version)

    def current_mark(self) -> CurrentMark | None:
        """What changes whenever CURRENT is written, without reading it; None where there is none."""
        return current.mark(self.folder)

    def newest_first(self) -> tuple[str, ...]:
        """The versions whose manifest can be read, the one with the newest text first."""
        readable = []
        for version in self.versions():
            try:
                readable.append(self.info(version))
            except (IndexCorrupt, UnknownIndex):
                continue
        return tuple(info.version for info in sorted(readable, key=_age, reverse=True))

    def default_version(self) -> str:
        """The version that CURRENT names, else the one with the newest text. Raises NoIndexes, UnknownIndex.

        A CURRENT whose version is gone is an error: to serve another book in its place would be to hide it.
        """
        named = self.current()
        if named is not None:
            self.find(named)
            return named
        readable = []
        defect: IndexCorrupt | None = None
        for version in self.versions():
            try:
                readable.append(self.info(version))
            except IndexCorrupt as error:
                defect = error
        if not readable:
            raise defect or NoIndexes(folder=self.folder)
        return max(readable, key=_age).version

    def _steadily(
        self, version: str, read: Callable[[Path, IndexInfo], T], undo: Callable[[T], None] | None = None
    ) -> T:
        """What `read` makes of the folder of a version and its manifest, again where they were replaced meanwhile."""
        for attempt in range(1, ATTEMPTS + 1):
            place = self._place(version)
            info = self.info(version)
            try:
                found = read(self.find(version), info)
            except IndexCorrupt:
                if attempt == ATTEMPTS or self._place(version) == place:
                    raise
                continue
            if self._place(version) == place:
                return found
            if undo is not None:
                undo(found)
        raise IndexUnreadable(version=version, file=MANIFEST, reason="it is being published again and again")

    def find(self, version: str) -> Path:
        """The folder of a version. A symbolic link is none: it could lead anywhere. Raises UnknownIndex."""
        path = self.folder / check_version_name(version)
        if path.is_dir() and not path.is_symlink():
            return path
        found = hidden_folders.replaced(self.folder, version)
        if found is None:
            raise UnknownIndex(version=version, available=self.versions())
        return found

    def _place(self, version: str) -> tuple[int, int] | None:
        """What changes whenever the name is given to another folder; None in the moment between two renames."""
        try:
            found = self.find(version).stat()
        except (FileNotFoundError, UnknownIndex):
            return None
        return found.st_ino, found.st_ctime_ns


def _age(info: IndexInfo) -> tuple[str, str, str]:
    """Larger for newer text."""
    return info.snapshot_date or "", info.created_at, info.version
