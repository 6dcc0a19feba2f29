"""What is written into the hidden folder of a version: passages, vectors, index, BM25; and what may go into it."""

import datetime
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from openbook.entities import Bm25Info, FileInfo, IndexInfo, Passage
from openbook.errors import SourceInvalid
from openbook.indexing.bm25_build import Bm25Parameters, in_order, write_bm25
from openbook.indexing.faiss_adopting import adopt
from openbook.indexing.faiss_building import SAVE_EVERY_S, Report, write_index
from openbook.indexing.index_spec import IndexSpec
from openbook.storage import durable
from openbook.storage.faiss_index import FaissIndex
from openbook.storage.manifest import BM25_FILES, INDEX_FILE, PASSAGES_FILE, VECTORS_FILE, is_date
from openbook.storage.passages import PassageFile, write_passages
from openbook.storage.vectors import slices, write_vectors

REPORT_EVERY = 10_000


@dataclass(frozen=True, slots=True)
class Description:
    """What a manifest says and no file of the version shows."""

    encoder_name: str
    encoder_fingerprint: str
    snapshot_date: str | None = None
    source: str = ""
    licence: str = ""
    attribution: str = ""


@dataclass(frozen=True, slots=True)
class Filling:
    """How the index is filled: see `faiss_building.write_index`. `adopted` is a file that holds it already."""

    work: Path | None = None
    report: Report | None = None
    n_threads: int | None = None
    save_every_s: float = SAVE_EVERY_S
    adopted: Path | None = None

    def told(self, done: int, total: int | None, what: str) -> None:
        if self.report is not None:
            self.report(done, total, what)


def write_version(
    place: Path,
    version: str,
    vectors: NDArray[np.float32],
    passages: Iterable[Passage],
    spec: IndexSpec,
    description: Description,
    filling: Filling,
    bm25: Bm25Parameters | None = None,
) -> IndexInfo:
    """Write all files of a version but its manifest into `place` and bring them to the disk; returns what it says.

    Row i is `vectors[i]` and passage i. Raises SourceInvalid for what no index can hold; quick checks come first.
    """
    check_finite(version, vectors)
    names = [PASSAGES_FILE]
    _write_passages(place / PASSAGES_FILE, vectors, passages, version, filling)
    if spec.lossy:
        names.append(VECTORS_FILE)
        total = vectors.shape[0]
        write_vectors(place / VECTORS_FILE, vectors, version, lambda done: filling.told(done, total, "vectors"))
    names.append(INDEX_FILE)
    reason = _write_index(place / INDEX_FILE, vectors, spec, filling)
    _check_index(place / INDEX_FILE, version, spec)
    scored = None
    if bm25 is not None:
        scored = _write_bm25(place, version, bm25, filling)
        names += BM25_FILES
    info = IndexInfo(
        version=version,
        n_passages=vectors.shape[0],
        dimension=vectors.shape[1],
        index_type=spec.index_type,
        encoder_name=description.encoder_name,
        encoder_fingerprint=description.encoder_fingerprint,
        created_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        snapshot_date=description.snapshot_date,
        source=description.source,
        licence=description.licence,
        attribution=description.attribution,
        factory=spec.factory,
        index_reason=reason,
        search=dict(spec.search),
        bm25=scored,
        files=describe(place, sorted(names), filling),
    )
    for name in names:
        durable.sync_file(place / name)
    return info


def _write_passages(
    path: Path, vectors: NDArray[np.float32], passages: Iterable[Passage], version: str, filling: Filling
) -> None:
    check = PassageCheck(version)

    def counted() -> Iterable[Passage]:
        for passage in check.over(passages):
            if check.n_passages % REPORT_EVERY == 0:
                filling.told(check.n_passages, vectors.shape[0], "passages")
            yield passage

    try:
        write_passages(path, counted())
    except UnicodeEncodeError as error:
        raise SourceInvalid(source=version, reason=f"text that UTF-8 cannot hold: {error.object!r:.80}") from error
    written = PassageFile.open(path, version=version)
    try:
        check.check(vectors, written)
    finally:
        written.close()


