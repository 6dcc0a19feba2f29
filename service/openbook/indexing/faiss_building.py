"""Vectors to a FAISS index: trained on a sample, filled slice by slice, and continued where a build was stopped.

The vectors may be larger than memory: a slice of them is read at a time. A flat index is written slice by slice; any
other is held in memory while it is filled. A work folder keeps each step of the training and now and then the partly
filled index, so that a killed build continues from there. The slices, the sample and the levels of a graph do not
depend on where the build was stopped: with one thread the bytes are the same either way.
"""

import hashlib
import json
import os
import struct
import time
import zipfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from openbook.indexing.building.progress import Report, Silence
from openbook.indexing.faiss_encoding import ListFilling
from openbook.indexing.index_spec import IndexSpec
from openbook.storage import durable
from openbook.storage.faiss_factory import LISTS, core_of, new_index, transforms_of
from openbook.storage.faiss_index import allowed_threads
from openbook.storage.vectors import slices

# A graph is slow to fill: with small slices it can be stopped, saved and shown more often.
GRAPH_SLICE_ROWS = 1 << 12
SLICE_ROWS = 1 << 15
# Saves no more often than that; 0: after each slice.
SAVE_EVERY_S = 300.0
SAMPLE_SEED = 1234
CENTRE_ROUNDS = 10
ROTATION_ROUNDS = 12
# Candidates in the graph that finds the nearest lists: it is small, and searched for every vector that is added.
CENTRE_EF = 128
# A hash of so many rows, evenly spread, tells these vectors from others.
PROBED_ROWS = 64
# The files of a work folder.
KEY, CENTRES, TRAINED, FILLING = "building.json", "centres.npz", "trained.faiss", "filling.faiss"
# Makes an index of the first rows, to which the others are added.
Begun = Callable[[], Any]
SUFFIXES = (".faiss", ".npz", ".json", ".new")


def build_index(
    vectors: NDArray[np.float32],
    spec: IndexSpec,
    *,
    work: Path | None = None,
    report: Report | None = None,
    n_threads: int | None = None,
    begun: Begun | None = None,
) -> Any:
    """A FAISS index of `vectors` (N, d), in memory. The other arguments are those of `write_index`."""
    threads = n_threads or os.cpu_count() or 1
    building = _Building(vectors, spec, work, report or Silence().update, begun, threads)
    with allowed_threads(threads):
        return building.run()


def write_index(
    path: Path,
    vectors: NDArray[np.float32],
    spec: IndexSpec,
    *,
    work: Path | None = None,
    report: Report | None = None,
    n_threads: int | None = None,
    begun: Begun | None = None,
) -> None:
    """Write the index of `vectors` (N, d) that `spec` describes to `path`.

    `work` is a folder for this build alone, made if it is missing. Another call with the same vectors and spec
    continues from what it keeps. `report` counts steps of "train" and rows of "add". `n_threads` None is one a core:
    the bytes of a graph then depend on the order in which threads finish. `begun` makes an index of the first
    rows, in place of an empty one that is to be trained.
    """
    if spec.index_type == "flat" and _write_flat(path, vectors, report or Silence().update):
        return
    faiss.write_index(build_index(vectors, spec, work=work, report=report, n_threads=n_threads, begun=begun), str(path))


def forget(work: Path) -> None:
    """Remove what a build left in its work folder, and the folder if nothing else is in it."""
    if not work.is_dir():
        return
    for path in work.iterdir():
        if path.suffix in SUFFIXES and path.is_file():
            path.unlink(missing_ok=True)
    with suppress(OSError):  # it holds other files
        work.rmdir()


