"""DPR's published vectors are pickles, and a pickle is a program. Here such a program can only make vectors.

The files hold a list of (passage id, array of float32). Each name that a pickle may call stands for a class of this
module, so that not even NumPy's own code sees untrusted bytes; any other name ends the reading.
"""

import pickle
from pathlib import Path
from typing import Any, Never

import numpy as np
from numpy.typing import NDArray

from openbook.errors import SourceInvalid
from openbook.rag.weights import first_line

FLOATS: dict[str, np.dtype[np.floating[Any]]] = {"f4": np.dtype("<f4"), "f2": np.dtype("<f2"), "f8": np.dtype("<f8")}
LONGEST = 1 << 16


class _Refused(pickle.UnpicklingError):
    """The file holds something else than vectors."""


class _ArrayType:
    """Replaces numpy.ndarray, which such files name and never call."""

    __slots__ = ()

    def __new__(cls, *_: object) -> Never:
        raise _Refused("it makes an array that is no vector")


class _Float:
    """Replaces numpy.dtype: one of three kinds of float."""

    __slots__ = ("dtype",)

    def __init__(self, name: object, *_: object) -> None:
        if not isinstance(name, str) or name.lstrip("<=") not in FLOATS:
            raise _Refused(f"numbers of type {name!r:.40}")
        self.dtype: np.dtype[np.floating[Any]] = FLOATS[name.lstrip("<=")]

    def __setstate__(self, state: object) -> None:
        # version, byte order, then nothing but for structured numbers
        if not isinstance(state, tuple) or len(state) < 5 or state[1] not in ("<", "=") or any(state[2:5]):
            raise _Refused("numbers of another byte order, or with a structure")


class _Vector:
    """Replaces numpy's _reconstruct: an array of one dimension that its state fills."""

    __slots__ = ("values",)

    def __init__(self, *_: object) -> None:
        self.values: NDArray[np.floating[Any]] | None = None

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise _Refused("an array without a state")
        _, shape, kind, _, content = state
        if not isinstance(kind, _Float) or not isinstance(content, bytes) or not isinstance(shape, tuple):
            raise _Refused("an array that is none of floats")
        if len(shape) != 1 or not isinstance(shape[0], int) or not 0 < shape[0] <= LONGEST:
            raise _Refused(f"an array of shape {shape!r:.40}")
        if len(content) != shape[0] * kind.dtype.itemsize:
            raise _Refused("an array of another length than its shape")
        self.values = np.frombuffer(content, dtype=kind.dtype)  # (d,)


def _from_buffer(content: object, kind: object, shape: object, *_: object) -> _Vector:
    """Replaces NumPy's _frombuffer, which protocol 5 writes arrays with."""
    vector = _Vector()
    vector.__setstate__((1, shape, kind, False, bytes(content) if isinstance(content, bytearray) else content))
    return vector


NAMES: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _ArrayType,
    ("numpy", "dtype"): _Float,
    ("numpy.core.multiarray", "_reconstruct"): _Vector,
    ("numpy._core.multiarray", "_reconstruct"): _Vector,
    ("numpy.core.numeric", "_frombuffer"): _from_buffer,
    ("numpy._core.numeric", "_frombuffer"): _from_buffer,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in NAMES:
            raise _Refused(f"it asks for {module}.{name}, which no file of vectors needs")
        return NAMES[module, name]

    def persistent_load(self, _: object) -> Never:
        raise _Refused("it refers to something outside itself")


def read_vectors(path: Path) -> tuple[list[str], NDArray[np.float32]]:
    """The ids and the vectors (N, d) of such a file. No code in it runs.

    Raises SourceInvalid for any other content, hostile or only different.
    """
    try:
        with path.open("rb") as file:
            content = _Unpickler(file).load()
        return _rows_of(content)
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError, IndexError, KeyError) as error:
        raise SourceInvalid(
            source=str(path), reason=f"no file of vectors as DPR publishes them: {first_line(error)}"
        ) from error
    except (OSError, MemoryError, RecursionError, OverflowError) as error:
        raise SourceInvalid(source=str(path), reason=f"it cannot be read: {first_line(error)}") from error


def _rows_of(content: object) -> tuple[list[str], NDArray[np.float32]]:
    if not isinstance(content, list) or not content:
        raise _Refused("it holds no list")
    ids: list[str] = []
    vectors: NDArray[np.float32] | None = None
    for row, pair in enumerate(content):
        if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[0], (str, int)):
            raise _Refused(f"entry {row} is no pair of an id and a vector")
        if not isinstance(pair[1], _Vector) or pair[1].values is None:
            raise _Refused(f"entry {row} has no vector")
        if vectors is None:
            vectors = np.empty((len(content), len(pair[1].values)), dtype=np.float32)  # (N, d)
        if len(pair[1].values) != vectors.shape[1]:
            raise _Refused(f"entry {row} has {len(pair[1].values)} numbers where the first has {vectors.shape[1]}")
        # what float32 does not reach becomes infinite, which is refused where vectors are taken
        with np.errstate(over="ignore"):
            vectors[row] = pair[1].values
        # some of DPR's files put the name of the collection before the id
        ids.append(str(pair[0]).removeprefix("wiki:"))
    if vectors is None:
        raise _Refused("it holds no vector")
    return ids, vectors
