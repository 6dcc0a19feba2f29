"""Passages to the four arrays of BM25."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import log
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from openbook.entities import Bm25Info, Passage
from openbook.indexing.array_writing import save_array
from openbook.storage.bm25_analysis import Analyser
from openbook.storage.bm25_index import Postings
from openbook.storage.manifest import BM25_OFFSETS, BM25_ROWS, BM25_SCORES, BM25_TERMS
from openbook.storage.vectors import slices

# Anserini's defaults, which it found best for passages of this length.
K1 = 0.9
B = 0.4
REPORT_EVERY = 4096
# Words of passages that are scored at once.
BLOCK_PAIRS = 1 << 22
BATCH_ROWS = 1024
# English passages of 100 words with titles have so many words that are kept, and so many different ones, in a byte.
# A word takes so many bytes; a different one takes these on the disk, and these while they are sorted.
WORDS_A_BYTE, PAIRS_A_BYTE = 0.106, 0.085
WORD_BYTES, PAIR_BYTES, SORTED_BYTES = 4, 8, 36
# The vocabulary grows as a power of the words (Heaps' law); a word of it has some six letters and two offsets.
TERMS_FACTOR, TERMS_POWER, TERM_BYTES = 13, 0.6, 22


def in_order(take: Callable[[Sequence[int]], tuple[Passage, ...]], n_passages: int) -> Iterator[Passage]:
    """The passages of rows 0 to N - 1 from `take`; no more than a few are in memory at once."""
    for part in slices(n_passages, BATCH_ROWS):
        yield from take(range(part.start, part.stop))


def write_bm25(
    folder: Path,
    passages: Iterable[Passage],
    n_passages: int,
    *,
    report: Callable[[float], None] | None = None,
) -> Bm25Info:
    """Write the arrays of heading and text of each of the N passages into `folder`; row i is passage i.

    The same passages give the same bytes. Holds the words of all passages in memory: 4 bytes a word, and about 36 for
    each different word of a passage while they are sorted. `report` receives the share that is done, 0 to 1.
    """
    analyser = Analyser()
    words: dict[str, int] = {}
    lengths, terms = array("q"), array("i")
    for passage in passages:
        # what Anserini indexes of a passage of DPR's, which has no section
        found = analyser.words(f"{passage.heading}\n{passage.text}")
        terms.extend([words.setdefault(word, len(words)) for word in found])
        lengths.append(len(found))
        if report is not None and len(lengths) % REPORT_EVERY == 0:
            report(len(lengths) / n_passages)
    names = sorted(words, key=str.encode)
    place = np.zeros(len(words), dtype=np.int32)  # (V,)
    place[[words[name] for name in names]] = np.arange(len(names))
    numbers = place[np.frombuffer(terms, dtype=np.int32)]  # (W,)
    postings = _score(names, numbers, np.frombuffer(lengths, dtype=np.int64))
    for name, content in (
        (BM25_TERMS, postings.letters),
        (BM25_OFFSETS, postings.offsets),
        (BM25_ROWS, postings.rows),
        (BM25_SCORES, postings.scores),
    ):
        save_array(folder / name, content)
    return Bm25Info(k1=K1, b=B, analyser="english", n_terms=len(names))


def estimated_bytes(text_bytes: int) -> tuple[int, int]:
    """Bytes that BM25 takes for so much English text: on the disk, and in memory while it is made."""
    n_words, n_pairs = text_bytes * WORDS_A_BYTE, text_bytes * PAIRS_A_BYTE
    on_disk = PAIR_BYTES * n_pairs + TERM_BYTES * TERMS_FACTOR * n_words**TERMS_POWER
    return round(on_disk), round(WORD_BYTES * n_words + SORTED_BYTES * n_pairs)


def _score(names: list[str], terms: NDArray[np.int32], lengths: NDArray[np.int64]) -> Postings:
    """Lucene's BM25 of the words (W,) of passages of these lengths (N,), to the bit as bm25s makes it of lists."""
    letters = [name.encode() for name in names]
    offsets = np.zeros((len(names) + 1, 2), dtype=np.int64)  # (V + 1, 2)
    np.cumsum([len(one) for one in letters], out=offsets[1:, 0])
    n_passages = max(1, len(lengths))
    # sorted by word, then by passage: equal ones are one word of one passage
    keys = terms.astype(np.int64)  # (W,)
    keys *= n_passages
    keys += np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    keys.sort()
    is_first = np.ones(len(keys), dtype=np.bool_)  # (W,)
    np.not_equal(keys[1:], keys[:-1], out=is_first[1:])
    first = np.flatnonzero(is_first)  # (P,)
    counts = np.diff(first, append=len(keys)).astype(np.float32)  # (P,)
    keys = keys[first]  # (P,)
    rows = (keys % n_passages).astype(np.int32)  # (P,)
    keys //= n_passages
    df = np.bincount(keys, minlength=len(names))  # (V,)
    np.cumsum(df, out=offsets[1:, 1])
    idf = np.array([log(1 + (len(lengths) - n + 0.5) / (n + 0.5)) for n in df.tolist()], dtype=np.float32)  # (V,)
    mean = lengths.mean() if len(terms) else 1.0
    weights = K1 * ((1 - B) + B * lengths / mean)  # (N,)
    scores = np.empty(len(rows), dtype=np.float32)  # (P,)
    for part in slices(len(rows), BLOCK_PAIRS):
        scores[part] = idf[keys[part]] * (counts[part] / (weights[rows[part]] + counts[part]))
    return Postings(np.frombuffer(b"".join(letters), dtype=np.uint8), offsets, rows, scores)
