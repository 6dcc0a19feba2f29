"""What a build of an index has trained and filled so far, in a folder, so that another process can continue it."""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from openbook.indexing.index_spec import IndexSpec
from openbook.storage import durable

KEY, CENTRES = "building.json", "centres.npz"
SUFFIXES = (".faiss", ".npz", ".json", ".new")
# A hash of so many rows, evenly spread, tells these vectors from others.
PROBED_ROWS = 64


class BuildingWork:
    """The folder; without one, nothing is kept. Its files count only for the same vectors and the same spec.

    Each file is written aside, brought to the disk and renamed: it is there wholly or not at all.
    """

    def __init__(self, folder: Path | None, spec: IndexSpec, vectors: NDArray[np.float32]) -> None:
        self._folder = folder
        self.resumed = False
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        key = _key(spec, vectors)
        path = folder / KEY
        if not path.is_file() or path.read_text(encoding="utf-8", errors="replace") != key:
            forget(folder)
            folder.mkdir(parents=True, exist_ok=True)
            durable.write_atomically(path, key)

    def load(self, name: str) -> Any | None:
        """The saved index; None if there is none, or if it cannot be read."""
        if self._folder is None or not (self._folder / name).is_file():
            return None
        try:
            index = faiss.read_index(str(self._folder / name))
        except (RuntimeError, MemoryError):
            return None
        self.resumed = True
        return index

    def save(self, index: Any, name: str) -> None:
        self._write(name, lambda path: faiss.write_index(index, str(path)))

    def load_centres(self) -> tuple[int, NDArray[np.float32] | None]:
        """The number of rounds, and the centres after the last: (L, d)."""
        if self._folder is None:
            return 0, None
        try:
            with np.load(self._folder / CENTRES, allow_pickle=False) as found:
                return int(found["rounds"]), np.ascontiguousarray(found["centres"], dtype=np.float32)
        except (OSError, ValueError, KeyError, EOFError):
            return 0, None

    def save_centres(self, rounds: int, centres: NDArray[np.float32]) -> None:
        def write(path: Path) -> None:
            with path.open("wb") as file:
                np.savez(file, rounds=np.int64(rounds), centres=centres)

        self._write(CENTRES, write)

    def _write(self, name: str, write: Callable[[Path], None]) -> None:
        if self._folder is None:
            return
        aside = self._folder / f"{name}.new"
        write(aside)
        durable.sync_file(aside)
        aside.replace(self._folder / name)
        durable.sync_folder(self._folder)


def forget(folder: Path) -> None:
    """Remove what a build left in its folder, and the folder if nothing else is in it."""
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        if path.suffix in SUFFIXES and path.is_file():
            path.unlink(missing_ok=True)
    with suppress(OSError):  # it holds other files
        folder.rmdir()


def _key(spec: IndexSpec, vectors: NDArray[np.float32]) -> str:
    rows = np.unique(np.linspace(0, vectors.shape[0] - 1, PROBED_ROWS).astype(np.int64))  # (r,)
    probed = hashlib.sha256(np.ascontiguousarray(vectors[rows]).tobytes()).hexdigest()
    return json.dumps(
        {
            "factory": spec.factory,
            "build": dict(spec.build),
            "search": dict(spec.search),
            "shape": list(vectors.shape),
            "vectors": probed,
            "faiss": faiss.__version__,
        }
    )