def _write_index(path: Path, vectors: NDArray[np.float32], spec: IndexSpec, filling: Filling) -> str:
    """Make the index, or take the one that is there; returns why it is of its type."""
    if filling.adopted is not None:
        return adopt(filling.adopted, path, vectors, spec, filling.told)
    write_index(
        path,
        vectors,
        spec,
        work=filling.work,
        report=filling.report,
        n_threads=filling.n_threads,
        save_every_s=filling.save_every_s,
    )
    return spec.reason


def _write_bm25(place: Path, version: str, parameters: Bm25Parameters, filling: Filling) -> Bm25Info:
    passages = PassageFile.open(place / PASSAGES_FILE, version=version)
    total = len(passages)
    try:
        return write_bm25(
            place,
            in_order(passages.take, total),
            total,
            parameters,
            report=lambda share: filling.told(round(share * total), total, "bm25"),
        )
    finally:
        passages.close()


def _check_index(path: Path, version: str, spec: IndexSpec) -> None:
    """Open what was written, so that a defect shows here and not in a service."""
    index = FaissIndex.open(path, version=version, factory=spec.factory)
    try:
        index.check_links()
    finally:
        index.close()


def describe(place: Path, names: Iterable[str], filling: Filling | None = None) -> dict[str, FileInfo]:
    """Bytes and sha256 of these files."""
    paths = [place / name for name in names]
    total, read = sum(path.stat().st_size for path in paths), 0

    def count(n_bytes: int) -> None:
        nonlocal read
        read += n_bytes
        if filling is not None:
            filling.told(read, total, "checksum")

    return {path.name: FileInfo(path.stat().st_size, durable.sha256_of(path, count)) for path in paths}


def check_description(version: str, snapshot_date: str | None) -> None:
    """Raise SourceInvalid for what no manifest can say."""
    if snapshot_date is not None and not is_date(snapshot_date):
        raise SourceInvalid(source=version, reason=f"{snapshot_date!r} is no date such as 2018-12-20")


def check_shape(version: str, vectors: NDArray[np.float32]) -> None:
    """Raise SourceInvalid for what is not one vector for each passage."""
    if vectors.ndim != 2 or vectors.shape[1] < 1:
        raise SourceInvalid(source=version, reason=f"vectors of shape {vectors.shape} do not fit passages")


def check_finite(version: str, vectors: NDArray[np.float32]) -> None:
    """Raise SourceInvalid for a vector that is not finite; reads all of them, a slice at a time."""
    for part in slices(vectors.shape[0]):
        strange = np.flatnonzero(~np.isfinite(vectors[part]).all(axis=1))
        if strange.size:
            raise SourceInvalid(source=version, reason=f"the vector of row {part.start + strange[0]} is not finite")


class PassageCheck:
    """Counts passages and remembers eight bytes of each id, so that millions of ids fit in memory."""

    def __init__(self, version: str) -> None:
        self.n_passages = 0
        self._version = version
        self._hashes = array("q")

    def over(self, passages: Iterable[Passage]) -> Iterator[Passage]:
        for passage in passages:
            self._hashes.append(hash(passage.passage_id))
            self.n_passages += 1
            yield passage

    def check(self, vectors: NDArray[np.float32], written: PassageFile) -> None:
        """Raise SourceInvalid where there is no passage, where vectors do not fit them, or where an id comes again."""
        if not self.n_passages:
            raise SourceInvalid(source=self._version, reason="there is no passage to index")
        if vectors.shape[0] != self.n_passages:
            raise SourceInvalid(
                source=self._version, reason=f"vectors of shape {vectors.shape} do not fit {self.n_passages} passages"
            )
        hashes = np.frombuffer(self._hashes, dtype=np.int64)  # (N,)
        order = np.argsort(hashes, kind="stable")  # (N,)
        again = hashes[order[1:]] == hashes[order[:-1]]  # (N - 1,)
        alike = np.unique(np.concatenate([order[1:][again], order[:-1][again]]))  # (a,), rows in order
        seen: set[str] = set()
        for row in alike.tolist():
            passage_id = written.take([row])[0].passage_id
            if passage_id in seen:
                raise SourceInvalid(source=self._version, reason=f"passage id {passage_id!r} comes again in row {row}")
            seen.add(passage_id)
