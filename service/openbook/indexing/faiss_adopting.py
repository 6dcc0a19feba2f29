"""A graph that FAISS made elsewhere becomes the index of a version: checked, copied, checked again, tried.

To make one takes hours at 21 million vectors; other types are trained and filled sooner. Its rows may be in another
order, it may measure another distance or hold other vectors. So a file is refused that does not find the given vectors.
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

from openbook.errors import SettingInvalid, SourceInvalid
from openbook.indexing.building.progress import Report
from openbook.indexing.index_spec import IndexSpec, choose_index
from openbook.storage.faiss_factory import FAISS, GRAPHS, essence
from openbook.storage.faiss_index import FaissIndex, read_mapped
from openbook.storage.faiss_parts import defect_of
from openbook.storage.vectors import slices

# So many of its own vectors, evenly spread, ask for the best TOP of all.
PROBES = 64
TOP = 10
# An index of these vectors finds most; one of other vectors or of another order finds next to none.
LEAST_RECALL = 0.5
SUMMING = 1e-5

_SCALAR = {"QT_8bit": "SQ8", "QT_4bit": "SQ4", "QT_6bit": "SQ6", "QT_fp16": "SQfp16", "QT_bf16": "SQbf16"}


@dataclass(frozen=True, slots=True)
class Adoptable:
    """A file that may be adopted, with its spec and its number of rows."""

    path: Path
    spec: IndexSpec
    n_vectors: int

    def check_rows(self, n_passages: int) -> None:
        """Raise SourceInvalid unless it has a row for each passage."""
        if self.n_vectors != n_passages:
            raise SourceInvalid(
                "faiss",
                source=self.path,
                reason=f"it has {self.n_vectors:,} rows where there are {n_passages:,} passages",
            )


def adoptable(path: Path, dimension: int, numbers: Mapping[str, int | None] | None = None) -> Adoptable:
    """Check whether a FAISS file can be the index of vectors of so many dimensions. Reads its lists and links once.

    `numbers` are ef_search, nprobe and candidates for later searches. Raises SourceInvalid with the first defect,
    SettingInvalid for a number that means nothing to this kind of index.
    """
    index = _read(path)
    reason = _defect(index, dimension)
    factory = _factory_of(index) if reason is None else None
    if factory is None:
        raise SourceInvalid("faiss", source=path, reason=reason or "its codes are of a kind that is not known")
    reason = defect_of(index)
    if reason is not None:
        raise SourceInvalid("faiss", source=path, reason=reason)
    given = dict(numbers or {})
    if given.get("ef_construction") is not None:
        raise SettingInvalid(setting="ef_construction", reason="means nothing to an index that is made already")
    spec = choose_index(factory, n_passages=index.ntotal, dimension=dimension, memory_bytes=None, **given)
    spec = dataclasses.replace(spec, build={}, adopted=True, reason=f"taken as it was made, from {path.name}")
    return Adoptable(path, spec, index.ntotal)


def adopt(path: Path, target: Path, vectors: NDArray[np.float32], spec: IndexSpec, report: Report) -> str:
    """Copy the file to `target` and try it as the index of `vectors` (N, d). Returns how much of them it finds.

    Raises SourceInvalid for a file that has changed since `spec` was made, and for one of other vectors.
    """
    shutil.copyfile(path, target)
    index = _read(target, said=path)
    same = (index.ntotal, index.d) == vectors.shape and _factory_of(index) == spec.factory
    if not same or defect_of(index) is not None:
        raise SourceInvalid("faiss", source=path, reason="it has changed since it was looked at")
    opened = FaissIndex(index, version=target.parent.name)
    recall, n_probes = _recall(opened, vectors, spec, report)
    found = f"of the {min(TOP, len(vectors))} best for each of {n_probes} of its own vectors it finds {recall:.0%}"
    if recall < LEAST_RECALL:
        raise SourceInvalid(
            "faiss", source=path, reason=f"it is not of these vectors, or of its rows in another order: {found}"
        )
    return f"{spec.reason}; {found}"


def _read(path: Path, said: Path | None = None) -> Any:
    try:
        return read_mapped(path)
    except (RuntimeError, MemoryError, OSError) as error:
        raise SourceInvalid("faiss", source=said or path, reason=f"FAISS cannot read it ({essence(error)})") from error


def _defect(index: Any, dimension: int) -> str | None:
    """Why the index is none of inner products of such vectors; None where nothing speaks against it."""
    if index.metric_type == faiss.METRIC_L2 and index.d == dimension + 1:
        return (
            f"it measures L2 distances over {index.d} dimensions, one more than the vectors have: so DPR's own HNSW "
            "hides inner products in distances, and its graph is of other vectors than these"
        )
    if index.metric_type != faiss.METRIC_INNER_PRODUCT:
        return "it measures distances, and a passage's score is an inner product"
    if not isinstance(index, GRAPHS):
        return f"it is an {type(index).__name__}, and only graphs (HNSW over vectors or SQ codes) are taken as they are"
    if index.d != dimension:
        return f"it is of {index.d} dimensions where the vectors have {dimension}"
    return None if index.ntotal else "it has no rows"


def _factory_of(index: Any) -> str | None:
    """The factory string that makes such a graph; None for codes that we have no string for, and for no graph."""
    if not isinstance(index, GRAPHS):
        return None
    hnsw: Any = index.hnsw
    graph = f"HNSW{hnsw.nb_neighbors(1)}"
    if isinstance(index, faiss.IndexHNSWFlat):
        return graph
    known = {getattr(faiss.ScalarQuantizer, kind): name for kind, name in _SCALAR.items()}
    codes = known.get(FAISS.downcast_index(index.storage).sq.qtype)
    return None if codes is None else f"{graph},{codes}"


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
