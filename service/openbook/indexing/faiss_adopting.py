"""A FAISS file made elsewhere becomes the index of a version: checked, copied, checked again, tried.

Its rows may be in another order, it may measure another distance or hold other vectors; and a damaged file may lead a
search out of memory. So nothing is searched before every number in the file has been compared with the others, and a
file is refused that does not find the given vectors.
"""

import dataclasses
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from openbook.errors import FaissFileRefused, SettingInvalid
from openbook.indexing.building.progress import Report
from openbook.indexing.index_spec import IndexSpec, choose_index
from openbook.storage.faiss_factory import FAISS, FLAT, GRAPHS, LISTS, core_of, essence, not_served, transforms_of
from openbook.storage.faiss_index import FaissIndex, read_mapped
from openbook.storage.faiss_parts import defect_of
from openbook.storage.vectors import slices

# So many of its own vectors, evenly spread, ask for the best TOP of all.
PROBES = 64
TOP = 10
# An index of these vectors finds most; one of other vectors or of another order finds next to none.
LEAST_RECALL = 0.5
# Float16 keeps a number to one part in 2048: two files of the same vectors differ by no more.
ROUNDING = 1e-3
SUMMING = 1e-5

_SCALAR = {"QT_8bit": "SQ8", "QT_4bit": "SQ4", "QT_6bit": "SQ6", "QT_fp16": "SQfp16", "QT_bf16": "SQbf16"}


@dataclass(frozen=True, slots=True)
class Adoptable:
    """A file that may be adopted, with its spec and its number of rows."""

    path: Path
    spec: IndexSpec
    n_vectors: int

    def check_rows(self, n_passages: int) -> None:
        """Raise FaissFileRefused unless it has a row for each passage."""
        if self.n_vectors != n_passages:
            raise FaissFileRefused(
                source=self.path, reason=f"it has {self.n_vectors:,} rows where there are {n_passages:,} passages"
            )


def adoptable(path: Path, dimension: int, numbers: Mapping[str, int | None] | None = None) -> Adoptable:
    """Check whether a FAISS file can be the index of vectors of so many dimensions. Reads its lists and links once.

    `numbers` are ef_search, nprobe and candidates for later searches. Raises FaissFileRefused with the first defect,
    SettingInvalid for a number that means nothing to this kind of index.
    """
    index = _read(path)
    reason = _defect(index, dimension)
    factory = _factory_of(index) if reason is None else None
    if factory is None:
        raise FaissFileRefused(source=path, reason=reason or "its codes are of a kind that is not known")
    reason = defect_of(index)
    if reason is not None:
        raise FaissFileRefused(source=path, reason=reason)
    given = dict(numbers or {})
    if given.get("ef_construction") is not None:
        raise SettingInvalid(setting="ef_construction", reason="means nothing to an index that is made already")
    spec = choose_index(factory, n_passages=index.ntotal, dimension=dimension, memory_bytes=None, **given)
    spec = dataclasses.replace(spec, build={}, adopted=True, reason=f"taken as it was made, from {path.name}")
    return Adoptable(path, spec, index.ntotal)


def adopt(path: Path, target: Path, vectors: NDArray[np.float32], spec: IndexSpec, report: Report) -> str:
    """Copy the file to `target` and try it as the index of `vectors` (N, d). Returns how much of them it finds.

    Raises FaissFileRefused for a file that has changed since `spec` was made, and for one of other vectors.
    """
    shutil.copyfile(path, target)
    index = _read(target, said=path)
    same = not_served(index) is None and (index.ntotal, index.d) == vectors.shape and _factory_of(index) == spec.factory
    if not same or defect_of(index) is not None:
        raise FaissFileRefused(source=path, reason="it has changed since it was looked at")
    opened = FaissIndex(index, version=target.parent.name)
    if not spec.lossy:
        _check_same(path, opened, vectors, report)
    recall, n_probes = _recall(opened, vectors, spec, report)
    found = f"of the {min(TOP, len(vectors))} best for each of {n_probes} of its own vectors it finds {recall:.0%}"
    if recall < LEAST_RECALL:
        raise FaissFileRefused(
            source=path, reason=f"it is not of these vectors, or of its rows in another order: {found}"
        )
    return f"{spec.reason}; {found}"


def _read(path: Path, said: Path | None = None) -> Any:
    try:
        return read_mapped(path)
    except (RuntimeError, MemoryError, OSError) as error:
        raise FaissFileRefused(source=said or path, reason=f"FAISS cannot read it ({essence(error)})") from error


