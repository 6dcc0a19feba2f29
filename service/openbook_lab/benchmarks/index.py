"""The cost and the recall of each type of index, over the same vectors and questions, side by side.

Each index is built, opened and searched in processes of its own.
"""

import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openbook.entities import IndexInfo, Passage
from openbook.indexing.index_spec import NUMBERS, IndexSpec, choose_index
from openbook.indexing.publishing import VersionContents, publish
from openbook.storage import durable
from openbook.storage.index_store import IndexStore
from openbook.storage.manifest import INDEX_FILE, VECTORS_FILE, is_lossy
from openbook_lab.benchmarks.children import MEGABYTE, Memory, Progress, forget_pages, in_child, memory
from openbook_lab.benchmarks.index_vectors import Places, nearest, share_found
from openbook_lab.benchmarks.synthetic import ENCODER
from openbook_lab.evaluation.reports import Report, Rows, Table, machine

THREADS = (1, 8)
RESULTS, TRUTH = "results.json", "truth.npy"
K = 10
# The longest time for one number of threads: a search of all passages may be slow.
SEARCH_S = 60.0
LEAST_SEARCHES = 20


@dataclass(frozen=True, slots=True)
class Built:
    """Seconds of the whole publishing, and of each of its stages: of the clock, and of all processors together."""

    publish_s: float
    stages: Mapping[str, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Latency:
    """The time of single questions, asked by `threads` at once."""

    threads: int
    searches: int
    p50_ms: float
    p99_ms: float
    a_second: float

    def cells(self) -> tuple[int, int, float, float, float]:
        return self.threads, self.searches, self.p50_ms, self.p99_ms, self.a_second


@dataclass(frozen=True, slots=True)
class IndexOpening:
    """What opening and searching took; memory is over what the process had before.

    `cold` is of the first time that questions are asked where the system had forgotten the files before opening.
    `exact`: the vectors that scores are computed from equal the given ones, in float16 beside a lossy index.
    `score_error`: the most that this rounding moves a doc_score.
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
    cold: Latency | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """One type, measured."""

    spec: IndexSpec
    info: IndexInfo
    built: Built
    opened: IndexOpening


def specs(
    types: Sequence[str], n_passages: int, dimension: int, numbers: Mapping[str, int | None]
) -> dict[str, IndexSpec]:
    """One for each type, with the numbers that it knows. Raises SettingInvalid."""
    return {
        one: choose_index(
            one,
            n_passages=n_passages,
            dimension=dimension,
            memory_bytes=None,
            **{name: numbers[name] for name in NUMBERS.get(one, ()) if name in numbers},
        )
        for one in types
    }


def measure_indexes(
    folder: Path,
    places: Places,
    chosen: Mapping[str, IndexSpec],
    n_threads: int | None,
    progress: Progress,
    cold: bool = False,
) -> Report:
    """Build, open and search one index after the other, and tell `progress` when one is done.

    With `cold` the system forgets its files before it is opened, and the questions are asked once more, first.

    Indexes and figures stay in `folder`; the same vectors and specs are not measured again. `n_threads` build; None is
    one a core.
    """
    truth = folder / TRUTH
    if not truth.is_file():
        in_child(progress, find_truth, places, folder / f"new-{TRUTH}")
        (folder / f"new-{TRUTH}").replace(truth)
    results = []
    for number, (name, spec) in enumerate(chosen.items()):
        results.append(_result(folder, f"v{number}", places, spec, n_threads, progress, cold))
        one = results[-1].opened
        progress(
            *(1, 1),
            f"{name}: built in {results[-1].built.publish_s:,.0f} s, recall@5 {one.recall_5:.3f}, "
            f"p50 {one.latencies[0].p50_ms:.2f} ms at 1 thread, done",
        )
    queries = np.load(places.queries, mmap_mode="r")
    info = results[0].info
    return Report(
        experiment="bench index",
        facts={
            "vectors": places.origin,
            "passages": info.n_passages,
            "dimension": info.dimension,
            "questions": len(queries),
            "building threads": n_threads or "one a core",
            "machine": machine(),
        },
        tables=_tables(results),
    )


def _result(
    folder: Path,
    version: str,
    places: Places,
    spec: IndexSpec,
    n_threads: int | None,
    progress: Progress,
    cold: bool,
) -> Result:
    store, version = IndexStore(folder), f"{version}-{spec.index_type}"
    path = folder / f"{version}.{RESULTS}"
    known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    described = {"factory": spec.factory, "build": dict(spec.build)}
    if known.get("spec") != described or "stages" not in known["built"] or version not in store.versions():
        built: Built = in_child(progress, build, folder, version, places, spec, n_threads, folder / f".work-{version}")
        known = {"spec": described, "built": dataclasses.asdict(built), "opened": {}}
        durable.write_atomically(path, json.dumps(known))
    search = json.dumps({**spec.search, **({"cold": True} if cold else {})}, sort_keys=True)
    if search not in known.setdefault("opened", {}):
        opened: IndexOpening = in_child(
            progress, measure, folder, version, places, folder / TRUTH, THREADS, spec.search, cold
        )
        known["opened"][search] = dataclasses.asdict(opened)
        durable.write_atomically(path, json.dumps(known))
    fields = dict(known["opened"][search])
    fields |= {name: Memory(**fields[name]) for name in ("opened", "searched")}
    fields["latencies"] = tuple(Latency(**one) for one in fields["latencies"])
    fields["cold"] = Latency(**fields["cold"]) if fields.get("cold") else None
    return Result(spec, store.info(version), Built(**known["built"]), IndexOpening(**fields))


def build(
    told: Progress, folder: Path, version: str, places: Places, spec: IndexSpec, n_threads: int | None, work: Path
) -> Built:
    """Publish the vectors with passages of a few words."""
    vectors = np.load(places.vectors, mmap_mode="r")  # (N, d)
    stages: dict[str, tuple[float, float]] = {}
    began = before = _clocks()

    def report(done: int, total: int | None, what: str) -> None:
        nonlocal before
        now, so_far = _clocks(), stages.get(what, (0.0, 0.0))
        # what a report tells has happened since the one before
        stages[what] = (so_far[0] + now[0] - before[0], so_far[1] + now[1] - before[1])
        before = now
        told(done, total, f"{version} {what}")

    contents = VersionContents(
        vectors=vectors,
        passages=(Passage(str(row), f"passage {row}", "text") for row in range(len(vectors))),
        spec=spec,
        encoder_name=ENCODER,
        encoder_fingerprint=ENCODER,
    )
    # an earlier run may have left another spec
    publish(IndexStore(folder), version, contents, replace=True, work=work, report=report, n_threads=n_threads)
    return Built(time.perf_counter() - began[0], stages)


def _clocks() -> tuple[float, float]:
    """Seconds of the clock, and of the processors for this process."""
    return time.perf_counter(), time.process_time()


def find_truth(told: Progress, places: Places, path: Path) -> None:
    """Write the rows of the K largest inner products of each question over all passages: (Q, K)."""
    np.save(path, nearest(told, places, K))


def measure(
    told: Progress,
    folder: Path,
    version: str,
    places: Places,
    truth: Path,
    n_threads: tuple[int, ...],
    search: Mapping[str, int],
    cold: bool = False,
) -> IndexOpening:
    """Open the version as a service does, warm it, and search with the parameters `search`."""
    queries = np.load(places.queries)  # (Q, d)
    expected = np.load(truth)  # (Q, K)
    given = np.load(places.vectors, mmap_mode="r")  # (N, d)
    if cold:
        forget_pages(folder / version)
    before = memory()
    began = time.perf_counter()
    snapshot = IndexStore(folder).open(version)
    open_ms = 1000 * (time.perf_counter() - began)
    opened = memory().over(before)
    told(0, None, f"{version} warm")
    began = time.perf_counter()
    snapshot.warm()
    warm_s = time.perf_counter() - began

    def ask(number: int) -> NDArray[np.int64]:
        found = snapshot.search(queries[number : number + 1], K, parameters=search)  # (1, K)
        return np.asarray(found[0])

    first = _latency(ask, len(queries), 1, told, f"{version} cold") if cold else None
    latencies = tuple(_latency(ask, len(queries), threads, told, f"{version} search") for threads in n_threads)
    searched = memory().over(before)
    found = np.stack([ask(number) for number in range(len(queries))])  # (Q, K)
    precision = np.float16 if is_lossy(snapshot.info.index_type) else np.float32
    error, exact = 0.0, True
    for query, rows in zip(queries.astype(np.float64), found, strict=True):
        stored = snapshot.vectors(rows.tolist())  # (K, d)
        exact &= bool(np.array_equal(stored, given[rows].astype(precision).astype(np.float32)))
        scores = stored.astype(np.float64) @ query  # (K,)
        error = max(error, float(np.abs(scores - given[rows].astype(np.float64) @ query).max()))
    snapshot.close()
    return IndexOpening(
        open_ms=open_ms,
        warm_s=warm_s,
        opened=opened,
        searched=searched,
        latencies=latencies,
        recall_5=share_found(found, expected, 5),
        recall_10=share_found(found, expected, 10),
        score_error=error,
        exact=exact,
        cold=first,
    )


def _latency(ask: Callable[[int], object], n_queries: int, n_threads: int, told: Progress, what: str) -> Latency:
    """Each thread asks one question after the other until all are asked or the time is over."""
    seconds: list[float] = []
    numbers = iter(range(n_queries))
    began = time.perf_counter()

    def run(_: int) -> None:
        for number in numbers:
            asked = time.perf_counter()
            if asked - began > SEARCH_S and len(seconds) >= LEAST_SEARCHES:
                return
            ask(number)
            seconds.append(time.perf_counter() - asked)

    with ThreadPoolExecutor(n_threads) as threads:
        list(threads.map(run, range(n_threads)))
    took = time.perf_counter() - began
    told(n_threads, None, what)
    p50, p99 = 1000 * np.percentile(seconds, [50, 99])
    return Latency(n_threads, len(seconds), float(p50), float(p99), len(seconds) / took)


def _tables(results: Sequence[Result]) -> tuple[Table, ...]:
    flat = next((one.opened for one in results if one.spec.index_type == "flat"), None)
    cost: Rows = []
    stages: Rows = []
    resident: Rows = []
    speed: Rows = []
    found: Rows = []
    for one in results:
        name, files, built, opened = one.spec.factory, one.info.files, one.built, one.opened
        index_bytes, beside = files[INDEX_FILE].bytes, files[VECTORS_FILE].bytes if VECTORS_FILE in files else 0
        in_mb = (index_bytes / MEGABYTE, beside / MEGABYTE, index_bytes / one.info.n_passages)
        cost.append((name, built.publish_s, *in_mb))
        stages += [(name, stage, *seconds) for stage, seconds in built.stages.items()]
        resident.append((name, opened.open_ms, opened.warm_s, *opened.opened.cells(), *opened.searched.cells()))
        if opened.cold is not None:
            speed.append((f"{name}, cold", *opened.cold.cells(), None))
        for number, latency in enumerate(opened.latencies):
            share = None if flat is None else 100 * latency.p50_ms / flat.latencies[number].p50_ms
            speed.append((name, *latency.cells(), share))
        searched = ", ".join(f"{key} {value}" for key, value in one.spec.search.items())
        scores = "exact" if opened.exact else "not those of the vectors"
        if opened.exact and opened.score_error:
            scores = f"exact for float16, {opened.score_error:.1e} from float32"
        found.append((name, searched, opened.recall_5, opened.recall_10, scores))
    of_memory = ("own opened", "of files opened", "own searched", "of files searched")
    return (
        Table(
            "Building, in seconds and MB",
            ("index", "publish s", "index.faiss", "vectors.npy", "bytes a passage"),
            cost,
        ),
        Table("Stages of building, in seconds", ("index", "stage", "clock", "processors"), stages),
        Table("Opening, and resident memory in MB", ("index", "open ms", "warm s", *of_memory), resident),
        Table(
            "Searching, in milliseconds a question",
            ("index", "threads", "searches", "p50", "p99", "a second", "% of flat's p50"),
            speed,
            digits=2,
        ),
        Table(
            "What is found, against comparing with all",
            ("index", "search", "recall@5", f"recall@{K}", "doc_scores"),
            found,
            digits=3,
        ),
    )
