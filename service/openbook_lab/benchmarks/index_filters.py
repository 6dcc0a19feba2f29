"""What a filter costs a search, and what it finds, where a share of the passages passes.

Which ones decides as much as how many. Those of a date or a language lie among all others, as rows drawn at random do.
Those of a topic lie in one direction of the vectors, where a graph's walk towards another one does not come by.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from openbook.storage.index_store import IndexStore
from openbook_lab.benchmarks.children import Progress
from openbook_lab.benchmarks.index_vectors import Places, nearest, share_found

ALL, RANDOM, DIRECTION = "no filter", "at random", "in one direction"
# Of the vectors from which the direction of the largest variance is found.
SAMPLE = 5000
K = 5


@dataclass(frozen=True, slots=True)
class Passing:
    """Which passages pass."""

    kind: str
    share: float

    def mask(self, vectors: NDArray[np.float32]) -> NDArray[np.bool_] | None:
        """(N, d) -> (N,), the same for the same vectors; None for no filter."""
        if self.kind == ALL:
            return None
        if self.kind == RANDOM:
            return np.asarray(np.random.default_rng(0).random(len(vectors)) < self.share)
        sample = vectors[:SAMPLE].astype(np.float32)
        along = np.asarray(vectors @ np.linalg.svd(sample - sample.mean(axis=0), full_matrices=False)[2][0])  # (N,)
        return np.asarray(along >= np.quantile(along, 1 - self.share))

    @property
    def file(self) -> str:
        return f"truth-{self.kind.replace(' ', '-')}-{self.share:g}.npy"


@dataclass(frozen=True, slots=True)
class FilteredSearch:
    """The processor's time for single questions by one thread, and the share of the 5 nearest that they find."""

    kind: str
    share: float
    p50_ms: float
    p99_ms: float
    recall_5: float


def passings(shares: Sequence[float]) -> Iterator[Passing]:
    yield Passing(ALL, 1.0)
    for share in shares:
        yield Passing(RANDOM, share)
        yield Passing(DIRECTION, share)


def find_filtered_truth(told: Progress, folder: Path, places: Places, shares: Sequence[float]) -> None:
    """Write, for each, the rows of the K largest inner products among the passages that pass: (Q, K)."""
    vectors = np.load(places.vectors, mmap_mode="r")  # (N, d)
    for passing in passings(shares):
        if not (folder / passing.file).is_file():
            rows = nearest(told, places, K, passing.mask(vectors))
            np.save(folder / f"new-{passing.file}", rows)
            (folder / f"new-{passing.file}").replace(folder / passing.file)


def measure_filtered(
    told: Progress, folder: Path, version: str, places: Places, shares: Sequence[float], search: Mapping[str, int]
) -> list[FilteredSearch]:
    """Open the version, warm it, and search among the passages that pass with the parameters `search`."""
    queries = np.load(places.queries)  # (Q, d)
    vectors = np.load(places.vectors, mmap_mode="r")  # (N, d)
    measured = []
    with closing(IndexStore(folder).open(version)) as snapshot:
        snapshot.warm()
        for number, passing in enumerate(passings(shares)):
            told(number, 1 + 2 * len(shares), f"{version} filters")
            allowed = passing.mask(vectors)
            found, seconds = [], []
            for query in queries:
                asked = time.thread_time()
                found.append(snapshot.search(query[None], K, parameters=search, allowed=allowed)[0])
                seconds.append(time.thread_time() - asked)
            p50, p99 = 1000 * np.percentile(seconds, [50, 99])
            recall = share_found(np.stack(found), np.load(folder / passing.file), K)
            measured.append(FilteredSearch(passing.kind, passing.share, float(p50), float(p99), recall))
    return measured
