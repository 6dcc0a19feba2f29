"""What `bench update` changes: a version of drawn vectors and words, or one that is there, and a share of it anew."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, count, islice, product
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from openbook.entities import IndexInfo, Passage
from openbook.indexing.building.ready import Block
from openbook.indexing.passage_encoder import EncoderSource, PassageEncoder
from openbook.rag.encoder_head import Head
from openbook.storage.index_store import IndexStore
from openbook.storage.vectors import slices
from openbook_lab.benchmarks.children import Progress
from openbook_lab.benchmarks.index_vectors import Places, draw

WORDS_A_PASSAGE = 100
# The k-th of so many words stands in the text as often as 1 / (k + 2.7): Zipf's law as Mandelbrot mended it.
VOCABULARY, FLATTENED = 100_000, 2.7
CONSONANTS, VOWELS = "bcdfghjklmnpqrstvwxz", "aeiou"
BLOCK_TEXTS = 1000
# A vector is moved by so much of what lies between two neighbours of the base. Of drawn vectors, these are mostly of
# one article, and it then moves as far as the questions of `draw` do.
MOVED = 0.87


@dataclass(frozen=True, slots=True)
class UpdateWork:
    """A share of the passages changes. Without `threads`, one a core builds."""

    passages: int
    dimension: int
    changed: float
    questions: int
    index: str = "flat"
    numbers: Mapping[str, int | None] = dataclasses.field(default_factory=dict)
    bm25: bool = True
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class Drawn:
    """The files of a folder: vectors before and after the update (N, d), those of questions (Q, d), changed rows (M,).

    After the update, the vectors of what stays come first and those of what has changed last.
    """

    folder: Path

    @property
    def before(self) -> Places:
        return Places(self.folder / "given.npy", self.folder / "questions.npy")

    @property
    def after(self) -> Places:
        return Places(self.folder / "updated.npy", self.folder / "questions.npy")

    @property
    def rows(self) -> NDArray[np.int64]:
        return np.asarray(np.load(self.folder / "changed.npy"))

    def passages(self, base: IndexStore, version: str) -> list[Passage]:
        """Those that change, each with a text that the base lacks: (M,)."""
        with closing(base.open(version)) as snapshot:
            before, texts = snapshot.passages(self.rows.tolist()), drawn_texts(len(snapshot))
        return [dataclasses.replace(one, text=text) for one, text in zip(before, texts, strict=False)]


@dataclass(frozen=True, slots=True)
class Given:
    """Passages as a source, read as often as they are asked for."""

    name: str
    read: Callable[[], Iterator[Passage]]
    snapshot_date: str | None = None
    licence: str = ""

    def passages(self) -> Iterator[Passage]:
        return self.read()


@dataclass(frozen=True, slots=True)
class WrittenVectors:
    """A NumPy file (N, d) as vectors that are made already."""

    path: Path
    dimension: int

    @property
    def name(self) -> str:
        return self.path.name

    def blocks(self) -> Iterator[Block]:
        vectors = np.load(self.path, mmap_mode="r")
        for part in slices(len(vectors)):
            yield None, vectors[part]


@dataclass(frozen=True, eq=False, repr=False)
class KnownVectors(PassageEncoder):
    """The encoder of a version, for texts of which the vectors are known: it looks them up."""

    known: Mapping[str, NDArray[np.float32]]

    @classmethod
    def of(cls, info: IndexInfo, known: Mapping[str, NDArray[np.float32]]) -> "KnownVectors":
        source = EncoderSource(None, "cpu", torch.float32, info.encoder_fingerprint)
        head = Head("mean", normalise=False, max_length=1)
        return cls(info.encoder_name, info.dimension, 0, source, torch.nn.Identity(), None, head, known)

    def encode(self, passages: Sequence[Passage], *, batch_size: int = 64) -> NDArray[np.float32]:
        return np.stack([self.known[passage.text] for passage in passages])  # (N, d)


def drawn_passages(n_passages: int) -> Iterator[Passage]:
    for row, text in zip(range(n_passages), drawn_texts(0), strict=False):
        yield Passage(str(row), f"passage {row}", text)


def drawn_texts(seed: int) -> Iterator[str]:
    """Texts of 100 words without end: common words are short and stand in most of them, as in a language."""
    random = np.random.default_rng(seed)
    syllables = [consonant + vowel for vowel in VOWELS for consonant in CONSONANTS]
    every = chain.from_iterable(product(syllables, repeat=length) for length in count(1))
    names = ["".join(one) for one in islice(every, VOCABULARY)]  # (V,)
    common = np.cumsum(1.0 / (np.arange(VOCABULARY) + FLATTENED))  # (V,)
    while True:
        drawn = random.random((BLOCK_TEXTS, WORDS_A_PASSAGE)) * common[-1]
        for numbers in np.searchsorted(common, drawn).tolist():
            yield " ".join([names[number] for number in numbers])


def draw_base(told: Progress, folder: Path, work: UpdateWork) -> None:
    """Write vectors with the structure of text."""
    draw(told, Drawn(folder).before, work.passages, work.dimension, work.questions)


def take_base(told: Progress, folder: Path, version: str) -> None:
    """Write the vectors that the version has."""
    with closing(IndexStore(folder).open(version)) as snapshot:
        shape = (len(snapshot), snapshot.info.dimension)
        out = np.lib.format.open_memmap(Drawn(folder).before.vectors, mode="w+", dtype=np.float32, shape=shape)
        row = 0
        for block in snapshot.vector_slices():
            out[row : row + len(block)] = block
            row += len(block)
            told(row, len(snapshot), "vectors")
        out.flush()


def draw_changes(told: Progress, folder: Path, work: UpdateWork) -> None:
    """Write questions, which rows change, and the vectors after that."""
    drawn = Drawn(folder)
    vectors = np.load(drawn.before.vectors, mmap_mode="r")  # (N, d)
    random = np.random.default_rng(0)
    rows = np.sort(random.choice(len(vectors), max(1, round(work.changed * len(vectors))), replace=False))  # (M,)
    np.save(folder / "changed.npy", rows)
    changed = _moved(random, vectors, rows)  # (M, d)
    asked = np.sort(random.integers(len(vectors), size=work.questions))  # (Q,)
    np.save(drawn.before.queries, _moved(random, vectors, asked))
    kept = np.delete(np.arange(len(vectors)), rows)  # (n,)
    out = np.lib.format.open_memmap(drawn.after.vectors, mode="w+", dtype=np.float32, shape=vectors.shape)
    for part in slices(len(kept)):
        out[part] = vectors[kept[part]]
        told(part.stop, len(vectors), "changes")
    out[len(kept) :] = changed
    out.flush()


def _moved(random: np.random.Generator, vectors: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """The vectors of these rows moved, with the lengths that they had: (n, d)."""
    others = random.integers(len(vectors) - 1, size=len(rows))  # (n,)
    there = np.asarray(vectors[rows])  # (n, d)
    towards = there + MOVED * (vectors[others + 1] - vectors[others])  # (n, d)
    lengths = np.linalg.norm(there, axis=1, keepdims=True) / np.linalg.norm(towards, axis=1, keepdims=True)
    return np.asarray(towards * lengths, dtype=np.float32)
