"""A memory-mapped file that can be closed while threads still read it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from openbook.errors import IndexNotResident

T = TypeVar("T")


class Mapped(Generic[T]):
    """Holds a mapping until `close`. A reader that is under way then ends well: it keeps the mapping until it ends."""

    def __init__(self, mapped: T, *, version: str) -> None:
        self._mapped: T | None = mapped
        self._version = version

    def close(self) -> None:
        """Let go of the mapping. May be called again; reading afterwards raises IndexNotResident."""
        self._mapped = None

    def _still_open(self) -> T:
        mapped = self._mapped
        if mapped is None:
            raise IndexNotResident(version=self._version, resident=())
        return mapped


def reason_of(error: Exception, path: Path) -> str:
    """The first line of what an error says of a file, without the folder of the file."""
    first, *_ = [*str(error).splitlines(), type(error).__name__]
    return first.replace(f"{path.parent}/", "")


def checked_rows(rows: Sequence[int] | NDArray[np.int64], n_rows: int) -> NDArray[np.int64]:
    """`rows` as an array (n,). Raises IndexError for one that is not in 0 ... n_rows - 1."""
    wanted = np.asarray(rows, dtype=np.int64)  # (n,)
    outside = wanted[(wanted < 0) | (wanted >= n_rows)]
    if outside.size:
        raise IndexError(f"row {outside[0]} of {n_rows}")
    return wanted
