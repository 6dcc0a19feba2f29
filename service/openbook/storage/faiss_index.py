"""FAISS: the index of passage vectors, searched for the largest inner product (section 2.2, MIPS).

FAISS brings an OpenMP runtime of its own beside torch's, so each call says how many threads it may take and puts
the number back. The setting belongs to the calling thread: two questions in two threads do not disturb each other.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from openbook.errors import IndexCorrupt
from openbook.storage.faiss_factory import FAISS, LISTS, core_of, essence, not_served, type_of
from openbook.storage.faiss_factory import IndexType as IndexType
from openbook.storage.faiss_parts import defect_of, mapped_parts
from openbook.storage.faiss_selection import Selection, scan_parameters
from openbook.storage.manifest import INDEX_FILE, MASKED_FILE, is_lossy
from openbook.storage.mapped import Mapped, checked_rows
from openbook.storage.search_parameters import EF_SEARCH, HNSW_EF_SEARCH, NPROBE
from openbook.storage.warming import touch

# Of the graph through which the nearest lists are found; not what the file says, which may be damaged.
CENTRES_EF = 64
# Where a share p of the rows is allowed, a search is 1 / p to the power of this as wide: candidates of a walk, which
# counts only where it has found enough rows, and lists, which then hold as many allowed rows as without a filter.
WALK_WIDENS, LISTS_WIDEN = 0.5, 1.0
# Of the candidates that a search is to look at, so many hold vectors that are not masked.
LEAST_UNMASKED = 0.75
# FAISS has one limit on the arrays that it reads for the whole process.
_READING = threading.Lock()


@contextmanager
def allowed_threads(number: int) -> Iterator[None]:
    """FAISS may take so many threads for the calls of this thread; then as before."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(number)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


@contextmanager
def no_array_larger_than(n_bytes: int) -> Iterator[None]:
    """Refuse a damaged length instead of asking the system for as much memory."""
    with _READING:
        before = faiss.get_deserialization_vector_byte_limit()
        faiss.set_deserialization_vector_byte_limit(n_bytes)
        try:
            yield
        finally:
            faiss.set_deserialization_vector_byte_limit(before)


def read_mapped(path: Path) -> Any:
    """What FAISS finds in a file, mapped; nothing in it has been looked at. Raises what FAISS and the system raise.

    IO_FLAG_MMAP_IFC is the flag that maps vectors, codes, lists and graphs alike, whatever the kind of index;
    IO_FLAG_MMAP maps the lists of IVF alone and reads everything else.
    """
    with no_array_larger_than(path.stat().st_size):
        return faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC | faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE)


def read_whole(path: Path) -> Any:
    """The index in memory, to be added to. Raises what `read_mapped` does."""
    with no_array_larger_than(path.stat().st_size):
        return faiss.read_index(str(path), faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE)


