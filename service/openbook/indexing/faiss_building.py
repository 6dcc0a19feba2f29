"""Vectors to a FAISS index: trained on a sample, filled slice by slice, and continued where a build was stopped.

The vectors may be larger than memory: a slice of them is read at a time. The index is held in memory while it is
filled. A work folder keeps it once it is trained, and now and then while it is filled, so that a killed build continues
from there. The slices, the sample and the levels of a graph do not depend on where the build was stopped: with one
thread the bytes are the same either way.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from openbook.indexing.building.progress import Report, Silence
from openbook.indexing.faiss_layout import new_index
from openbook.indexing.index_spec import IndexSpec
from openbook.storage import durable
from openbook.storage.faiss_factory import LISTS, core_of, transforms_of
from openbook.storage.faiss_index import allowed_threads
from openbook.storage.vectors import slices

# A graph is slow to fill: with small slices it can be stopped, saved and shown more often.
GRAPH_SLICE_ROWS = 1 << 12
SLICE_ROWS = 1 << 15
# Saves no more often than that; 0: after each slice.
SAVE_EVERY_S = 300.0
SAMPLE_SEED = 1234
ROTATION_ROUNDS = 12
# Candidates in the graph that finds the nearest lists: it is small, and searched for every vector that is added.
CENTRE_EF = 128
# A hash of so many rows, evenly spread, tells these vectors from others.
PROBED_ROWS = 64
# The files of a work folder.
KEY, TRAINED, FILLING = "building.json", "trained.faiss", "filling.faiss"


@dataclass(frozen=True, slots=True)
class Begun:
    """An index to add to, in place of an empty one that is to be trained. `make` opens it.

    It is empty, or holds the first of the vectors. The vectors at its places `masked` (M,), rising, went.
    """

    make: Callable[[], Any]
    masked: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))


def build_index(
    vectors: NDArray[np.float32],
    spec: IndexSpec,
    *,
    work: Path | None = None,
    report: Report | None = None,
    n_threads: int | None = None,
    begun: Begun | None = None,
) -> Any:
    """The FAISS index of `vectors` (N, d) that `spec` describes, in memory.

    `work` is a folder for this build alone, made if it is missing. Another call with the same vectors and spec
    continues from what it keeps. `report` counts "train", which is one step, and rows of "add". `n_threads` None is one
    a core: the bytes of a graph then depend on the order in which threads finish.
    """
    threads = n_threads or os.cpu_count() or 1
    # a flat index is filled faster than a saved one is read
    kept = None if spec.index_type == "flat" else work
    building = _Building(vectors, spec, kept, report or Silence().update, begun)
    with allowed_threads(threads):
        return building.run()


def write_index(path: Path, index: Any) -> None:
    """Write an index as FAISS does."""
    faiss.write_index(index, str(path))


@dataclass(frozen=True, slots=True)
class _Building:
    """One build, and its work folder: without one, nothing is kept."""

    vectors: NDArray[np.float32]  # (N, d)
    spec: IndexSpec
    work: Path | None
    report: Report
    begun: Begun | None = None

    def run(self) -> Any:
        self._check_work()
        index = self._load(FILLING)
        if index is None:
            index = self._trained() if self.begun is None else self.begun.make()
        core = core_of(index)
        if hasattr(core, "hnsw"):
            core.hnsw.efConstruction = self.spec.build["efConstruction"]
            core.hnsw.efSearch = self.spec.search["efSearch"]
        self._fill(index)
        return index

    def _check_work(self) -> None:
        """Forget the work on other vectors or another spec."""
        if self.work is None:
            return
        rows = np.unique(np.linspace(0, len(self.vectors) - 1, PROBED_ROWS).astype(np.int64))  # (r,)
        key = json.dumps(
            {
                "factory": self.spec.factory,
                "build": dict(self.spec.build),
                "search": dict(self.spec.search),
                "shape": list(self.vectors.shape),
                "vectors": hashlib.sha256(np.ascontiguousarray(self.vectors[rows]).tobytes()).hexdigest(),
                "faiss": faiss.__version__,
                "masked": None if self.begun is None else len(self.begun.masked),
            }
        )
        path = self.work / KEY
        if not path.is_file() or path.read_text(encoding="utf-8", errors="replace") != key:
            shutil.rmtree(self.work, ignore_errors=True)
            self.work.mkdir(parents=True, exist_ok=True)
            durable.write_atomically(path, key)

    def _load(self, name: str) -> Any | None:
        """The saved index; None if there is none, or if it cannot be read."""
        if self.work is not None and (self.work / name).is_file():
            with suppress(RuntimeError, MemoryError):
                return faiss.read_index(str(self.work / name))
        return None

    def _save(self, name: str, index: Any) -> None:
        """Write a file aside, bring it to the disk and rename it: it is there wholly or not at all."""
        if self.work is None:
            return
        aside = self.work / f"{name}.new"
        faiss.write_index(index, str(aside))
        durable.sync_file(aside)
        aside.replace(self.work / name)
        durable.sync_folder(self.work)

    def _trained(self) -> Any:
        """An empty index that has learned what it needs, by FAISS's own training."""
        index = self._load(TRAINED) or new_index(self.spec.factory, self.vectors.shape[1])
        core = core_of(index)
        if isinstance(core, LISTS):
            centres = faiss.downcast_index(core.quantizer)
            if isinstance(centres, faiss.IndexHNSW):
                centres.hnsw.efConstruction = centres.hnsw.efSearch = CENTRE_EF
            # FAISS would print a warning for each cluster of a small index
            core.cp.min_points_per_centroid = 1
        if hasattr(core, "pq"):
            core.pq.cp.min_points_per_centroid = 1
            # it orders codewords for a search that we do not use, and a file does not keep this setting
            core.do_polysemous_training = False
        for transform in transforms_of(index):
            if isinstance(transform, faiss.OPQMatrix):
                transform.niter = ROTATION_ROUNDS
        if not index.is_trained:
            self.report(0, 1, "train")
            n_rows = len(self.vectors)
            n_sampled = min(n_rows, self.spec.build.get("train", n_rows))
            rows = np.sort(np.random.default_rng(SAMPLE_SEED).choice(n_rows, n_sampled, replace=False))  # (n,)
            index.train(self._as_stored(self.vectors[rows]))
            self._save(TRAINED, index)
            self.report(1, 1, "train")
        return index

    def _fill(self, index: Any) -> None:
        n_rows = len(self.vectors)
        n_masked = 0 if self.begun is None else len(self.begun.masked)
        is_graph = hasattr(core_of(index), "hnsw")
        if is_graph:
            # a graph that was read draws its levels from the beginning: pass over those of its rows
            for _ in range(index.ntotal):
                core_of(index).hnsw.random_level()
        done = index.ntotal - n_masked
        self.report(done, n_rows, "add")
        saved, took = time.monotonic(), 0.0
        for part in slices(n_rows, GRAPH_SLICE_ROWS if is_graph else SLICE_ROWS):
            if part.stop <= done:
                continue
            index.add(self._as_stored(self.vectors[max(part.start, done) : part.stop]))
            now = time.monotonic()
            # saving takes at most a tenth of the time; a full index is always saved, since publishing may be killed
            pause = max(SAVE_EVERY_S, 10 * took) if SAVE_EVERY_S else 0.0
            if part.stop == n_rows or now - saved >= pause:
                self._save(FILLING, index)
                saved = time.monotonic()
                took = saved - now
            self.report(part.stop, n_rows, "add")

    def _as_stored(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """The rows rounded as they are stored, since scores are computed from stored vectors: (n, d)."""
        if self.spec.lossy:
            rows = np.asarray(rows, dtype=np.float16)
        return np.ascontiguousarray(rows, dtype=np.float32)
