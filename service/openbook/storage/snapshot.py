"""One opened version of the index: its passages, its manifest and, where its subclass says, its vectors."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from openbook.entities import Filter, IndexInfo, Passage, PassageInPlace
from openbook.errors import (
    FilterMatchesNothing,
    IndexCorrupt,
    IndexIncompatible,
    InvalidRequest,
    RetrieverUnavailable,
    UnknownPassage,
)
from openbook.storage.bm25_index import Bm25Index
from openbook.storage.durable import FileMark
from openbook.storage.filters import Filtering
from openbook.storage.manifest import resident_bytes
from openbook.storage.passages import PassageFile
from openbook.storage.search_parameters import MOST_CANDIDATES, N_CANDIDATES, search_parameters
from openbook.storage.vectors import SLICE_ROWS, slices

# Of a passage in its document.
NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
# Two ways to add up one inner product in float32 differ by less than this share of it.
CANARY_TOLERANCE = 1e-4
# Of an index that proposes rows by short codes: among many near ones it may miss the vector itself.
LOSSY_TOLERANCE = 0.1
# A mask of a million passages takes 2 to 23 ms, where a search of their graph takes 1 ms, and filters come again. The
# newest masks are kept, a byte a passage, and one in any case.
MOST_MASKS, MASK_BYTES = 16, 1 << 26
# The marks of the manifest and of each file: equal where the very same files are meant.
Identity = tuple[FileMark, ...]


class Nearest(NamedTuple):
    """The rows of one search, best first, and their exact inner products: of equal ones, the row found first."""

    rows: NDArray[np.int64]  # (K,)
    products: NDArray[np.float64]  # (K,)


class IndexSnapshot(ABC):
    """An open version: search, passages, and warm-up.

    It never changes: not by a search, and not when its version is published again.

    Any number of threads may read at once. `close` lets go of the mapping; a search that is then under way ends
    well, and a later one raises IndexNotResident.
    """

    def __init__(
        self,
        info: IndexInfo,
        passages: PassageFile,
        *,
        folder: Path,
        identity: Identity,
        bm25: Bm25Index | None,
        held: ExitStack,
    ) -> None:
        self.info = info
        self.identity = identity
        self._folder = folder
        self._passages = passages
        self._bm25 = bm25
        self._held = held
        n_masks = min(MOST_MASKS, MASK_BYTES // max(1, info.n_passages))
        self._mask = lru_cache(max(1, n_masks))(Filtering(passages, info.version).mask)

    def __len__(self) -> int:
        return self.info.n_passages

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        parameters: Mapping[str, int] | None = None,
        allowed: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.int64]:
        """The rows of `nearest`: (Q, d) -> (Q, k)."""
        found = self.nearest(queries, k, parameters=parameters, allowed=allowed)
        return np.array([one.rows for one in found], dtype=np.int64)

    def nearest(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        parameters: Mapping[str, int] | None = None,
        allowed: NDArray[np.bool_] | None = None,
    ) -> list[Nearest]:
        """The k passages with the largest inner product for each of `queries` (Q, d), best first.

        Every row is one of this index; with `allowed` (N,) one for which it is true, and all of these where they are
        fewer than k. `parameters` are efSearch, nprobe or candidates for this call in place of the manifest's. The
        index proposes rows; a lossy index proposes `candidates` of them. The exact inner products with the stored
        vectors decide which k rows are kept, and in which order. One thread: answering is parallel over questions, not
        within a search. Raises InvalidRequest for k above the number of passages and for a parameter that the index
        does not have, IndexIncompatible for vectors of another length.
        """
        k, chosen = self._checked(queries, k, parameters, allowed)
        if not k:
            return [Nearest(np.empty(0, dtype=np.int64), np.empty(0))] * len(queries)
        return self._nearest(queries, k, chosen, allowed)

    def products(self, query: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Exact inner products of a vector (d,) with the stored vectors of these rows (n,): (n,)."""
        return exact_products(query, self.vectors(rows.tolist()))

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

    @abstractmethod
    def vectors(self, rows: Sequence[int]) -> NDArray[np.float32]:
        """The vectors of these rows as stored: (n, d). Raises IndexError for a row that is not there."""

    def vector_slices(self, slice_rows: int = SLICE_ROWS) -> Iterator[NDArray[np.float32]]:
        """All vectors as stored, in the order of their rows, a slice at a time: (b, d) each."""
        for part in slices(len(self), slice_rows):
            yield self.vectors(range(part.start, part.stop))

    def passages(self, rows: Sequence[int]) -> tuple[Passage, ...]:
        """The passages of these rows, in this order. Raises IndexError for a row that is not there."""
        self.check_whole()
        return self._passages.take(rows)

    def in_place(self, passage_id: str) -> PassageInPlace:
        """The passage with this id and its neighbours in its document. Raises UnknownPassage.

        Sources number the passages of a document: peru#0, peru#1. Of ids that say nothing so, the rows beside it with
        the same title are of its document.
        """
        self.check_whole()
        document, _, number = passage_id.rpartition("#")
        numbered = NUMBER.fullmatch(number) is not None and document != ""
        beside = [f"{document}#{int(number) + step}" for step in (-1, 1)] if numbered else []
        rows = self._passages.rows_of([passage_id, *beside])
        if passage_id not in rows:
            raise UnknownPassage(version=self.info.version, passage_id=passage_id)
        row = rows[passage_id]
        (passage,) = self._passages.take([row])

        def neighbour(row: int | None) -> Passage | None:
            if row is None or not 0 <= row < len(self):
                return None
            (found,) = self._passages.take([row])
            return found if numbered or (found.title == passage.title != "") else None

        before, after = map(neighbour, map(rows.get, beside) if numbered else (row - 1, row + 1))
        return PassageInPlace(passage, before, after)

    def bm25(self) -> Bm25Index:
        """The BM25 scores of the passages, row by row. Raises RetrieverUnavailable for a version without them."""
        if self._bm25 is None:
            raise RetrieverUnavailable(version=self.info.version)
        self.check_whole()
        return self._bm25

    def warm(self, report: Callable[[float], None] | None = None) -> None:
        """Touch every page, check links and numbers, then find the first, middle and last passage by their vectors.

        `report` is told the share of the pages that have been touched. What it raises ends the warm-up.

        Where vectors are not normalised, another passage may rightly come first: then its inner product is at least
        that of the vector with itself. Raises IndexCorrupt when it is less, and for a damaged graph.
        """
        self._touch(report)
        if self._bm25 is not None:
            self._bm25.check()
        for row in sorted({0, len(self) // 2, len(self) - 1}):
            self._check_canary(row)
        self.passages([0, len(self) - 1])

    def check_whole(self) -> None:
        """Raise IndexCorrupt where a file has become shorter since it was mapped.

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
                raise IndexCorrupt(
                    "size", version=self.info.version, file=name, found=state.st_size, expected=mark.size
                )

    def check_ready(self) -> None:
        """Raise what the next question would end with: IndexCorrupt, or IndexUnreachable."""
        self.check_whole()

    def close(self) -> None:
        """Give the memory back. May be called again."""
        self._passages.close()
        if self._bm25 is not None:
            self._bm25.close()
        self._held.close()

    # --- where the vectors lie -----------------------------------------------------------------------------

    # whether a search among many may miss the vector itself
    _lossy = False
    # the number of lists, and whether there is a graph: what `parameters` may be about
    _knobs: tuple[int, bool] = (0, False)

    @abstractmethod
    def _nearest(
        self, queries: NDArray[np.float32], k: int, chosen: Mapping[str, int], allowed: NDArray[np.bool_] | None
    ) -> list[Nearest]:
        """As `nearest`, whose checks have passed, with 1 <= k <= the number of allowed rows."""

    @abstractmethod
    def _warm_vectors(self, count: Callable[[int], None]) -> None:
        """Make the first search as fast as any, and safe. `count` receives the bytes that have been touched."""

    # --- checks --------------------------------------------------------------------------------------------

    def _checked(
        self,
        queries: NDArray[np.float32],
        k: int,
        parameters: Mapping[str, int] | None,
        allowed: NDArray[np.bool_] | None,
    ) -> tuple[int, Mapping[str, int]]:
        """How many rows there are to find, and all parameters. Raises what `nearest` raises."""
        if k < 1:
            raise InvalidRequest(field="n_docs", reason=f"at least 1 is needed, not {k}")
        if k > len(self):
            raise InvalidRequest(
                "too_many_docs", field="n_docs", n_docs=k, version=self.info.version, n_passages=len(self)
            )
        found = queries.shape[-1] if queries.ndim == 2 else 0
        if found != self.info.dimension:
            raise IndexIncompatible(
                "dimension", version=self.info.version, index_dimension=self.info.dimension, encoder_dimension=found
            )
        self.check_whole()
        n_lists, has_graph = self._knobs
        chosen = search_parameters(self.info, parameters, n_lists=n_lists, has_graph=has_graph)
        return (k if allowed is None else min(k, int(np.count_nonzero(allowed)))), chosen

    def _check_canary(self, row: int) -> None:
        own = self.vectors([row]).astype(np.float64)  # (1, d)
        many = {N_CANDIDATES: MOST_CANDIDATES} if self._lossy else None
        found = int(self.search(own.astype(np.float32), 1, parameters=many)[0, 0])
        best = self.vectors([found]).astype(np.float64)  # (1, d)
        norm = float((own * own).sum())
        tolerance = LOSSY_TOLERANCE if self._lossy else CANARY_TOLERANCE
        if float((own * best).sum()) < norm - tolerance * norm:
            raise IndexCorrupt("canary", version=self.info.version, row=row, found=found)

    def _touch(self, report: Callable[[float], None] | None) -> None:
        touched = 0

        def count(n_bytes: int) -> None:
            nonlocal touched
            touched += n_bytes
            if report is not None:
                # the files hold a little more than what is mapped from them: their heads and feet
                report(min(1.0, touched / max(1, resident_bytes(self.info))))

        self.check_whole()
        self._warm_vectors(count)
        if self._bm25 is not None:
            self._bm25.touch(count)


def exact_products(query: NDArray[np.float32], stored: NDArray[np.float32]) -> NDArray[np.float64]:
    """Inner products of a vector (d,) with `stored` (n, d): (n,)."""
    # float64 while summing: the order of two near passages must not hang on the order of additions
    return np.asarray(stored.astype(np.float64) @ query.astype(np.float64))


def best_first(rows: NDArray[np.int64], products: NDArray[np.float64], k: int) -> Nearest:
    """Of rows (n,) the k with the largest products (n,), in their order; of equal ones, the row that stands first."""
    order = np.argsort(-products, kind="stable")[:k]  # (k,)
    return Nearest(rows[order], products[order])