def _defect(index: Any, dimension: int) -> str | None:
    """Why the index is none of inner products of such vectors; None where nothing speaks against it."""
    if index.metric_type == faiss.METRIC_L2 and index.d == dimension + 1:
        return (
            f"it measures L2 distances over {index.d} dimensions, one more than the vectors have: so DPR's own HNSW "
            "hides inner products in distances, and its graph is of other vectors than these"
        )
    if index.metric_type != faiss.METRIC_INNER_PRODUCT:
        return "it measures distances, and a passage's score is an inner product"
    reason = not_served(index)
    if reason is None and index.d != dimension:
        reason = f"it is of {index.d} dimensions where the vectors have {dimension}"
    return reason or (None if index.ntotal else "it has no rows")


def _factory_of(index: Any) -> str | None:
    """A factory string that makes such an index; None for codes that we have no string for.

    FAISS writes every learned rotation in one way, so OPQ stands here for all of them.
    """
    core = core_of(index)
    parts = [f"OPQ1_{one.d_out}" for one in transforms_of(index)]
    if isinstance(core, LISTS):
        centres = faiss.downcast_index(core.quantizer)
        graph = f"_HNSW{_links_of(centres)}" if isinstance(centres, faiss.IndexHNSWFlat) else ""
        parts.append(f"IVF{core.nlist}{graph}")
    if isinstance(core, GRAPHS):
        parts.append(f"HNSW{_links_of(core)}")
    stored = FAISS.downcast_index(core.storage) if isinstance(core, GRAPHS) else core
    codes = _codes_of(stored)
    if codes is None:
        return None
    return ",".join(parts if isinstance(core, faiss.IndexHNSWFlat) else [*parts, codes])


def _codes_of(index: Any) -> str | None:
    if isinstance(index, (*FLAT, faiss.IndexIVFFlat)):
        return "Flat"
    if isinstance(index, (faiss.IndexPQ, faiss.IndexIVFPQ)):
        return f"PQ{index.pq.M}x{index.pq.nbits}"
    if isinstance(index, (faiss.IndexScalarQuantizer, faiss.IndexIVFScalarQuantizer)):
        known = {getattr(faiss.ScalarQuantizer, kind): name for kind, name in _SCALAR.items()}
        return known.get(index.sq.qtype)
    return None


def _links_of(graph: Any) -> int:
    return int(graph.hnsw.nb_neighbors(1))


def _check_same(path: Path, index: FaissIndex, vectors: NDArray[np.float32], report: Report) -> None:
    """Compare the vectors in a flat index, or in a graph over them: its scores come from these."""
    for part in slices(len(vectors)):
        held = index.vectors(range(part.start, part.stop))  # (b, d)
        given = np.asarray(vectors[part], dtype=np.float32)  # (b, d)
        apart = np.abs(held - given).max(axis=1) > ROUNDING * np.abs(given).max(axis=1)  # (b,)
        # NaN compares as equal
        apart |= ~np.isfinite(held).all(axis=1)
        if apart.any():
            row = part.start + int(np.argmax(apart))
            raise FaissFileRefused(source=path, reason=f"its vector of row {row} is not the passage's")
        report(part.stop, len(vectors), "compare")


def _recall(index: FaissIndex, vectors: NDArray[np.float32], spec: IndexSpec, report: Report) -> tuple[float, int]:
    """The share of the best TOP that it finds for vectors of its own, and how many of these were asked."""
    n_rows = len(vectors)
    k = min(TOP, n_rows)
    rows = np.unique(np.linspace(0, n_rows - 1, PROBES).astype(np.int64))  # (p,)
    probes = np.asarray(vectors[rows], dtype=np.float32)  # (p, d)
    best = np.full((len(rows), k), -np.inf, dtype=np.float32)  # (p, k)
    for part in slices(n_rows):
        scores = probes @ np.asarray(vectors[part], dtype=np.float32).T  # (p, b)
        best = np.partition(np.concatenate([best, scores], axis=1), -k, axis=1)[:, -k:]
        report(part.stop, n_rows, "probe")
    least = best.min(axis=1)  # (p,)
    least -= SUMMING * np.abs(least)
    n_proposed = min(n_rows, max(k, spec.search.get("candidates", k)))
    found = 0
    # least=0: fewer than k may be found, and no exact search makes up for them
    for probe, proposed, worst in zip(
        probes, index.search(probes, n_proposed, least=0, parameters=spec.search), least, strict=True
    ):
        reached = np.unique(proposed[proposed >= 0])  # (c,)
        scores = np.asarray(vectors[reached], dtype=np.float32) @ probe  # (c,)
        found += min(k, int((scores >= worst).sum()))
    return found / (k * len(rows)), len(rows)
