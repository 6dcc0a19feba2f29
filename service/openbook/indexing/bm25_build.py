"""Passages to the four arrays of BM25."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from openbook.entities import Bm25Info, Passage
from openbook.errors import SettingInvalid
from openbook.storage.bm25_analysis import Analyser
from openbook.storage.bm25_index import KnownWords, Postings
from openbook.storage.manifest import BM25_ANALYSERS, BM25_MOST_K1, BM25_OFFSETS, BM25_ROWS, BM25_SCORES, BM25_TERMS
from openbook.storage.vectors import save_array, slices

# Anserini's defaults, which it found best for passages of this length.
K1 = 0.9
B = 0.4
REPORT_EVERY = 4096
# Times that bm25s walks over all passages, after the walk that makes their words.
WALKS = 3
BATCH_ROWS = 1024
# English passages of 100 words with titles have so many words that are kept, and so many different ones, in a byte.
# A word takes so many bytes; a different one takes these on the disk, and these while they are sorted.
WORDS_A_BYTE, PAIRS_A_BYTE = 0.106, 0.085
WORD_BYTES, PAIR_BYTES, SORTED_BYTES = 4, 8, 36
# The vocabulary grows as a power of the words (Heaps' law); a word of it has some six letters and two offsets.
TERMS_FACTOR, TERMS_POWER, TERM_BYTES = 13, 0.6, 22


@dataclass(frozen=True, slots=True)
class Bm25Parameters:
    """The parameters of a version's BM25. Raises SettingInvalid for numbers out of range."""

    k1: float = K1
    b: float = B

    def __post_init__(self) -> None:
        for name, value, most in (("k1", self.k1, BM25_MOST_K1), ("b", self.b, 1)):
            if not 0 <= value <= most:
                raise SettingInvalid(setting=name, reason=f"is at least 0 and at most {most}, not {value}")


ANSERINIS = Bm25Parameters()


def in_order(
    take: Callable[[Sequence[int]], tuple[Passage, ...]], n_passages: int, *, first: int = 0
) -> Iterator[Passage]:
    """The passages of rows `first` to N - 1 from `take`; no more than a few are in memory at once."""
    for part in slices(n_passages - first, BATCH_ROWS):
        yield from take(range(first + part.start, first + part.stop))


def bm25_words(passage: Passage, analyser: Analyser | None = None) -> list[str]:
    """What Anserini indexes of a passage of DPR's: the words of the title, and of the text below it."""
    return (analyser or Analyser()).words(f"{passage.title}\n{passage.text}")


def write_bm25(
    folder: Path,
    passages: Iterable[Passage],
    n_passages: int,
    parameters: Bm25Parameters = ANSERINIS,
    *,
    known: KnownWords | None = None,
    report: Callable[[float], None] | None = None,
) -> Bm25Info:
    """Write the arrays of title and text of each of the N passages into `folder`; row i is passage i.

    `passages` are those behind the ones whose words are `known`.

    The same passages give the same bytes. Holds the words of all passages in memory: 4 bytes a word, and about 36 for
    each different word of a passage while they are sorted. `report` receives the share that is done, 0 to 1.
    """
    n_steps, done = max(1, n_passages * (1 + WALKS)), 0

    def step() -> None:
        nonlocal done
        done += 1
        if report is not None and done % REPORT_EVERY == 0:
            report(min(1.0, done / n_steps))

    analyser = Analyser()
    words: dict[str, int] = {}
    lengths, terms = array("q"), array("i")
    if known is not None:
        words = {name: number for number, name in enumerate(known.names)}
        lengths.frombytes(known.lengths.tobytes())
        terms.frombytes(known.terms.tobytes())
    for passage in passages:
        found = bm25_words(passage, analyser)
        terms.extend([words.setdefault(word, len(words)) for word in found])
        lengths.append(len(found))
        step()
    used = np.bincount(np.frombuffer(terms, dtype=np.int32), minlength=len(words)) > 0  # (V',)
    names = sorted((name for name, number in words.items() if used[number]), key=str.encode)
    place = np.zeros(len(words), dtype=np.int32)  # (V',)
    place[[words[name] for name in names]] = np.arange(len(names))
    texts = _Texts(place[np.frombuffer(terms, dtype=np.int32)], np.frombuffer(lengths, dtype=np.int64), step)
    postings = _score(names, texts, parameters)
    for name, content in (
        (BM25_TERMS, postings.letters),
        (BM25_OFFSETS, postings.offsets),
        (BM25_ROWS, postings.rows),
        (BM25_SCORES, postings.scores),
    ):
        save_array(folder / name, content)
    return Bm25Info(k1=parameters.k1, b=parameters.b, analyser=BM25_ANALYSERS[-1], n_terms=len(names))


def estimated_bytes(text_bytes: int) -> tuple[int, int]:
    """Bytes that BM25 takes for so much English text: on the disk, and in memory while it is made."""
    n_words, n_pairs = text_bytes * WORDS_A_BYTE, text_bytes * PAIRS_A_BYTE
    on_disk = PAIR_BYTES * n_pairs + TERM_BYTES * TERMS_FACTOR * n_words**TERMS_POWER
    return round(on_disk), round(WORD_BYTES * n_words + SORTED_BYTES * n_pairs)


class _Texts:
    """The words of each passage as numbers, for bm25s to walk over: never all as a list of lists."""

    def __init__(self, terms: NDArray[np.int32], lengths: NDArray[np.int64], step: Callable[[], None]) -> None:
        self.terms = terms  # (W,)
        self._ends = np.concatenate([[0], np.cumsum(lengths)])  # (N + 1,)
        self._step = step

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __iter__(self) -> Iterator[list[int]]:
        for start, end in pairwise(self._ends.tolist()):
            self._step()
            yield self.terms[start:end].tolist()


def _score(names: list[str], texts: _Texts, parameters: Bm25Parameters) -> Postings:
    # this import takes a second, which a build without BM25 saves
    from bm25s import BM25

    letters = [name.encode() for name in names]
    offsets = np.zeros((len(names) + 1, 2), dtype=np.int64)  # (V + 1, 2)
    np.cumsum([len(one) for one in letters], out=offsets[1:, 0])
    if not len(texts.terms):
        # bm25s divides by the mean number of words
        return Postings(np.empty(0, np.uint8), offsets, np.empty(0, np.int32), np.empty(0, np.float32))
    scored = BM25(k1=parameters.k1, b=parameters.b, method="lucene", backend="numpy").build_index_from_ids(
        list(range(len(names))), texts, show_progress=False
    )
    offsets[:, 1] = scored["indptr"]
    return Postings(
        np.frombuffer(b"".join(letters), dtype=np.uint8),
        offsets,
        scored["indices"].astype(np.int32, copy=False),
        scored["data"].astype(np.float32, copy=False),
    )
