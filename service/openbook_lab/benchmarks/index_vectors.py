"""Vectors to measure indexes with: random ones with the structure of text, or the real ones of a version.

Vectors without structure are all equally far from each other, so that an approximate search has nothing to go by;
vectors around few centres are easier than any text. The vectors drawn here have three properties of embedded text:

- topics, of which some are far more common than others (Zipf), articles within topics, passages within articles;
- a spectrum that falls off as a power: a few directions hold most of the variance, and no direction is an axis;
- length 1, as sentence encoders give.

A question is a passage's vector, moved further than the passages of one article are from each other.
"""

import json
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from openbook.cli.options import option
from openbook.errors import SettingInvalid, SourceInvalid
from openbook.storage import durable
from openbook.storage.index_store import IndexStore
from openbook_lab.benchmarks.children import Progress, in_child

PASSAGES_A_TOPIC = 2000
PASSAGES_AN_ARTICLE = 20
# The share of the variance of each level, and of a question's move.
TOPIC, ARTICLE, PASSAGE, QUESTION = 0.35, 0.35, 0.30, 0.45
# The i-th direction has a standard deviation of i to the power of minus this.
SPECTRUM = 0.5
BLOCK_ROWS = 16_384
# Questions that are compared with a block of vectors at a time.
TRUTH_BLOCK = 256
ORIGIN = "origin.json"


@dataclass(frozen=True, slots=True)
class Places:
    """NumPy files with the vectors of the passages (N, d), in float32 or float16, and of the questions (Q, d).

    `origin` tells the report where they come from.
    """

    vectors: Path
    queries: Path
    origin: str = ""

    @property
    def shape(self) -> tuple[int, int]:
        """N and d."""
        n_passages, dimension = np.load(self.vectors, mmap_mode="r").shape
        return n_passages, dimension


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorsAsked:
    """Which vectors indexes are measured with."""

    passages: int = option(20_000, "N: random vectors with the structure of text.", min=1000)
    dimension: int = option(768, "d: length of a random vector.", min=2)
    half: bool = option(False, "Draw them in float16: 2 d bytes of disk a vector rather than 4 d.", "--half/--no-half")
    version: str | None = option(None, "Take the vectors of this index version instead.")
    questions: int = option(1000, "How many are asked.", min=20)

    def prepare(self, folder: Path, indexes: Path, progress: Progress) -> Places:
        """Write the vectors into `folder`, or find those of an earlier run there.

        Raises SettingInvalid for a folder with the vectors of another run.
        """
        origin = f"random, {self.passages} x {self.dimension}{', float16' if self.half else ''}"
        if self.version is not None:
            origin = f"version {self.version}"
        places = Places(folder / "given.npy", folder / "questions.npy", origin)
        description, known = json.dumps({"origin": origin, "questions": self.questions}), folder / ORIGIN
        if not known.is_file():
            if self.version is not None:
                with closing(IndexStore(indexes).open(self.version)) as snapshot:
                    hold_out(places, len(snapshot), snapshot.vector_slices(), self.questions, progress)
            else:
                precision = np.float16 if self.half else np.float32
                # a child draws them: the seconds of the processor are its own
                in_child(progress, draw, places, self.passages, self.dimension, self.questions, precision)
            durable.write_atomically(known, description)
        elif (found := known.read_text(encoding="utf-8")) != description:
            raise SettingInvalid(setting="--folder", reason=f"{folder} holds another run: {found}")
        return places


