"""BM25: for each word the passages that hold it, with what the word is worth there; four arrays that are mapped.

The scores are Lucene's (Kamphuis et al. 2020, "Lucene (accurate)"): idf = ln(1 + (N - df + 0.5) / (df + 0.5)), times
tf / (tf + k1 (1 - b + b |z| / avg |z|)), summed over the words of the question. The build computes them; a question
adds up those of its words. `check` compares all numbers of the files with their bounds, before a version is served.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from openbook.entities import Bm25Info
from openbook.errors import IndexCorrupt
from openbook.storage.bm25_analysis import Analyser
from openbook.storage.manifest import BM25_OFFSETS, BM25_ROWS, BM25_SCORES, BM25_TERMS
from openbook.storage.mapped import Mapped
from openbook.storage.vectors import map_array
from openbook.storage.warming import touch

TYPES = {BM25_TERMS: "|u1", BM25_OFFSETS: "<i8", BM25_ROWS: "<i4", BM25_SCORES: "<f4"}


@dataclass(frozen=True, slots=True)
class Postings:
    """V words in the order of their UTF-8 bytes, and P pairs of a word and a passage that holds it.

    The letters of word i are letters[offsets[i, 0] : offsets[i + 1, 0]], and rows and scores of its passages
    lie at offsets[i, 1] : offsets[i + 1, 1].
    """

    letters: NDArray[np.uint8]  # (L,)
    offsets: NDArray[np.int64]  # (V + 1, 2)
    rows: NDArray[np.int32]  # (P,)
    scores: NDArray[np.float32]  # (P,)

    def parts(self) -> tuple[NDArray[np.uint8], ...]:
        """The bytes of all four arrays."""
        arrays = (self.letters, self.offsets, self.rows, self.scores)
        return tuple(array.reshape(-1).view(np.uint8) for array in arrays)


class Bm25Index(Mapped[Postings]):
    """The BM25 scores of N passages. Reading never changes it, and any number of threads may ask at once."""

    def __init__(self, postings: Postings, *, n_passages: int, version: str) -> None:
        super().__init__(postings, version=version)
        self._n_passages = n_passages

    @classmethod
    def open(cls, folder: Path, info: Bm25Info, *, n_passages: int, version: str) -> "Bm25Index":
        """Map the files; nothing but their heads is read. Raises IndexCorrupt for what is no such array."""
        letters, offsets, rows, scores = (map_array(folder / name, dtype, version) for name, dtype in TYPES.items())
        for name, fits in (
            (BM25_TERMS, letters.ndim == 1),
            (BM25_OFFSETS, offsets.shape == (info.n_terms + 1, 2)),
            (BM25_ROWS, rows.ndim == 1),
            (BM25_SCORES, scores.shape == rows.shape),
        ):
            if not fits:
                raise IndexCorrupt("file", version=version, file=name, reason="its shape is not that of its index")
        return cls(Postings(letters, offsets, rows, scores), n_passages=n_passages, version=version)

    def __len__(self) -> int:
        return self._n_passages

    def scores(self, question: str) -> NDArray[np.float32]:
        """The score of every passage, 0 where it holds no word of the question: (N,).

        A word that stands twice in the question counts twice, as in Lucene.
        """
        postings = self._still_open()
        terms = [term for word in Analyser().words(question) if (term := _find(postings, word)) is not None]
        scores = np.zeros(self._n_passages, dtype=np.float32)  # (N,)
        for term in terms:
            start, end = postings.offsets[term : term + 2, 1].tolist()
            np.add.at(scores, postings.rows[start:end], postings.scores[start:end])
        return scores

    def search(
        self, questions: Sequence[str], k: int, *, allowed: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Rows and scores of the k best passages of each question, best first: (Q, k) and (Q, k).

        With `allowed` (N,), of those for which it is true. Needs 1 <= k <= their number. Of equal scores the lower row
        comes first; so, where fewer than k passages hold a word of the question, the rest are the lowest rows of those
        that hold none, with a score of 0.
        """
        rows = np.empty((len(questions), k), dtype=np.int64)  # (Q, k)
        scores = np.empty((len(questions), k), dtype=np.float32)  # (Q, k)
        for number, question in enumerate(questions):
            of_all = self.scores(question)  # (N,)
            rows[number] = best_rows(of_all, k, allowed)
            scores[number] = of_all[rows[number]]
        return rows, scores

    def coverage(self, question: str, rows: Sequence[int]) -> NDArray[np.float64]:
        """The share of the question's words that each of `rows` holds, a word weighted by its idf: (n,), from 0 to 1.

        A word that no passage holds has the largest idf. A question without words is covered by nothing.
        """
        postings = self._still_open()
        covered, total = np.zeros(len(rows)), 0.0  # (n,)
        for word in set(Analyser().words(question)):
            holding = np.empty(0, dtype=np.int32)  # (df,), rising
            if (term := _find(postings, word)) is not None:
                holding = postings.rows[slice(*postings.offsets[term : term + 2, 1].tolist())]
            idf = math.log1p((self._n_passages - len(holding) + 0.5) / (len(holding) + 0.5))
            covered += idf * np.isin(rows, holding)
            total += idf
        return covered / total if total else covered

    def touch(self, report: Callable[[int], None] | None = None) -> None:
        """Read one byte of every page, so that no question waits for the disk. `report`: see `warming.touch`."""
        touch(self._still_open().parts(), report)

    def check(self) -> None:
        """Raise IndexCorrupt for words that do not lie one behind the other, and for a row or a score that is none."""
        postings = self._still_open()
        offsets, rows, scores = postings.offsets, postings.rows, postings.scores
        ends = [len(postings.letters), len(rows)]
        if offsets[0].any() or offsets[-1].tolist() != ends or (np.diff(offsets, axis=0) < 0).any():
            raise self._damaged(BM25_OFFSETS, "its offsets are not in order")
        if rows.min(initial=0) < 0 or rows.max(initial=-1) >= self._n_passages:
            raise self._damaged(BM25_ROWS, "a word is in a row beyond the end")
        # no comparison with NaN holds
        if not (scores.min(initial=0) >= 0 and scores.max(initial=0) < np.inf):
            raise self._damaged(BM25_SCORES, "a word has a score that is none")

    def _damaged(self, file: str, reason: str) -> IndexCorrupt:
        return IndexCorrupt("file", version=self._version, file=file, reason=reason)


def _find(postings: Postings, word: str) -> int | None:
    """The number of a word, None where no passage holds it."""

    def letters_of(term: int) -> bytes:
        start, end = postings.offsets[term : term + 2, 0].tolist()
        return postings.letters[start:end].tobytes()

    n_terms = len(postings.offsets) - 1
    # half of a surrogate pair is in no passage
    wanted = word.encode(errors="surrogatepass")
    term = bisect_left(range(n_terms), wanted, key=letters_of)
    return term if term < n_terms and letters_of(term) == wanted else None


def best_rows(scores: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
    """The rows of the k largest of `scores` (N,), the largest first and of equal ones the lower row first: (k,).

    With `allowed` (N,), of the rows for which it is true, and all of these where they are fewer.
    """
    if allowed is not None:
        rows = np.flatnonzero(allowed)  # (n,), rising
        return np.asarray(rows[best_rows(scores[rows], min(k, len(rows)))] if len(rows) else rows)
    least = np.partition(scores, len(scores) - k)[len(scores) - k]
    above = np.flatnonzero(scores > least)  # (fewer than k,), rising
    above = above[np.argsort(-scores[above], kind="stable")]
    level = np.flatnonzero(scores == least)[: k - len(above)]
    return np.concatenate([above, level])
