"""FAISS: the index of passage vectors, searched for the largest inner product (section 2.2, MIPS).

FAISS brings an OpenMP runtime of its own beside torch's, so each call says how many threads it may take and puts
the number back. The setting belongs to the calling thread: two questions in two threads do not disturb each other.
"""

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import faiss
import numpy as np
from numpy.typing import NDArray

from service.errors import IndexNotResident, IndexUnreadable
from service.storage.graph import Graph
from service.storage.manifest import INDEX_FILE
from service.storage.warming import touch

IndexType = Literal["flat", "hnsw"]

HNSW_LINKS = 32  # M: links of a vector in the layers above the lowest; twice as many in the lowest
HNSW_EF_CONSTRUCTION = 200  # candidates looked at when a vector is linked
HNSW_EF_SEARCH = 128  # candidates looked at by a search
# FAISS has one limit on the arrays that it reads for the whole process.
READING = threading.Lock()


class FaissIndex:
    """An index of N vectors of d dimensions, read from a file by mapping or built in memory. Reading never changes it.

    A search that runs while `close` is called ends well: the mapping goes when the last user has let go of it.
    """

    def __init__(self, index: Any, *, version: str) -> None:
        self._index: Any = index
        self._version = version
        self.n_vectors: int = index.ntotal
        self.dimension: int = index.d
        self.index_type: IndexType = "hnsw" if isinstance(index, faiss.IndexHNSWFlat) else "flat"

    @classmethod
    def build(
        cls, vectors: NDArray[np.float32], *, index_type: IndexType, version: str, threads: int | None = None
    ) -> "FaissIndex":
        """Index `vectors` (N, d). `threads` is for HNSW's links; None takes one a core.

        A flat index is the same bytes each time. The links of HNSW depend on the order in which threads finish:
        take one thread where two builds must agree to the byte.
        """
        dimension = vectors.shape[1]
        index: Any
        if index_type == "flat":
            index = faiss.IndexFlatIP(dimension)
        else:
            index = faiss.IndexHNSWFlat(dimension, HNSW_LINKS, faiss.METRIC_INNER_PRODUCT)
            index.hnsw.efConstruction = HNSW_EF_CONSTRUCTION
            index.hnsw.efSearch = HNSW_EF_SEARCH
        with _threads(threads or os.cpu_count() or 1):
            index.add(np.ascontiguousarray(vectors, dtype=np.float32))
        return cls(index, version=version)

    def write(self, path: Path) -> None:
        faiss.write_index(self._open_index(), str(path))

    @classmethod
    def open(cls, path: Path, *, version: str) -> "FaissIndex":
        """Map the file. Raises IndexUnreadable for what FAISS cannot read, and for an index of another kind.

        IO_FLAG_MMAP_IFC is the flag that maps flat and HNSW indexes; IO_FLAG_MMAP maps the lists of IVF indexes only
        and reads these two into memory.
        """
        try:
            with _no_array_larger_than(path.stat().st_size):
                index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
        except (RuntimeError, MemoryError, OSError) as error:
            # OSError: the file may have gone since it was looked at, where its version is published again
            raise IndexUnreadable(version=version, file=INDEX_FILE, reason=_essence(error)) from error
        if not isinstance(index, (faiss.IndexFlat, faiss.IndexHNSWFlat)):
            raise IndexUnreadable(version=version, file=INDEX_FILE, reason=f"it is an {type(index).__name__}")
        if index.metric_type != faiss.METRIC_INNER_PRODUCT:
            raise IndexUnreadable(version=version, file=INDEX_FILE, reason="it does not search inner products")
        return cls(index, version=version)

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        parameters: Mapping[str, int] | None = None,
        threads: int = 1,
    ) -> NDArray[np.int64]:
        """Rows of the k largest inner products for each of `queries` (Q, d), best first: (Q, k).

        Needs 1 <= k <= N. Flat is exact. HNSW looks at `parameters["efSearch"]` candidates, at least k; a query for
        which its walk reaches fewer than k vectors is answered by an exact scan, so that every row is a row.
        Raises ValueError for a query that is not finite.
        """
        index = self._open_index()
        queries = np.ascontiguousarray(queries, dtype=np.float32)  # (Q, d)
        if not np.isfinite(queries).all():
            raise ValueError("a query vector is not finite")
        with _threads(threads):
            if self.index_type == "flat":
                _, rows = index.search(queries, k)  # (Q, k)
                return np.asarray(rows, dtype=np.int64)
            ef_search = max((parameters or {}).get("efSearch", HNSW_EF_SEARCH), k)
            candidates = faiss.SearchParametersHNSW(efSearch=ef_search)  # type: ignore[attr-defined]
            _, rows = index.search(queries, k, params=candidates)  # (Q, k)
            short = np.flatnonzero((rows < 0).any(axis=1))  # (S,)
            if short.size:
                _, rows[short] = index.storage.search(queries[short], k)
        return np.asarray(rows, dtype=np.int64)

    def vectors(self, rows: Sequence[int]) -> NDArray[np.float32]:
        """The vectors of these rows as they were stored: (n, d). Raises IndexError for a row that is not there."""
        index = self._open_index()
        wanted = np.asarray(rows, dtype=np.int64)  # (n,)
        # FAISS does not look whether a row is there: it reads what lies at that address.
        outside = wanted[(wanted < 0) | (wanted >= self.n_vectors)]
        if outside.size:
            raise IndexError(f"row {outside[0]} of {self.n_vectors}")
        return np.asarray(index.reconstruct_batch(wanted), dtype=np.float32)

    def touch(self, report: Callable[[int], None] | None = None) -> None:
        """Read one byte of every page, so that no question waits for the disk. `report`: see `warming.touch`."""
        index = self._open_index()
        if self.index_type == "hnsw":
            storage: Any = faiss.downcast_index(index.storage)
            parts = [storage.codes, index.hnsw.neighbors, index.hnsw.offsets]
        else:
            parts = [index.codes]
        # `index` keeps the mapping until the last of these views has been read
        touch([faiss.rev_swig_ptr(part.data(), part.size()).view(np.uint8) for part in parts], report)

    def check_links(self) -> None:
        """Raise IndexUnreadable where a search could be led out of the graph of HNSW, which would end the process."""
        index = self._open_index()
        if self.index_type == "flat":
            return
        hnsw, storage = index.hnsw, faiss.downcast_index(index.storage)
        arrays = {
            name: faiss.rev_swig_ptr(part.data(), part.size())
            for name, part in (("levels", hnsw.levels), ("offsets", hnsw.offsets), ("neighbors", hnsw.neighbors))
        }
        graph = Graph(
            **arrays,
            per_layer=faiss.vector_to_array(hnsw.cum_nneighbor_per_level),
            entry_point=hnsw.entry_point,
            max_level=hnsw.max_level,
        )
        defect = graph.defect()
        if not isinstance(storage, faiss.IndexFlat) or (storage.ntotal, storage.d, storage.metric_type) != (
            self.n_vectors,
            self.dimension,
            faiss.METRIC_INNER_PRODUCT,
        ):
            defect = "its vectors are not those of its graph"
        elif len(graph.levels) != self.n_vectors:
            defect = f"its graph is of {len(graph.levels)} rows where it holds {self.n_vectors}"
        if defect is not None:
            raise IndexUnreadable(version=self._version, file=INDEX_FILE, reason=defect)

    def close(self) -> None:
        """Let go of the mapping. May be called again; searching afterwards raises IndexNotResident."""
        self._index = None

    def _open_index(self) -> Any:
        index = self._index
        if index is None:
            raise IndexNotResident(version=self._version, resident=())
        return index


@contextmanager
def _no_array_larger_than(n_bytes: int) -> Iterator[None]:
    """Refuse a damaged length instead of asking the system for as much memory, where this FAISS can."""
    if not hasattr(faiss, "set_deserialization_vector_byte_limit"):
        yield
        return
    with READING:
        before = faiss.get_deserialization_vector_byte_limit()
        faiss.set_deserialization_vector_byte_limit(n_bytes)
        try:
            yield
        finally:
            faiss.set_deserialization_vector_byte_limit(before)


@contextmanager
def _threads(number: int) -> Iterator[None]:
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(number)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def _essence(error: Exception) -> str:
    """FAISS's own sentence without the C++ signature and source line before it."""
    return str(error).splitlines()[0].rpartition("Error: ")[2] if str(error) else type(error).__name__
