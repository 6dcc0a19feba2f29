"""Writes arrays in NumPy's format 1.0, as `storage.vectors` maps them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openbook.errors import SourceInvalid
from openbook.storage.vectors import slices

LARGEST = float(np.finfo(np.float16).max)


def write_vectors(
    path: Path, vectors: NDArray[np.float32], version: str, report: Callable[[int], None] | None = None
) -> None:
    """Write `vectors` (N, d), rounded to float16, as a NumPy array file. `report` receives the rows written so far.

    Raises SourceInvalid for a vector with a number that float16 does not reach.
    """
    n_rows, dimension = vectors.shape
    with path.open("wb") as file:
        head = {"descr": "<f2", "fortran_order": False, "shape": (n_rows, dimension)}
        np.lib.format.write_array_header_1_0(file, head)
        for part in slices(n_rows):
            block = np.asarray(vectors[part])  # (b, d)
            outside = np.flatnonzero(~(np.abs(block) <= LARGEST).all(axis=1))
            if outside.size:
                row = part.start + outside[0]
                raise SourceInvalid(source=version, reason=f"the vector of row {row} is too long for float16")
            file.write(np.ascontiguousarray(block, dtype="<f2").tobytes())
            if report is not None:
                report(part.stop)


def save_array(path: Path, content: NDArray[Any]) -> None:
    """As `numpy.save`, which does not notice that the disk is full when it writes the last bytes of a file."""
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(content))
        file.write(np.ascontiguousarray(content).reshape(-1).view(np.uint8).data)