def draw(
    told: Progress,
    places: Places,
    n_vectors: int,
    dimension: int,
    n_queries: int,
    precision: type[np.float32] | type[np.float16] = np.float32,
) -> None:
    """Write vectors and questions with the structure of text; the same arguments give the same ones.

    A block at a time: no more of them is ever in memory.
    """
    random = np.random.default_rng(0)
    scale = np.arange(1, dimension + 1, dtype=np.float32) ** -SPECTRUM  # (d,)
    scale /= np.linalg.norm(scale)
    # to no axis in particular: (d, d)
    rotation = np.linalg.qr(random.standard_normal((dimension, dimension)))[0].astype(np.float32)
    directions = (scale[:, None] * rotation).astype(np.float32)  # (d, d)

    def drawn(n: int, share: float) -> NDArray[np.float32]:
        noise = random.standard_normal((n, dimension), dtype=np.float32) @ directions  # (n, d)
        return np.asarray(noise * np.float32(np.sqrt(share)))

    n_topics = max(1, n_vectors // PASSAGES_A_TOPIC)
    topics = drawn(n_topics, TOPIC)  # (topics, d)
    common = 1.0 / np.arange(1, n_topics + 1)
    with places.vectors.open("wb") as out:
        head = {"descr": np.dtype(precision).str, "fortran_order": False, "shape": (n_vectors, dimension)}
        np.lib.format.write_array_header_1_0(out, head)
        for start in range(0, n_vectors, BLOCK_ROWS):
            n = min(BLOCK_ROWS, n_vectors - start)
            n_articles = -(-n // PASSAGES_AN_ARTICLE)
            articles = topics[random.choice(n_topics, n_articles, p=common / common.sum())] + drawn(n_articles, ARTICLE)
            block = np.repeat(articles, PASSAGES_AN_ARTICLE, axis=0)[:n] + drawn(n, PASSAGE)  # (n, d)
            block /= np.linalg.norm(block, axis=1, keepdims=True)
            out.write(block.astype(precision).data)
            told(start + n, n_vectors, "vectors")
    rows = np.sort(random.integers(n_vectors, size=n_queries))  # (Q,)
    asked = np.load(places.vectors, mmap_mode="r")[rows] + drawn(n_queries, QUESTION)  # (Q, d)
    np.save(places.queries, (asked / np.linalg.norm(asked, axis=1, keepdims=True)).astype(np.float32))


def hold_out(
    places: Places, n_rows: int, blocks: Iterable[NDArray[np.floating]], n_queries: int, progress: Progress
) -> None:
    """Write real vectors, of which `n_queries` at even distances are the questions and not indexed.

    `blocks` are all `n_rows` rows in order, (b, d) each. Raises SourceInvalid for fewer than 2 * `n_queries` rows.
    """
    if n_rows < 2 * n_queries:
        raise SourceInvalid(source=str(places.vectors), reason=f"{n_rows} vectors, too few for {n_queries} questions")
    asked = np.zeros(n_rows, dtype=bool)  # (N + Q,)
    asked[np.linspace(0, n_rows - 1, n_queries).astype(np.int64)] = True
    out: NDArray[np.float32] | None = None
    queries, start, written = [], 0, 0
    for block in blocks:
        held = asked[start : start + len(block)]
        if out is None:
            shape = (n_rows - int(asked.sum()), block.shape[1])
            out = np.lib.format.open_memmap(places.vectors, mode="w+", dtype=np.float32, shape=shape)
        kept = block[~held]  # (k, d)
        out[written : written + len(kept)] = kept
        queries.append(block[held].astype(np.float32))
        start, written = start + len(block), written + len(kept)
        progress(start, n_rows, "vectors")
    np.save(places.queries, np.concatenate(queries))


def nearest(told: Progress, places: Places, k: int) -> NDArray[np.int64]:
    """The rows of the k largest inner products of each question, by comparing with all: (Q, k)."""
    vectors = np.load(places.vectors, mmap_mode="r")  # (N, d)
    queries = np.load(places.queries)  # (Q, d)
    scores = np.full((len(queries), k), -np.inf)
    rows = np.full((len(queries), k), -1, dtype=np.int64)
    for start in range(0, len(vectors), 1 << 15):
        block = vectors[start : start + (1 << 15)].astype(np.float32)  # (b, d)
        best_of = min(k, len(block))
        for of in range(0, len(queries), TRUTH_BLOCK):
            part = slice(of, of + TRUTH_BLOCK)
            found = (queries[part] @ block.T).astype(np.float64)  # (q, b)
            best = np.argpartition(-found, best_of - 1, axis=1)[:, :best_of]  # (q, best_of)
            scores_both = np.concatenate([scores[part], np.take_along_axis(found, best, axis=1)], axis=1)
            rows_both = np.concatenate([rows[part], start + best], axis=1)
            kept = np.argsort(-scores_both, axis=1, kind="stable")[:, :k]
            scores[part] = np.take_along_axis(scores_both, kept, axis=1)
            rows[part] = np.take_along_axis(rows_both, kept, axis=1)
        told(start + len(block), len(vectors), "truth")
    return rows


def share_found(found: NDArray[np.int64], expected: NDArray[np.int64], k: int) -> float:
    """The share of the k nearest, (Q, k) or more, that are among the first k found."""
    hits = (found[:, :k, None] == expected[:, None, :k]).any(axis=1)  # (Q, k)
    return float(hits.mean())
