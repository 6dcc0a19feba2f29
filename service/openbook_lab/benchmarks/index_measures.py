"""One index of a benchmark: built, opened, searched. Each function runs in a process of its own."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from openbook.entities import Passage
from openbook.indexing.index_spec import IndexSpec
from openbook.indexing.publishing import publish
from openbook.storage.index_store import IndexStore
from openbook.storage.manifest import is_lossy
from openbook_lab.benchmarks.children import Progress
from openbook_lab.benchmarks.index_vectors import Places
from openbook_lab.benchmarks.swap import Memory, memory

ENCODER = "synthetic"
K = 10
# A search of all passages may take long: no more than so many seconds are spent on one number of threads.
SEARCH_S = 60.0
LEAST_SEARCHES = 20
TRUTH_BLOCK = 256


@dataclass(frozen=True, slots=True)
class Built:
    """Seconds of the training, of filling the index, and of the whole publishing; bytes of the files."""

    train_s: float
    add_s: float
    publish_s: float


@dataclass(frozen=True, slots=True)
class Latency:
    """Of single questions asked by so many threads at once."""

    threads: int
    searches: int
    p50_ms: float
    p99_ms: float
    a_second: float


@dataclass(frozen=True, slots=True)
class Opened:
    """What opening and searching took; memory is what this process has more than before it was opened.

    `exact` is whether the vectors that scores are computed from are those that were given, number for number: beside a
    lossy index as float16 holds them. `score_error` is how far that rounding moves a doc_score, at most.
    """

    open_ms: float
    warm_s: float
    opened: Memory
    searched: Memory
    latencies: tuple[Latency, ...]
    recall_5: float
    recall_10: float
    score_error: float
    exact: bool


def build(
    told: Progress, folder: Path, version: str, places: Places, spec: IndexSpec, n_threads: int | None, work: Path
) -> Built:
    """Publish the vectors with passages of a few words, since those are not what is measured."""
    vectors = np.load(places.vectors, mmap_mode="r")  # (N, d)
    first: dict[str, float] = {}
    last: dict[str, float] = {}

    def report(done: int, total: int | None, what: str) -> None:
        now = time.perf_counter()
        first.setdefault(what, now)
        last[what] = now
        told(done, total, f"{version} {what}")

    began = time.perf_counter()
    publish(
        IndexStore(folder),
        version,
        vectors=vectors,
        passages=_passages(len(vectors)),
        spec=spec,
        encoder_name=ENCODER,
        encoder_fingerprint=ENCODER,
        # what is there is of another spec
        replace=True,
        work=work,
        report=report,
        n_threads=n_threads,
    )
    seconds = {what: last[what] - first[what] for what in first}
    return Built(seconds.get("train", 0.0), seconds.get("add", 0.0), time.perf_counter() - began)


def find_truth(told: Progress, places: Places, path: Path) -> None:
    """Write the rows of the K largest inner products of each question, found by comparing with all: (Q, K)."""
    vectors = np.load(places.vectors, mmap_mode="r")  # (N, d)
    queries = np.load(places.queries)  # (Q, d)
    scores = np.full((len(queries), K), -np.inf)
    rows = np.zeros((len(queries), K), dtype=np.int64)
    for start in range(0, len(vectors), 1 << 15):
        block = np.asarray(vectors[start : start + (1 << 15)])  # (b, d)
        for of in range(0, len(queries), TRUTH_BLOCK):
            part = slice(of, of + TRUTH_BLOCK)
            found = (queries[part] @ block.T).astype(np.float64)  # (q, b)
            k = min(K, found.shape[1])
            best = np.argpartition(-found, k - 1, axis=1)[:, :k]  # (q, k)
            scores_both = np.concatenate([scores[part], np.take_along_axis(found, best, axis=1)], axis=1)
            rows_both = np.concatenate([rows[part], best + start], axis=1)
            kept = np.argsort(-scores_both, axis=1, kind="stable")[:, :K]
            scores[part] = np.take_along_axis(scores_both, kept, axis=1)
            rows[part] = np.take_along_axis(rows_both, kept, axis=1)
        told(min(len(vectors), start + (1 << 15)), len(vectors), "truth")
    np.save(path, rows)


def measure(
    told: Progress,
    folder: Path,
    version: str,
    places: Places,
    truth: Path,
    n_threads: tuple[int, ...],
    search: Mapping[str, int],
) -> Opened:
    """Open the version as a service does, warm it, and ask with these parameters of a search."""
    queries = np.load(places.queries)  # (Q, d)
    expected = np.load(truth)  # (Q, K)
    given = np.load(places.vectors, mmap_mode="r")  # (N, d)
    before = memory()
    began = time.perf_counter()
    snapshot = IndexStore(folder).open(version)
    open_ms = 1000 * (time.perf_counter() - began)
    opened = _more(memory(), before)
    told(0, None, f"{version} warm")
    began = time.perf_counter()
    snapshot.warm()
    warm_s = time.perf_counter() - began

    def ask(number: int) -> NDArray[np.int64]:
        found = snapshot.search(queries[number : number + 1], K, parameters=search)  # (1, K)
        return np.asarray(found[0])

    latencies = tuple(_latency(ask, len(queries), threads, told, f"{version} search") for threads in n_threads)
    searched = _more(memory(), before)
    found = np.stack([ask(number) for number in range(len(queries))])  # (Q, K)
    precision = np.float16 if is_lossy(snapshot.info.index_type) else np.float32
    error, exact = 0.0, True
    for query, rows in zip(queries.astype(np.float64), found, strict=True):
        stored = snapshot.vectors(rows.tolist())  # (K, d)
        exact &= bool(np.array_equal(stored, given[rows].astype(precision).astype(np.float32)))
        scores = stored.astype(np.float64) @ query  # (K,)
        error = max(error, float(np.abs(scores - given[rows].astype(np.float64) @ query).max()))
    snapshot.close()
    return Opened(
        open_ms=open_ms,
        warm_s=warm_s,
        opened=opened,
        searched=searched,
        latencies=latencies,
        recall_5=_recall(found, expected, 5),
        recall_10=_recall(found, expected, 10),
        score_error=error,
        exact=exact,
    )


def _passages(n: int) -> Iterator[Passage]:
    for row in range(n):
        yield Passage(str(row), f"passage {row}", "text")


def _recall(found: NDArray[np.int64], expected: NDArray[np.int64], k: int) -> float:
    """The share of the k nearest that are among the first k found."""
    hits = (found[:, :k, None] == expected[:, None, :k]).any(axis=1)  # (Q, k)
    return float(hits.mean())


def _latency(ask: Callable[[int], object], n_queries: int, n_threads: int, told: Progress, what: str) -> Latency:
    """Each thread asks one question after the other until all were asked or the time is over."""
    seconds: list[float] = []
    numbers = iter(range(n_queries))
    began = time.perf_counter()

    def run() -> None:
        for number in numbers:
            asked = time.perf_counter()
            if asked - began > SEARCH_S and len(seconds) >= LEAST_SEARCHES:
                return
            ask(number)
            seconds.append(time.perf_counter() - asked)

    threads = [threading.Thread(target=run) for _ in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    told(n_threads, None, what)
    p50, p99 = 1000 * np.percentile(seconds, [50, 99])
    return Latency(n_threads, len(seconds), float(p50), float(p99), len(seconds) / took)


def _more(now: Memory, before: Memory) -> Memory:
    return Memory(max(0, now.anonymous - before.anonymous), max(0, now.file_mapped - before.file_mapped))
