"""Files of vectors: NumPy's own, and those that DPR publishes as wikipedia_passages_0 ... _49."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from openbook.errors import SourceInvalid
from openbook.indexing.building.ready import Block, ReadyVectors
from openbook.indexing.imports.restricted_pickle import read_vectors

BLOCK_ROWS = 4096


def open_vectors(paths: Sequence[Path]) -> ReadyVectors:
    """The vectors of these files, in this order; a folder stands for its files, by the last number in their names.

    Raises SourceInvalid for no file, and for one without vectors.
    """
    files = [file for path in paths for file in (_files_in(path) if path.is_dir() else [path])]
    if not files:
        raise SourceInvalid(source=", ".join(str(path) for path in paths) or "--vectors", reason="there is no file")
    for file in files:
        if not file.is_file():
            raise SourceInvalid(source=str(file), reason="there is no such file")
    return NumpyFiles(files) if all(file.suffix == ".npy" for file in files) else DprFiles(files)


class NumpyFiles:
    """Arrays (n, d), one after the other. They hold no ids, so their order must be the passages' own."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.name = files[0].name
        self._arrays = [_load(file) for file in files]
        self.dimension = int(self._arrays[0].shape[1])
        for file, array in zip(files, self._arrays, strict=True):
            if array.shape[1] != self.dimension:
                raise SourceInvalid(source=str(file), reason=f"{array.shape[1]} dimensions, before {self.dimension}")

    def blocks(self) -> Iterator[Block]:
        for array in self._arrays:
            for start in range(0, len(array), BLOCK_ROWS):
                yield None, array[start : start + BLOCK_ROWS]  # (b, d)


class DprFiles:
    """Pickles of (id, vector), read by `restricted_pickle`. Holds one file in memory, 1.3 GB for DPR's."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files
        self.name = files[0].name
        self._first = read_vectors(files[0])
        self.dimension = int(self._first[1].shape[1])

    def blocks(self) -> Iterator[Block]:
        for number, file in enumerate(self._files):
            ids, vectors = read_vectors(file) if number else self._first
            if vectors.shape[1] != self.dimension:
                raise SourceInvalid(source=str(file), reason=f"{vectors.shape[1]} dimensions, before {self.dimension}")
            yield ids, vectors


def _load(file: Path) -> NDArray[np.float32]:
    try:
        array: NDArray[np.float32] = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise SourceInvalid(source=str(file), reason=f"no array of NumPy's: {error}") from error
    if array.ndim != 2 or array.dtype.kind != "f":
        raise SourceInvalid(source=str(file), reason=f"an array {array.shape} of {array.dtype}, not (N, d) of floats")
    return array


def _files_in(folder: Path) -> list[Path]:
    """Files in the order of the last number in their names: _2 is before _10."""

    def place(path: Path) -> tuple[int, str]:
        numbers = re.findall(r"\d+", path.stem)
        return (int(numbers[-1]) if numbers else -1), path.name

    return sorted((path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")), key=place)
