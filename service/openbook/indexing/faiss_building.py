"""Vectors to a FAISS index: trained on a sample, filled slice by slice, and picked up again where it was stopped.

The vectors may be larger than memory: a slice of them is read at a time. A flat index is written slice by slice; any
other is held in memory while it is filled. With a folder for the work, each step of the training is kept, and the
partly filled index now and then, so that a killed build continues from there. The slices, the sample and the levels
of a graph do not depend on where it was stopped: with one thread the bytes are the same either way.
"""

import os
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from openbook.indexing.faiss_work import BuildingWork
from openbook.indexing.index_spec import IndexSpec
from openbook.storage.faiss_factory import LISTS, core_of, new_index, transforms_of
from openbook.storage.faiss_index import allowed_threads
from openbook.storage.vectors import slices

# Receives done, total and what. The total is None while it is not known; "train" counts steps, "add" rows.
Report = Callable[[int, int | None, str], None]

# A graph is slow to fill: with small slices it can be stopped, saved and shown more often.
GRAPH_SLICE_ROWS = 1 << 12
SLICE_ROWS = 1 << 15
SAVE_EVERY_S = 300.0
SAMPLE_SEED = 1234
CENTRE_ROUNDS = 10
ROTATION_ROUNDS = 12
# Of the graph that finds the nearest lists: small, and searched for every vector that is added.
CENTRE_EF = 128
TRAINED, FILLING = "trained.faiss", "filling.faiss"


def build_index(
    vectors: NDArray[np.float32],
    spec: IndexSpec,
    *,
    work: Path | None = None,
    report: Report | None = None,
    n_threads: int | None = None,
    save_every_s: float = SAVE_EVERY_S,
) -> Any:
    """A FAISS index of `vectors` (N, d), in memory. The other arguments are those of `write_index`."""
    building = _Building(vectors, spec, BuildingWork(work, spec, vectors), report or _silent, save_every_s)
    with allowed_threads(n_threads or os.cpu_count() or 1):
        return building.run()


def write_index(
    path: Path,
    vectors: NDArray[np.float32],
    spec: IndexSpec,
    *,
    work: Path | None = None,
    report: Report | None = None,
    n_threads: int | None = None,
    save_every_s: float = SAVE_EVERY_S,
) -> None:
    """Write the index of `vectors` (N, d) that `spec` describes to `path`.

    `work` is a folder for this build alone, made if it is missing: it keeps what was trained and filled, saved no more
    often than every `save_every_s` (0: after each slice), and another call with the same vectors and spec continues
    from it. `report` receives done, total and "train" or "add". `n_threads` None is one a core: the bytes of a graph
    then depend on the order in which threads finish.
    """
    if spec.index_type == "flat" and _write_flat(path, vectors, report or _silent):
        return
    index = build_index(vectors, spec, work=work, report=report, n_threads=n_threads, save_every_s=save_every_s)
    faiss.write_index(index, str(path))


