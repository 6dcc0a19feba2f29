"""What a swap costs: its stages, the pause that readers see, and the memory at each stage, under both policies."""

import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from openbook.application.live_index import Lease, LiveIndex
from openbook.application.swap_index import Fit, SwapIndex, SwapPolicy
from openbook.application.telemetry import Telemetry
from openbook.errors import NoLiveIndex
from openbook.storage.index_store import IndexStore
from openbook_lab.benchmarks.children import MEGABYTE, Memory, Progress, forget_pages, memory
from openbook_lab.benchmarks.http import at
from openbook_lab.benchmarks.synthetic import VERSIONS
from openbook_lab.evaluation.reports import Report, Rows, Table, machine

POLICIES: tuple[SwapPolicy, ...] = ("availability", "resource")
STAGES = ("verify", "open", "drain", "warm", "flip", "current", "total")
# Passages that a reader takes at a time.
K = 5
SAMPLE_EVERY_S = 0.1
# Between two reads, as in a server: without it the reader fights for the interpreter's lock.
PAUSE_S = 0.001


class Reader:
    """A thread that reads under one lease after the other; `spans` are the begin and end of each read."""

    def __init__(self, live: LiveIndex, read: Callable[[Lease], None]) -> None:
        self.spans: list[tuple[float, float]] = []
        self._live = live
        self._read = read
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.is_set():
            began = time.perf_counter()
            # under policy resource a client must come back later; here that time is a gap
            with suppress(NoLiveIndex):
                with self._live.lease() as lease:
                    self._read(lease)
                self.spans.append((began, time.perf_counter()))
            time.sleep(PAUSE_S)


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast reads were between two moments; the gap is the longest time in which none ended."""

    reads: int
    p99_ms: float
    longest_gap_ms: float


def pace(spans: Sequence[tuple[float, float]], since: float, until: float) -> Pace:
    """Of the reads that ended between `since` and `until`. Without any p99 is nan."""
    inside = [(began, ended) for began, ended in spans if since <= ended <= until]
    ends = [since, *(ended for _, ended in inside), until]
    gap = max(after - before for before, after in pairwise(ends))
    return Pace(len(inside), 1000 * at([ended - began for began, ended in inside], 0.99), 1000 * gap)


def measure_swaps(store: IndexStore, *, swaps: int, cold: bool, quiet_s: float, progress: Progress) -> Report:
    """Swap `swaps` times between the two versions of `store` under each policy.

    Reads without a swap take as long as those with swaps, and at least `quiet_s`. With `cold` the system forgets the
    next version's files first, so that they are read from the disk.
    """
    info = store.info(VERSIONS[0])
    of_policies = [_measure_policy(store, policy, swaps, cold, quiet_s, progress) for policy in POLICIES]
    stages, paces, memories = (
        [row for rows in of_table for row in rows] for of_table in zip(*of_policies, strict=True)
    )
    return Report(
        experiment="bench swap",
        facts={
            "passages": info.n_passages,
            "dimension": info.dimension,
            "type": info.index_type,
            "MB a version": round(sum(file.bytes for file in info.files.values()) / MEGABYTE),
            "cold": str(cold),
            "machine": machine(),
        },
        tables=(
            Table("Milliseconds of each stage of a swap", ("policy", "swap", *STAGES), stages, digits=2),
            Table(
                "What a reader of five passages sees, in milliseconds",
                ("policy", "p99 quiet", "p99 in swaps", "ratio", "longest gap quiet", "longest gap in swaps"),
                paces,
                digits=2,
            ),
            Table("Largest resident memory at each stage, MB", ("policy", "stage", "own", "of files"), memories),
        ),
    )


def _measure_policy(
    store: IndexStore, policy: SwapPolicy, swaps: int, cold: bool, quiet_s: float, progress: Progress
) -> tuple[Rows, Rows, Rows]:
    """The rows of one policy: of each swap's stages, of the reader, of the memory at each stage."""
    stages: Rows = []
    info = store.info(VERSIONS[0])
    rows = np.random.default_rng(0).integers(info.n_passages, size=K).tolist()

    def fetch(lease: Lease) -> None:
        lease.snapshot.vectors(rows)
        lease.snapshot.passages(rows)

    largest: dict[str, Memory] = {"before": memory()}
    snapshot = store.open(VERSIONS[0])
    _grow(largest, "opened")
    snapshot.warm()
    _grow(largest, "warmed")
    live = LiveIndex(snapshot)
    fit = Fit(
        encoder_fingerprint=info.encoder_fingerprint,
        dimension=info.dimension,
        free_memory=lambda: sys.maxsize,
        drain_s=60,
    )
    swap_index = SwapIndex(store, live, Telemetry(), fit)
    reader = Reader(live, fetch)
    try:
        swapped_s: list[tuple[float, float]] = []
        for number in range(swaps):
            progress(number, swaps, policy)
            version = VERSIONS[(number + 1) % 2]
            if cold:
                forget_pages(store.folder / version)
            began = time.perf_counter()
            begun = swap_index.begin(version, policy=policy)
            while not begun.done():
                time.sleep(SAMPLE_EVERY_S)
                _grow(largest, f"during {swap_index.progress().stage or 'verify'}")
            seconds = begun.result().seconds
            swapped_s.append((began, time.perf_counter()))
            in_ms = (1000 * seconds[stage] if stage in seconds else None for stage in STAGES)
            stages.append((policy, number + 1, *in_ms))
            _grow(largest, "after the swap")
        progress(swaps, swaps, policy)
        began = time.perf_counter()
        time.sleep(max(quiet_s, sum(end - start for start, end in swapped_s)))
        quiet = (began, time.perf_counter())
    finally:
        reader.close()
        swap_index.close()
        live.close()
    _grow(largest, "closed")
    still = pace(reader.spans, *quiet)
    worst = [pace(reader.spans, *span) for span in swapped_s]
    p99 = max(one.p99_ms for one in worst)
    gap = max(one.longest_gap_ms for one in worst)
    paces: Rows = [(policy, still.p99_ms, p99, p99 / still.p99_ms, still.longest_gap_ms, gap)]
    return stages, paces, [(policy, stage, *one.cells()) for stage, one in largest.items()]


def _grow(largest: dict[str, Memory], stage: str) -> None:
    now, before = memory(), largest.get(stage, Memory(0, 0))
    largest[stage] = Memory(max(now.anonymous, before.anonymous), max(now.file_mapped, before.file_mapped))
