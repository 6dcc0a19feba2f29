"""One opened version of the index: its vectors, its passages, its manifest."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openbook.entities import Filter, IndexInfo, Passage
from openbook.errors import (
    CanaryFailed,
    DimensionIncompatible,
    FilterMatchesNothing,
    IndexFileSizeWrong,
    InvalidRequest,
    RetrieverUnavailable,
    TooManyDocs,
)
from openbook.storage.bm25_index import Bm25Index
from openbook.storage.durable import FileMark
from openbook.storage.faiss_index import FaissIndex, read_learned
from openbook.storage.faiss_parts import Graph
from openbook.storage.filters import Filtering
from openbook.storage.manifest import INDEX_FILE, is_lossy, resident_bytes
from openbook.storage.passages import PassageFile
from openbook.storage.search_parameters import MOST_CANDIDATES, N_CANDIDATES, search_parameters
from openbook.storage.vectors import SLICE_ROWS, VectorFile, slices

# Two ways to add up one inner product in float32 differ by less than this share of it.
CANARY_TOLERANCE = 1e-4
# Of an index that proposes rows by short codes: among many near ones it may miss the vector itself.
LOSSY_TOLERANCE = 0.1
# A mask of a million passages takes 2 to 23 ms, where a search of their graph takes 1 ms, and filters come again. The
# newest masks are kept, a byte a passage, and one in any case.
MOST_MASKS, MASK_BYTES = 16, 1 << 26
# The marks of the manifest and of each file: equal where the very same files are meant.
Identity = tuple[FileMark, ...]


class IndexSnapshot:
    """What a question reads from. It never changes: not by a search, and not when its version is published again.

    Any number of threads may read at once. `close` lets go of the mapping; a search that is then under way ends
    well, and a later one raises IndexNotResident.
    """

    def __init__(
        self,
        info: IndexInfo,
        index: FaissIndex,
        passages: PassageFile,
        *,
        folder: Path = Path(),
        identity: Identity = (),
        bm25: Bm25Index | None = None,
        vectors: VectorFile | None = None,
        held: ExitStack | None = None,
    ) -> None:
        self.info = info
        self.identity = identity
        self._folder = folder
        self._index = index
        self._passages = passages
        self._bm25 = bm25
        self._vectors = vectors
        self._held = held or ExitStack()
        n_masks = min(MOST_MASKS, MASK_BYTES // max(1, info.n_passages))
        self._mask = lru_cache(max(1, n_masks))(Filtering(passages, info.version).mask)

    def __len__(self) -> int:
        return self.info.n_passages

    @property
    def ef_construction(self) -> int | None:
        """How many candidates were looked at when a vector of the graph was linked; None without a graph."""
        return self._index.ef_construction

    def graph(self) -> Graph:
        """The links of an index of type hnsw. Raises IndexUnreadable for a damaged graph."""
        self.check_whole()
        return self._index.graph()

    def learned(self) -> Any:
        """An empty FAISS index that has learned what this one has: a rotation, centres, codewords.

        Raises IndexUnreadable for a damaged index.
        """
        self.check_whole()
        self._index.check_links()
        return read_learned(self._folder / INDEX_FILE)

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        parameters: Mapping[str, int] | None = None,
        threads: int = 1,
        allowed: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.int64]:
        """Rows of the k passages with the largest inner product, best first: (Q, d) -> (Q, k).

        Every entry is a row of this index; with `allowed` (N,) one for which it is true, and all of these where they
        are fewer than k. `parameters` are efSearch, nprobe or candidates for this call in place of
        the manifest's. A lossy index proposes `candidates` rows; their order, and which k of them are kept, is that
        of the exact inner products with the stored vectors. One thread by default: answering is parallel over
        questions, not within a search. Raises TooManyDocs for k above the number of passages, InvalidRequest for a
        parameter that the index does not have, DimensionIncompatible for vectors of another length.
        """
        if k < 1:
            raise InvalidRequest(field="n_docs", reason=f"at least 1 is needed, not {k}")
        if k > len(self):
            raise TooManyDocs(n_docs=k, version=self.info.version, n_passages=len(self))
        self._check_dimension(queries)
        self.check_whole()
        chosen = search_parameters(self.info, parameters, n_lists=self._index.n_lists, has_graph=self._index.has_graph)
        n_rows = len(self) if allowed is None else int(np.count_nonzero(allowed))
        k = min(k, n_rows)
        if not k:
            return np.empty((len(queries), 0), dtype=np.int64)
        if self._vectors is None:
            return self._index.search(queries, k, parameters=chosen, threads=threads, allowed=allowed)
        n_proposed = min(n_rows, max(k, chosen[N_CANDIDATES]))
        if allowed is not None and n_proposed == n_rows:
            # all are candidates, whatever their codes
            proposed = np.broadcast_to(np.flatnonzero(allowed), (len(queries), n_rows))  # (Q, C)
        else:
            proposed = self._index.search(
                queries, n_proposed, least=k, parameters=chosen, threads=threads, allowed=allowed
            )  # (Q, C)
        return np.stack([self._best(query, rows, k, allowed) for query, rows in zip(queries, proposed, strict=True)])

    def allowed(self, chosen: Filter) -> NDArray[np.bool_]:
        """Which rows pass a filter: (N,), at least one.

        Raises FilterFieldUnknown and FilterTypeWrong for a filter that these passages do not fit, and
        FilterMatchesNothing.
        """
        self.check_whole()
        mask = self._mask(chosen)
        if not mask.any():
            raise FilterMatchesNothing(version=self.info.version)
        return mask

    def vectors(self, rows: Sequence[int]) -> NDArray[np.float32]:
        """The vectors of these rows as stored: (n, d). Raises IndexError for a row that is not there."""
        return self._index.vectors(rows) if self._vectors is None else self._vectors.take(rows)

    def vector_slices(self, slice_rows: int = SLICE_ROWS) -> Iterator[NDArray[np.float32]]:
        """All vectors as stored, in the order of their rows, a slice at a time: (b, d) each."""
        for part in slices(len(self), slice_rows):
            if self._vectors is None:
                yield self._index.vectors(range(part.start, part.stop))
            else:
                yield self._vectors.block(part)

    def passages(self, rows: Sequence[int]) -> tuple[Passage, ...]:
        """The passages of these rows, in this order. Raises IndexError for a row that is not there."""
        self.check_whole()
        return self._passages.take(rows)

    def bm25(self) -> Bm25Index:
        """The BM25 scores of the passages, row by row. Raises RetrieverUnavailable for a version without them."""
        if self._bm25 is None:
            raise RetrieverUnavailable(version=self.info.version)
        self.check_whole()
        return self._bm25

    def resident_bytes(self) -> int:
        """Bytes of memory that this snapshot holds once it is warm: see `manifest.resident_bytes`."""
        return resident_bytes(self.info)

    def warm(self, report: Callable[[float], None] | None = None) -> None:
        """Touch every page, check every link, then find the first, the middle and the last passage by their vectors.

        `report` is told the share of the pages that have been touched. What it raises ends the warm-up.

        Where vectors are not normalised, another passage may rightly come first: then its inner product is at least
        that of the vector with itself. Raises CanaryFailed when it is less, IndexUnreadable for a damaged graph.
        """
        self._touch(report)
        # before the first search: a link that leads astray ends the process
        self._index.check_links()
        if self._bm25 is not None:
            self._bm25.check_offsets()
        for row in sorted({0, len(self) // 2, len(self) - 1}):
            self._check_canary(row)
        self.passages([0, len(self) - 1])

    def check_whole(self) -> None:
        """Raise IndexFileSizeWrong where a file has become shorter since it was mapped.

        To read behind the end of a mapped file ends the process (SIGBUS). This look makes that an error in all cases
        but one: the file shrinks between the look and the reading. A file that was removed or replaced keeps its
        mapped bytes.
        """
        for name, mark in zip(self.info.files, self.identity[1:], strict=False):
            try:
                state = (self._folder / name).stat()
            except OSError:
                continue
            if state.st_ino == mark.inode and state.st_size < mark.size:
                raise IndexFileSizeWrong(version=self.info.version, file=name, found=state.st_size, expected=mark.size)

    def close(self) -> None:
        """Give the memory back. May be called again."""
        self._index.close()
        self._passages.close()
        if self._vectors is not None:
            self._vectors.close()
        if self._bm25 is not None:
            self._bm25.close()
        self._held.close()

    def _best(
        self, query: NDArray[np.float32], rows: NDArray[np.int64], k: int, allowed: NDArray[np.bool_] | None
    ) -> NDArray[np.int64]:
        """Of the rows that the index proposes, -1 being none, the k with the largest exact inner products: (k,)."""
        rows = rows[rows >= 0]  # (c,)
        if len(rows) < k:
            # the index is of no help: (N,)
            rows = np.arange(len(self)) if allowed is None else np.flatnonzero(allowed)
        # in float64, as the scores of the prior: both must see the same order
        scores = [
            self.vectors(rows[part].tolist()).astype(np.float64) @ query.astype(np.float64)
            for part in slices(len(rows))
        ]
        best = np.argsort(-np.concatenate(scores), kind="stable")[:k]  # (k,)
        return np.asarray(rows[best], dtype=np.int64)

    def _check_canary(self, row: int) -> None:
        own = self.vectors([row]).astype(np.float64)  # (1, d)
        lossy = self._vectors is not None
        many = {N_CANDIDATES: MOST_CANDIDATES} if lossy else None
        found = int(self.search(own.astype(np.float32), 1, parameters=many)[0, 0])
        best = self.vectors([found]).astype(np.float64)  # (1, d)
        norm = float((own * own).sum())
        tolerance = LOSSY_TOLERANCE if lossy else CANARY_TOLERANCE
        if float((own * best).sum()) < norm - tolerance * norm:
            raise CanaryFailed(version=self.info.version, row=row, found=found)

    def _touch(self, report: Callable[[float], None] | None) -> None:
        touched = 0

        def count(n_bytes: int) -> None:
            nonlocal touched
            touched += n_bytes
            if report is not None:
                # the files hold a little more than what is mapped from them: their heads and feet
                report(min(1.0, touched / max(1, self.resident_bytes())))

        self.check_whole()
        # beside short codes, text and vectors are meant to stay on the disk
        if not is_lossy(self.info.index_type):
            self._passages.touch(count)
        self._index.touch(count)
        if self._bm25 is not None:
            self._bm25.touch(count)

    def _check_dimension(self, queries: NDArray[np.float32]) -> None:
        found = queries.shape[-1] if queries.ndim == 2 else 0
        if found != self.info.dimension:
            raise DimensionIncompatible(
                version=self.info.version, index_dimension=self.info.dimension, encoder_dimension=found
            )
