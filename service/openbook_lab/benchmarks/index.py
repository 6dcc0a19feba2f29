"""What each type of index costs and finds, over the same vectors and questions, side by side."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from openbook.entities import IndexInfo
from openbook.indexing.index_spec import NUMBERS, IndexSpec, choose_index
from openbook.storage import durable
from openbook.storage.index_store import IndexStore
from openbook.storage.manifest import INDEX_FILE, VECTORS_FILE
from openbook_lab.benchmarks.children import Progress, in_child
from openbook_lab.benchmarks.index_measures import Built, K, Latency, Opened, build, find_truth, measure
from openbook_lab.benchmarks.index_vectors import Places
from openbook_lab.benchmarks.swap import MEGABYTE, Memory
from openbook_lab.evaluation.tables import Cell, Report, Table, machine

THREADS = (1, 8)
RESULTS, TRUTH = "results.json", "truth.npy"


@dataclass(frozen=True, slots=True)
class Result:
    """One type, measured."""

    spec: IndexSpec
    info: IndexInfo
    built: Built
    opened: Opened


def specs(
    types: Sequence[str], n_passages: int, dimension: int, numbers: Mapping[str, int | None]
) -> dict[str, IndexSpec]:
    """One for each type, with those of the numbers that it knows. Raises SettingInvalid."""
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
    *,
    origin: str,
    n_threads: int | None,
    progress: Progress,
) -> Report:
    """Build, open and search one index after the other, each in processes of its own.

    What was built and measured stays in `folder`, and is not done again for the same vectors and specs; each type is
    told to `progress` as soon as it is done. `n_threads` build; None is one a core.
    """
    truth = folder / TRUTH
    if not truth.is_file():
        in_child(progress, find_truth, places, folder / f"new-{TRUTH}")
        (folder / f"new-{TRUTH}").replace(truth)
    results = []
    for number, (name, spec) in enumerate(chosen.items()):
        results.append(_result(folder, f"v{number}", name, places, spec, n_threads, progress))
        progress(1, 1, f"{name}: {_in_short(results[-1])}, done")
    queries = np.load(places.queries, mmap_mode="r")
    info = results[0].info
    return Report(
        experiment="bench index",
        facts={
            "vectors": origin,
            "passages": info.n_passages,
            "dimension": info.dimension,
            "questions": len(queries),
            "building threads": n_threads or "one a core",
            "machine": machine(),
        },
        tables=_tables(results),
    )


def _result(
    folder: Path, version: str, name: str, places: Places, spec: IndexSpec, n_threads: int | None, progress: Progress
) -> Result:
    store, version = IndexStore(folder), f"{version}-{spec.index_type}"
    path = folder / f"{version}.{RESULTS}"
    known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    described = {"factory": spec.factory, "build": dict(spec.build)}
    if known.get("spec") != described or version not in store.versions():
        built: Built = in_child(progress, build, folder, version, places, spec, n_threads, folder / f".work-{version}")
        known = {"spec": described, "built": dataclasses.asdict(built)}
        durable.write_atomically(path, json.dumps(known))
    opened = known.get("opened", {}).get(_key(spec))
    if opened is None:
        measured: Opened = in_child(progress, measure, folder, version, places, folder / TRUTH, THREADS, spec.search)
        opened = dataclasses.asdict(measured)
        known.setdefault("opened", {})[_key(spec)] = opened
        durable.write_atomically(path, json.dumps(known))
    return Result(spec, store.info(version), Built(**known["built"]), _opened(opened))


def _key(spec: IndexSpec) -> str:
    return json.dumps(dict(spec.search), sort_keys=True)


def _opened(fields: Mapping[str, Any]) -> Opened:
    return Opened(
        **{
            **fields,
            "opened": Memory(**fields["opened"]),
            "searched": Memory(**fields["searched"]),
            "latencies": tuple(Latency(**one) for one in fields["latencies"]),
        }
    )


def _in_short(result: Result) -> str:
    one = result.opened
    return (
        f"built in {result.built.publish_s:,.0f} s, recall@5 {one.recall_5:.3f}, "
        f"p50 {one.latencies[0].p50_ms:.2f} ms at 1 thread"
    )


def _tables(results: Sequence[Result]) -> tuple[Table, ...]:
    flat = next((one.opened for one in results if one.spec.index_type == "flat"), None)
    cost: list[tuple[Cell, ...]] = []
    memory: list[tuple[Cell, ...]] = []
    speed: list[tuple[Cell, ...]] = []
    found: list[tuple[Cell, ...]] = []
    for one in results:
        name, files, n = one.spec.factory, one.info.files, one.info.n_passages
        index_bytes, beside = files[INDEX_FILE].bytes, files[VECTORS_FILE].bytes if VECTORS_FILE in files else 0
        cost.append(
            (
                name,
                *(one.built.train_s, one.built.add_s, one.built.publish_s),
                *(index_bytes / MEGABYTE, beside / MEGABYTE, index_bytes / n),
            )
        )
        memory.append(
            (
                name,
                *(one.opened.open_ms, one.opened.warm_s),
                *(one.opened.opened.anonymous / MEGABYTE, one.opened.opened.file_mapped / MEGABYTE),
                *(one.opened.searched.anonymous / MEGABYTE, one.opened.searched.file_mapped / MEGABYTE),
            )
        )
        for number, latency in enumerate(one.opened.latencies):
            share = None if flat is None else 100 * latency.p50_ms / flat.latencies[number].p50_ms
            speed.append(
                (name, latency.threads, latency.searches, latency.p50_ms, latency.p99_ms, latency.a_second, share)
            )
        searched = ", ".join(f"{key} {value}" for key, value in one.spec.search.items())
        scores = "exact" if one.opened.exact else "not those of the vectors"
        if one.opened.exact and one.opened.score_error:
            scores = f"exact for float16, {one.opened.score_error:.1e} from float32"
        found.append((name, searched, one.opened.recall_5, one.opened.recall_10, scores))
    opened = ("own opened", "of files opened", "own searched", "of files searched")
    return (
        Table(
            "Building, in seconds and MB",
            ("index", "train s", "add s", "publish s", "index.faiss", "vectors.npy", "bytes a passage"),
            tuple(cost),
        ),
        Table("Opening, and resident memory in MB", ("index", "open ms", "warm s", *opened), tuple(memory)),
        Table(
            "Searching, in milliseconds a question",
            ("index", "threads", "searches", "p50", "p99", "a second", "% of flat's p50"),
            tuple(speed),
            digits=2,
        ),
        Table(
            "What is found, against comparing with all",
            ("index", "search", "recall@5", f"recall@{K}", "doc_scores"),
            tuple(found),
            digits=3,
        ),
    )
