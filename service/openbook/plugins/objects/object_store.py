"""A folder of index versions in an object store: its names, manifests, files and CURRENT.

The layout is that of a folder on a disk, so a folder that was copied to a store is one. Every call asks the store
again.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex

from openbook.errors import CurrentConflict, IndexCorrupt
from openbook.storage.current import CURRENT, StoreMark
from openbook.storage.current import MOST_BYTES as MOST_CURRENT_BYTES
from openbook.storage.index_store import VERSION_NAME
from openbook.storage.manifest import MANIFEST, MOST_BYTES

Report = Callable[[int], None]


class Conflict(Exception):
    """The object is not, or no longer, what a conditional write expects."""


class ObjectStore(ABC):
    """The versions below `url`. Safe to call from any thread.

    Every method raises StoreUnreachable where the store does not answer, or refuses, and once `ending` is set. No error
    and no log line may hold a credential. A path is `<version>/<file>`, or a name without a folder.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        # set: calls under way fail soon, and later ones at once
        self.ending = threading.Event()

    # --- what a plug-in brings -----------------------------------------------------------------------------

    @abstractmethod
    def marks(self) -> dict[str, StoreMark]:
        """The paths of all objects, each with its mark."""

    @abstractmethod
    def mark(self, path: str) -> StoreMark | None:
        """Changes whenever the object is written; None where there is none."""

    @abstractmethod
    def size(self, path: str) -> int | None:
        """The bytes of an object; None where there is none."""

    @abstractmethod
    def small(self, path: str, at_most: int) -> bytes | None:
        """The bytes of a small object, of a larger one `at_most` + 1; None where there is none."""

    @abstractmethod
    def read(self, path: str, start: int, end: int, ending: threading.Event | None = None) -> bytes:
        """The bytes from `start` up to `end`: all of them. Raises FileNotFoundError. `ending` ends the call, too."""

    @abstractmethod
    def write(self, path: str, content: bytes, expected: StoreMark | None) -> StoreMark:
        """Write a small object where it is still the one of mark `expected`, None: where there is none.

        Returns the mark of this writing. Raises Conflict.
        """

    @abstractmethod
    def put_file(self, path: str, file: Path, report: Report) -> None:
        """Write an object as a whole. `report` receives how many bytes more are there."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Remove an object, or all below a version's name; nothing happens where there is none."""

    # --- versions ------------------------------------------------------------------------------------------

    def manifests(self) -> dict[str, StoreMark]:
        """The versions with a manifest, sorted, each with the manifest's mark: a push writes it last."""
        found = ((*path.partition("/"), mark) for path, mark in self.marks().items())
        named = {name: mark for name, _, file, mark in found if file == MANIFEST and VERSION_NAME.fullmatch(name)}
        return dict(sorted(named.items()))

    def versions(self) -> tuple[str, ...]:
        """Names of the versions with a manifest, sorted."""
        return tuple(self.manifests())

    def manifest(self, version: str) -> bytes | None:
        """The bytes of a manifest; None where there is none. Raises IndexCorrupt for too many."""
        content = self.small(f"{version}/{MANIFEST}", MOST_BYTES)
        if content is not None and len(content) > MOST_BYTES:
            raise IndexCorrupt("manifest", version=version, reason=f"it has more than {MOST_BYTES:,} bytes")
        return content

    def manifest_mark(self, version: str) -> StoreMark | None:
        """Changes whenever a manifest is written; None where there is none."""
        return self.mark(f"{version}/{MANIFEST}")

    def put_manifest(self, version: str, content: bytes, expected: StoreMark | None) -> None:
        """Make a version visible, or lead its name elsewhere. Raises Conflict where another process was first."""
        self.write(f"{version}/{MANIFEST}", content, expected)

    def remove(self, version: str) -> None:
        """Take a version out of the store: the manifest first, so that no reader begins on half of it."""
        for path in (f"{version}/{MANIFEST}", version):
            self.delete(path)

    # --- CURRENT -------------------------------------------------------------------------------------------

    def current(self) -> str | None:
        """The first line of CURRENT, which may be no version's name; None without a CURRENT."""
        content = self.small(CURRENT, MOST_CURRENT_BYTES)
        if content is None:
            return None
        return next(iter(content.decode(errors="replace").splitlines()), "").strip()

    def current_mark(self) -> StoreMark | None:
        """Changes whenever CURRENT is written; None where there is none."""
        return self.mark(CURRENT)

    def write_current(self, version: str, expected: StoreMark | None) -> StoreMark:
        """Make CURRENT name `version` where it is still the one of mark `expected`; None: where there is none.

        Returns the mark of this writing. Raises CurrentConflict, and then CURRENT names what another process wrote.
        """
        # the second line makes each writing another object, even where it names the same version
        content = f"{version}\nwritten {int(time.time())} {token_hex(8)}\n".encode()
        try:
            return self.write(CURRENT, content, expected)
        except Conflict:
            if self.small(CURRENT, MOST_CURRENT_BYTES) == content:
                # the store has written it, and the answer to that was lost
                return self.mark(CURRENT) or StoreMark("")
            raise CurrentConflict(found=self.current() or "nothing") from None