@dataclass(frozen=True, slots=True)
class _Building:
    """One build, and its work folder: without one, nothing is kept."""

    vectors: NDArray[np.float32]  # (N, d)
    spec: IndexSpec
    work: Path | None
    report: Report
    begun: Begun | None = None
    n_threads: int = 1

    def run(self) -> Any:
        self._check_work()
        index = self._load(FILLING) or (self.begun() if self.begun is not None else self._trained())
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
                "begun": self.begun is not None,
            }
        )
        path = self.work / KEY
        if not path.is_file() or path.read_text(encoding="utf-8", errors="replace") != key:
            forget(self.work)
            self.work.mkdir(parents=True, exist_ok=True)
            durable.write_atomically(path, key)

    def _load(self, name: str) -> Any | None:
        """The saved index; None if there is none, or if it cannot be read."""
        if self.work is not None and (self.work / name).is_file():
            with suppress(RuntimeError, MemoryError):
                return faiss.read_index(str(self.work / name))
        return None

    def _save(self, name: str, write: Callable[[Path], None]) -> None:
        """Write a file aside, bring it to the disk and rename it: it is there wholly or not at all."""
        if self.work is None:
            return
        aside = self.work / f"{name}.new"
        write(aside)
        durable.sync_file(aside)
        aside.replace(self.work / name)
        durable.sync_folder(self.work)

    def _save_index(self, name: str, index: Any) -> None:
        self._save(name, lambda path: faiss.write_index(index, str(path)))

    def _trained(self) -> Any:
        index = self._load(TRAINED) or new_index(self.spec.factory, self.vectors.shape[1])
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
        n_rows = len(self.vectors)
        n_sampled = min(n_rows, self.spec.build.get("train", n_rows))
        rows = np.sort(np.random.default_rng(SAMPLE_SEED).choice(n_rows, n_sampled, replace=False))  # (n,)
        sample = self._as_stored(self.vectors[rows])  # (n, d)
        for number, transform in enumerate(transforms):
            if not transform.is_trained:
                if isinstance(transform, faiss.OPQMatrix):
                    transform.niter = ROTATION_ROUNDS
                transform.train(sample)
                self._save_index(TRAINED, index)
            sample = transform.apply(sample)  # (n, d')
            self.report(number + 1, steps, "train")
        if rounds and core.quantizer.ntotal == 0:
            centres = self._centres(
                sample, core.nlist, lambda done: self.report(len(transforms) + done, steps, "train")
            )
            core.quantizer.train(centres)
            core.quantizer.add(centres)
            self._save_index(TRAINED, index)
        core.train(sample)
        index.is_trained = True
        self._save_index(TRAINED, index)
        self.report(steps, steps, "train")

    def _centres(self, sample: NDArray[np.float32], n_lists: int, report: Callable[[int], None]) -> NDArray[np.float32]:
        """Spherical k-means, as FAISS trains the lists of an index of inner products, kept after each round: (L, d)."""
        done, centres = 0, np.empty((0, sample.shape[1]), dtype=np.float32)  # (L, d)
        if self.work is not None:
            saved = self.work / CENTRES
            # where they cannot be read, they are made again
            with (
                suppress(OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile),
                saved.open("rb") as file,
                np.load(file, allow_pickle=False) as found,
            ):
                done, centres = int(found["rounds"]), np.ascontiguousarray(found["centres"], dtype=np.float32)

        def write(path: Path) -> None:
            with path.open("wb") as file:
                np.savez(file, rounds=np.int64(done), centres=centres)

        while done < CENTRE_ROUNDS:
            clustering = faiss.Clustering(sample.shape[1], n_lists)
            clustering.niter, clustering.spherical, clustering.min_points_per_centroid = 1, True, 1
            if done:
                faiss.copy_array_to_vector(centres.ravel(), clustering.centroids)
            clustering.train(sample, faiss.IndexFlatIP(sample.shape[1]))
            centres = faiss.vector_to_array(clustering.centroids).reshape(n_lists, -1)  # (L, d)
            done += 1
            self._save(CENTRES, write)
            report(done)
        return centres

    def _fill(self, index: Any) -> None:
        with ExitStack() as stack:
            add = index.add
            if ListFilling.suits(index):
                add = stack.enter_context(ListFilling(index, self.n_threads)).add
            self._fill_by(index, add)

    def _fill_by(self, index: Any, add: Callable[[NDArray[np.float32]], None]) -> None:
        n_rows = len(self.vectors)
        is_graph = hasattr(core_of(index), "hnsw")
        if is_graph:
            # a graph that was read draws its levels from the beginning: pass over those of its rows
            for _ in range(index.ntotal):
                core_of(index).hnsw.random_level()
        self.report(index.ntotal, n_rows, "add")
        saved, took = time.monotonic(), 0.0
        for part in slices(n_rows, GRAPH_SLICE_ROWS if is_graph else SLICE_ROWS):
            if part.stop <= index.ntotal:
                continue
            add(self._as_stored(self.vectors[max(part.start, index.ntotal) : part.stop]))
            now = time.monotonic()
            # saving takes at most a tenth of the time; a full index is always saved, since publishing may be killed
            pause = max(SAVE_EVERY_S, 10 * took) if SAVE_EVERY_S else 0.0
            if part.stop == n_rows or now - saved >= pause:
                self._save_index(FILLING, index)
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
