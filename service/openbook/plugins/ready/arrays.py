"""Files of vectors: NumPy's own, and those that DPR publishes as wikipedia_passages_0 ... _49."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from openbook.errors import SourceInvalid
from openbook.plugins.ready.engine import Block
from openbook.plugins.ready.restricted_pickle import read_vectors


class VectorFiles:
    """The vectors of `.npy` files, or of pickles of (id, vector), read by `restricted_pickle`.

    NumPy's files hold no ids, so their order must be the passages' own. One pickle is in memory at a time, 1.3 GB of
    DPR's; arrays are mapped.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        """The files in this order; a folder stands for its files, by the last number in their names.

        Raises SourceInvalid for no file, and for one without vectors.
        """
        self._files = [file for path in paths for file in (_files_in(path) if path.is_dir() else [path])]
        if not self._files:
            raise SourceInvalid(source=", ".join(map(str, paths)) or "--vectors", reason="there is no file")
        for file in self._files:
            if not file.is_file():
                raise SourceInvalid(source=str(file), reason="there is no such file")
        self.name = self._files[0].name
        self._are_arrays = all(file.suffix == ".npy" for file in self._files)
        self._first = self._read(self._files[0])
        self.dimension = int(self._first[1].shape[1])
        if self._are_arrays:
            # mapping costs nothing: every file is checked now
            for _ in self.blocks():
                pass

    def blocks(self) -> Iterator[Block]:
        for number, file in enumerate(self._files):
            ids, vectors = self._read(file) if number else self._first
            if vectors.shape[1] != self.dimension:
                raise SourceInvalid(source=str(file), reason=f"{vectors.shape[1]} dimensions, before {self.dimension}")
            yield ids, vectors

    def _read(self, file: Path) -> Block:
        return (None, _load(file)) if self._are_arrays else read_vectors(file)


def _load(file: Path) -> NDArray[np.float32]:
    try:
        array: NDArray[np.float32] = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise SourceInvalid(source=str(file), reason=f"no array of NumPy's: {error}") from error
    if array.ndim != 2 or array.dtype.kind != "f":
        raise SourceInvalid(source=str(file), reason=f"an array {array.shape} of {array.dtype}, not (N, d) of floats")
    return np.asarray(array)


def _files_in(folder: Path) -> list[Path]:
    """Files in the order of the last number in their names: _2 is before _10."""

    def place(path: Path) -> tuple[int, str]:
        numbers = re.findall(r"\d+", path.stem)
        return (int(numbers[-1]) if numbers else -1), path.name

    return sorted((path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")), key=place)