class FaissIndex(Mapped[Any]):
    """An index of N vectors of d dimensions, mapped from a file or built in memory. Reading never changes it.

    FAISS's HNSW deletes nothing. So an update of one keeps the vectors that went, and `masked` (M,) are their places
    in the index, rising. No search finds them: row i of this class is the i-th place that is not masked.
    """

    def __init__(self, index: Any, *, version: str, masked: NDArray[np.int64] | None = None) -> None:
        super().__init__(index, version=version)
        self._masked = np.empty(0, dtype=np.int64) if masked is None else masked  # (M,)
        # how many rows come before each masked place
        self._before = self._masked - np.arange(len(self._masked))  # (M,)
        self.n_vectors: int = index.ntotal - len(self._masked)
        self.dimension: int = index.d
        self.index_type: IndexType = type_of(index)
        core = core_of(index)
        self.n_lists: int = core.nlist if isinstance(core, LISTS) else 0
        self.has_graph: bool = hasattr(core, "hnsw")
        # FAISS searches plain PQ codes among all rows alone
        self.can_choose: bool = not isinstance(core, faiss.IndexPQ)
        # how many candidates were looked at when a vector was linked
        self.ef_construction: int | None = core.hnsw.efConstruction if self.has_graph else None
        self._unmasked = None
        if len(self._masked):
            self._unmasked = Selection(self._in_places(np.ones(self.n_vectors, dtype=np.bool_)))

    @classmethod
    def open(cls, path: Path, *, version: str, masked: NDArray[np.int64] | None = None) -> "FaissIndex":
        """Map the file. Raises IndexCorrupt for what FAISS cannot read, and for an index that is not served.

        Centres, rotations and codewords are read; they are small.
        """
        try:
            index = read_mapped(path)
        except (RuntimeError, MemoryError, OSError) as error:
            # OSError: the file may have gone since it was looked at, where its version is published again
            raise IndexCorrupt("file", version=version, file=INDEX_FILE, reason=essence(error, path)) from error
        defect = not_served(index)
        if defect is not None:
            raise IndexCorrupt("file", version=version, file=INDEX_FILE, reason=defect)
        if masked is not None and not (np.diff(masked, prepend=-1, append=index.ntotal) > 0).all():
            raise IndexCorrupt("file", version=version, file=MASKED_FILE, reason="its places are not those of an index")
        try:
            return cls(index, version=version, masked=masked)
        except MemoryError as error:
            # a damaged count, which nothing has compared yet
            raise IndexCorrupt(
                "file", version=version, file=INDEX_FILE, reason=f"it has {index.ntotal} rows"
            ) from error

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        least: int | None = None,
        parameters: Mapping[str, int] | None = None,
        allowed: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.int64]:
        """Rows of the k largest inner products, as far as the index can tell, for each of `queries` (Q, d): (Q, k).

        Best first. Needs 1 <= k <= N. Flat is exact. A graph looks at `parameters["efSearch"]` candidates, at least
        k; lists are looked at as many as `parameters["nprobe"]` says. A query for which fewer than `least` rows (None:
        k) are reached is answered by looking at all vectors, so that so many entries are rows; what is missing of the
        others is -1. Raises ValueError for a query that is not finite.

        With `allowed` (N,) only rows for which it is true are found, and at least k of those are needed. Then a graph
        and lists are searched more widely, all of them where that is not enough: faiss_selection.py says when. It
        needs `can_choose`.
        """
        index = self._still_open()
        least = k if least is None else least
        queries = np.ascontiguousarray(queries, dtype=np.float32)  # (Q, d)
        if not np.isfinite(queries).all():
            raise ValueError("a query vector is not finite")
        chosen = self._unmasked if allowed is None else Selection(self._in_places(allowed))
        with allowed_threads(1):
            if self.has_graph:
                ef_search = (parameters or {}).get(EF_SEARCH, HNSW_EF_SEARCH)
                if chosen is not None and allowed is None:
                    found = self._walk_past(index, queries, k, least, ef_search, chosen)
                else:
                    found = self._walk(index, queries, k, least, ef_search, chosen)
            elif self.n_lists:
                found = self._look_up(index, queries, k, least, (parameters or {}).get(NPROBE, 1), chosen)
            else:
                _, found = index.search(queries, k, params=scan_parameters(index, chosen))  # (Q, k)
        places = np.asarray(found, dtype=np.int64)  # (Q, k)
        # -1, for none, comes before every place
        return places - np.searchsorted(self._masked, places)

    def vectors(self, rows: Sequence[int]) -> NDArray[np.float32]:
        """The vectors of these rows as they were stored: (n, d). Raises IndexError for a row that is not there.

        Of a flat index or a graph over one: no other has its vectors.
        """
        index = self._still_open()
        if is_lossy(self.index_type):
            raise TypeError(f"an index of type {self.index_type} does not have its vectors")
        # FAISS does not check that a row is there: it reads what lies at that address
        places = self._places(checked_rows(rows, self.n_vectors))
        return np.asarray(index.reconstruct_batch(places), dtype=np.float32)

    def masked_but(self, kept: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The places to mask where only the rows `kept` (N,) stay, rising: (M',)."""
        return np.flatnonzero(~self._in_places(kept))

    def _places(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return rows + np.searchsorted(self._before, rows, side="right")

    def _in_places(self, of_rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """A mask of rows (N,) as a mask of places (N + M,)."""
        if not len(self._masked):
            return of_rows
        of_places = np.zeros(self.n_vectors + len(self._masked), dtype=np.bool_)
        of_places[self._places(np.flatnonzero(of_rows))] = True
        return of_places

    def touch(self, report: Callable[[int], None] | None = None) -> None:
        """Read one byte of every page, so that no question waits for the disk. `report`: see `warming.touch`."""
        index = self._still_open()
        # `index` keeps the mapping until the last of these views has been read
        touch(mapped_parts(index), report)

    def check_links(self) -> None:
        """Raise IndexCorrupt where a search could be led out of the index, which would end the process."""
        defect = defect_of(self._still_open())
        if defect is not None:
            raise IndexCorrupt("file", version=self._version, file=INDEX_FILE, reason=defect)

    def _walk(
        self,
        index: Any,
        queries: NDArray[np.float32],
        k: int,
        least: int,
        ef_search: int,
        chosen: Selection | None,
    ) -> NDArray[np.int64]:
        n_candidates = n_found = max(ef_search, k)
        if chosen is None:
            n_found = k
        else:
            # see faiss_selection.py: it counts where it finds as many allowed rows as there are candidates
            n_candidates = chosen.widened(n_candidates, WALK_WIDENS)
            if chosen.is_few(n_candidates):
                return self._compare(index, queries, k, chosen)
            least = n_found
        walk = FAISS.SearchParametersHNSW(efSearch=n_candidates)
        if chosen is not None:
            walk.sel = chosen.bitmap
        _, found = index.search(queries, n_found, params=walk)  # (Q, n)
        rows = np.asarray(found[:, :k], dtype=np.int64)
        short = np.flatnonzero((found >= 0).sum(axis=1) < least)  # (S,)
        if short.size:
            rows[short] = self._compare(index, queries[short], k, chosen)
        return rows

    def _walk_past(
        self, index: Any, queries: NDArray[np.float32], k: int, least: int, ef_search: int, unmasked: Selection
    ) -> NDArray[np.int64]:
        """As `_walk`, over a graph with masked places: where they crowd a question, it looks at more candidates."""
        wanted = n_candidates = max(ef_search, k)
        if unmasked.is_few(n_candidates):
            return self._compare(index, queries, k, unmasked)
        rows = np.full((len(queries), k), -1, dtype=np.int64)  # (Q, k)
        left = np.arange(len(queries))  # (L,)
        while left.size:
            n_candidates = min(n_candidates, index.ntotal)
            walk = FAISS.SearchParametersHNSW(efSearch=n_candidates)
            _, found = index.search(queries[left], n_candidates, params=walk)  # (L, n)
            counts = (found >= 0) & unmasked.allowed[found]  # (L, n)
            first = np.argsort(~counts, axis=1, kind="stable")[:, :k]  # (L, k)
            some = np.where(np.take_along_axis(counts, first, axis=1), np.take_along_axis(found, first, axis=1), -1)
            # a walk that ends early has seen all that it reaches
            ended = (counts.sum(axis=1) >= LEAST_UNMASKED * wanted) | (found[:, -1] < 0)  # (L,)
            ended |= n_candidates == index.ntotal
            rows[left[ended]] = some[ended]
            left, n_candidates = left[~ended], 2 * n_candidates
        short = np.flatnonzero((rows >= 0).sum(axis=1) < least)  # (S,)
        if short.size:
            rows[short] = self._compare(index, queries[short], k, unmasked)
        return rows

    def _compare(self, index: Any, queries: NDArray[np.float32], k: int, chosen: Selection | None) -> NDArray[np.int64]:
        """The k best by comparing with each vector of a graph: (Q, k)."""
        storage = faiss.downcast_index(index.storage)
        _, found = storage.search(queries, k, params=scan_parameters(storage, chosen))
        return np.asarray(found, dtype=np.int64)

    def _look_up(
        self, index: Any, queries: NDArray[np.float32], k: int, least: int, nprobe: int, chosen: Selection | None
    ) -> NDArray[np.int64]:
        if chosen is not None:
            nprobe, least = chosen.widened(nprobe, LISTS_WIDEN), min(k, chosen.n_rows)
        _, rows = index.search(queries, k, params=self._lists(index, nprobe, chosen))  # (Q, k)
        short = np.flatnonzero((rows >= 0).sum(axis=1) < least)  # (S,)
        if short.size:
            _, rows[short] = index.search(queries[short], k, params=self._lists(index, self.n_lists, chosen))
        return np.asarray(rows, dtype=np.int64)

    def _lists(self, index: Any, nprobe: int, chosen: Selection | None) -> Any:
        nprobe = min(nprobe, self.n_lists)
        lists = FAISS.SearchParametersIVF(nprobe=nprobe)
        if chosen is not None:
            lists.sel = chosen.bitmap
        if isinstance(faiss.downcast_index(core_of(index).quantizer), faiss.IndexHNSW):
            centres = FAISS.SearchParametersHNSW(efSearch=max(CENTRES_EF, 2 * nprobe))
            lists.quantizer_params = centres
        if isinstance(index, FAISS.IndexPreTransform):
            return FAISS.SearchParametersPreTransform(index_params=lists)
        return lists