@dataclass(frozen=True, slots=True)
class _Building:
    vectors: NDArray[np.float32]  # (N, d)
    spec: IndexSpec
    work: BuildingWork
    report: Report
    save_every_s: float

    def run(self) -> Any:
        index = self.work.load(FILLING) or self._trained()
        self._fill(index)
        return index

    def _trained(self) -> Any:
        index = self.work.load(TRAINED) or new_index(self.spec.factory, self.vectors.shape[1])
        core = core_of(index)
        if isinstance(core, LISTS):
            centres = faiss.downcast_index(core.quantizer)
            if isinstance(centres, faiss.IndexHNSW):
                centres.hnsw.efConstruction = centres.hnsw.efSearch = CENTRE_EF
        if hasattr(core, "pq"):
            # FAISS would print a warning for each codeword of a small index
            core.pq.cp.min_points_per_centroid = 1
            # it orders codewords for a search that we do not use, and a file does not keep this setting
            core.do_polysemous_training = False
        if hasattr(core, "hnsw"):
            core.hnsw.efConstruction = self.spec.build["efConstruction"]
            core.hnsw.efSearch = self.spec.search["efSearch"]
        if not index.is_trained:
            self._train(index, core)
        return index

    def _train(self, index: Any, core: Any) -> None:
        """Train and keep one step after the other: the transforms, the centres of the lists by rounds, the codes."""
        transforms = transforms_of(index)
        rounds = CENTRE_ROUNDS if isinstance(core, LISTS) else 0
        steps = len(transforms) + rounds + 1
        self.report(0, steps, "train")
        sample = self._sample()  # (n, d)
        for number, transform in enumerate(transforms):
            if not transform.is_trained:
                if isinstance(transform, faiss.OPQMatrix):
                    transform.niter = ROTATION_ROUNDS
                transform.train(sample)
                self.work.save(index, TRAINED)
            sample = transform.apply(sample)  # (n, d')
            self.report(number + 1, steps, "train")
        if rounds and core.quantizer.ntotal == 0:
            centres = self._centres(
                sample, core.nlist, lambda done: self.report(len(transforms) + done, steps, "train")
            )
            core.quantizer.train(centres)
            core.quantizer.add(centres)
            self.work.save(index, TRAINED)
        core.train(sample)
        index.is_trained = True
        self.work.save(index, TRAINED)
        self.report(steps, steps, "train")

    def _centres(self, sample: NDArray[np.float32], n_lists: int, report: Callable[[int], None]) -> NDArray[np.float32]:
        """Spherical k-means, as FAISS trains the lists of an index of inner products, kept after each round: (L, d)."""
        done, centres = self.work.load_centres()
        while done < CENTRE_ROUNDS:
            clustering = faiss.Clustering(sample.shape[1], n_lists)
            clustering.niter, clustering.spherical, clustering.min_points_per_centroid = 1, True, 1
            if centres is not None:
                faiss.copy_array_to_vector(centres.ravel(), clustering.centroids)
            clustering.train(sample, faiss.IndexFlatIP(sample.shape[1]))
            centres = faiss.vector_to_array(clustering.centroids).reshape(n_lists, -1)  # (L, d)
            done += 1
            self.work.save_centres(done, centres)
            report(done)
        if centres is None:
            raise RuntimeError("no centre was trained")
        return centres

    def _sample(self) -> NDArray[np.float32]:
        n_rows = self.vectors.shape[0]
        wanted = min(n_rows, self.spec.build.get("train", n_rows))
        rows = np.sort(np.random.default_rng(SAMPLE_SEED).choice(n_rows, wanted, replace=False))  # (n,)
        return self._as_stored(self.vectors[rows])

    def _fill(self, index: Any) -> None:
        n_rows = self.vectors.shape[0]
        core = core_of(index)
        if hasattr(core, "hnsw"):
            # a graph that was read draws its levels from the beginning: pass over those of its rows
            for _ in range(index.ntotal if self.work.resumed else 0):
                core.hnsw.random_level()
        self.report(index.ntotal, n_rows, "add")
        saved, took = time.monotonic(), 0.0
        for part in slices(n_rows, GRAPH_SLICE_ROWS if hasattr(core, "hnsw") else SLICE_ROWS):
            if part.stop <= index.ntotal:
                continue
            index.add(self._as_stored(self.vectors[part]))
            now = time.monotonic()
            # saving takes at most a tenth of the time; a full index is always saved, since publishing may be killed
            pause = max(self.save_every_s, 10 * took) if self.save_every_s else 0.0
            if part.stop == n_rows or now - saved >= pause:
                self.work.save(index, FILLING)
                saved = time.monotonic()
                took = saved - now
            self.report(part.stop, n_rows, "add")

    def _as_stored(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """The rows rounded as they are stored, since scores are computed from stored vectors: (n, d)."""
        if self.spec.lossy:
            rows = np.asarray(rows, dtype=np.float16)
        return np.ascontiguousarray(rows, dtype=np.float32)


def _write_flat(path: Path, vectors: NDArray[np.float32], report: Report) -> bool:
    """Write a flat index without holding it: FAISS's own head, then the rows. False for a head of unknown form."""
    n_rows, dimension = vectors.shape
    one = faiss.IndexFlatIP(dimension)
    one.add(np.zeros((1, dimension), dtype=np.float32))
    head = bytearray(faiss.serialize_index(one).tobytes()[: -4 * dimension])
    # kind, dimension, rows, ..., how many numbers follow
    if struct.unpack_from("<4siq", head) != (b"IxFI", dimension, 1) or struct.unpack_from(
        "<Q", head, len(head) - 8
    ) != (dimension,):
        return False
    struct.pack_into("<q", head, 8, n_rows)
    struct.pack_into("<Q", head, len(head) - 8, n_rows * dimension)
    with path.open("wb") as file:
        file.write(head)
        for part in slices(n_rows):
            file.write(np.ascontiguousarray(vectors[part], dtype="<f4").tobytes())
            report(part.stop, n_rows, "add")
    return True


def _silent(done: int, total: int | None, what: str) -> None:
    """Reports nothing."""
