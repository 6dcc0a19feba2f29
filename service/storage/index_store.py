"""The folder of index versions: what is there, opening one, publishing one, and which one is current."""

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from service.entities import IndexInfo, Passage
from service.errors import (
    IndexCorrupt,
    IndexExists,
    IndexInUse,
    IndexUnreadable,
    InvalidVersionName,
    ManifestMissing,
    NoIndexes,
    UnknownIndex,
)
from service.storage import current, workplace
from service.storage.bm25_build import Bm25Parameters
from service.storage.content import check_description, check_shape
from service.storage.current import CurrentMark
from service.storage.faiss_building import SAVE_EVERY_S, Report
from service.storage.faiss_work import forget
from service.storage.index_spec import IndexSpec, choose_index
from service.storage.manifest import MANIFEST, read_manifest
from service.storage.publishing import Description, Filling, write_version
from service.storage.snapshot import Identity, IndexSnapshot
from service.storage.verification import Verification, check_compatible, check_files, open_checked

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
        aside = {workplace.version_of(path) for path in workplace.hidden(self.folder, None, "replaced")}
        names |= {version for version in aside if workplace.replaced(self.folder, version) is not None}
        return tuple(sorted(names))

    def info(self, version: str) -> IndexInfo:
        """The manifest. Raises InvalidVersionName, UnknownIndex, ManifestMissing, ManifestInvalid."""
        check_version_name(version)
        for _ in range(ATTEMPTS - 1):
            try:
                return read_manifest(self._find(version), version)
            except (UnknownIndex, ManifestMissing):
                continue
        return read_manifest(self._find(version), version)

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

    def publish(
        self,
        version: str,
        *,
        vectors: NDArray[np.float32],
        passages: Iterable[Passage],
        encoder_name: str,
        encoder_fingerprint: str,
        spec: IndexSpec | None = None,
        index_type: str = "flat",
        snapshot_date: str | None = None,
        source: str = "",
        licence: str = "",
        attribution: str = "",
        replace: bool = False,
        work: Path | None = None,
        report: Report | None = None,
        n_threads: int | None = None,
        save_every_s: float = SAVE_EVERY_S,
        bm25: Bm25Parameters | None = None,
        adopted: Path | None = None,
    ) -> IndexInfo:
        """Write a version: row i is `vectors[i]` (N, d) and the i-th passage. It is there wholly or not at all.

        `vectors` may be a memory map larger than memory, float32 or float16: it is read in slices. `passages` are read
        once and may be a stream. The index is what `spec` says, or of `index_type` with our numbers; or `adopted`, a
        FAISS file of which `spec` is that of `faiss_adopting.adoptable`.

        Everything is written in a hidden folder, brought to the disk and moved into place by one rename. With
        `replace` a version of that name may be there already; whoever has it open goes on reading the old one.
        `work` is a folder of this publishing alone: what FAISS has trained and filled is kept there between attempts,
        saved no more often than every `save_every_s`, and removed once the version is there. `report` is told done,
        total and what: "passages", "vectors", "train", "add", "compare", "probe", "bm25", "checksum". With `bm25` its
        scores lie beside. Raises IndexExists, InvalidVersionName, SettingInvalid for an index type that cannot hold so
        many passages, SourceInvalid for passages that no index can hold, or a file that is none of these vectors.
        """
        self.check_free(version, replace=replace)
        check_description(version, snapshot_date)
        check_shape(version, vectors)
        if bm25 is not None:
            bm25.check()
        spec = spec or choose_index(
            index_type, n_passages=max(1, vectors.shape[0]), dimension=vectors.shape[1], memory_bytes=None
        )
        description = Description(encoder_name, encoder_fingerprint, snapshot_date, source, licence, attribution)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._restore(version)
        with workplace.building(self.folder, version) as place:
            filling = Filling(work, report, n_threads, save_every_s, adopted)
            info = write_version(place, version, vectors, passages, spec, description, filling, bm25)
            if replace and (self.folder / version).exists():
                workplace.replace(place, self.folder / version, version)
            else:
                self._install(place, version)
        if work is not None:
            forget(work)
        return info

    def check_free(self, version: str, *, replace: bool = False) -> None:
        """Raise IndexExists where `publish` would, before hours are spent on vectors."""
        check_version_name(version)
        taken = os.path.lexists(self.folder / version)
        if not replace and (taken or workplace.replaced(self.folder, version) is not None):
            raise IndexExists(version=version)

    def delete(self, version: str) -> None:
        """Remove a version. Whoever has it open goes on reading; nobody opens it from here on, come what may.

        Raises UnknownIndex, and IndexInUse for the version that CURRENT names and for one that is being published.
        """
        place = self._find(version)
        if workplace.is_being_built(self.folder, version):
            raise IndexInUse(version=version, reason="it is being published")
        self._check_not_current(version)
        aside = workplace.set_aside(place, version)
        try:
            # CURRENT may have come to name it between the look and the rename
            self._check_not_current(version)
        except IndexInUse:
            aside.rename(self.folder / version)
            raise
        workplace.remove_replaced(self.folder, version)
        workplace.remove_deleted(self.folder, version)

    def current(self) -> str | None:
        """The version that CURRENT names; None without one. Raises InvalidVersionName for what is no name."""
        name = current.read(self.folder)
        return check_version_name(name) if name is not None else None

    def set_current(self, version: str) -> CurrentMark:
        """Make `version` the one that services come back on. Raises UnknownIndex where it is not published."""
        self._find(version)
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
            self._find(named)
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
                found = read(self._find(version), info)
            except IndexCorrupt:
                if attempt == ATTEMPTS or self._place(version) == place:
                    raise
                continue
            if self._place(version) == place:
                return found
            if undo is not None:
                undo(found)
        raise IndexUnreadable(version=version, file=MANIFEST, reason="it is being published again and again")

    def _find(self, version: str) -> Path:
        """The folder of a version. A symbolic link is none: it could lead anywhere."""
        path = self.folder / check_version_name(version)
        if path.is_dir() and not path.is_symlink():
            return path
        found = workplace.replaced(self.folder, version)
        if found is None:
            raise UnknownIndex(version=version, available=self.versions())
        return found

    def _place(self, version: str) -> tuple[int, int] | None:
        """What changes whenever the name is given to another folder; None in the moment between two renames."""
        try:
            found = self._find(version).stat()
        except (FileNotFoundError, UnknownIndex):
            return None
        return found.st_ino, found.st_ctime_ns

    def _check_not_current(self, version: str) -> None:
        if current.read(self.folder) == version:
            raise IndexInUse(version=version, reason="CURRENT names it, so that services come back on it")

    def _restore(self, version: str) -> None:
        """Put back a version whose publisher died between two renames; clear what it would have cleared."""
        aside = workplace.replaced(self.folder, version)
        if aside is not None and not (self.folder / version).exists():
            aside.rename(self.folder / version)
        workplace.remove_replaced(self.folder, version)

    def _install(self, place: Path, version: str) -> None:
        try:
            workplace.install(place, self.folder / version)
        except OSError as error:
            if (self.folder / version).exists():
                raise IndexExists(version=version) from error
            raise


def _age(info: IndexInfo) -> tuple[str, str, str]:
    """Larger for newer text."""
    return info.snapshot_date or "", info.created_at, info.version
