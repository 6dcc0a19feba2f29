"""Making the files of a version, and handing them over to the folder of indexes."""

import datetime
import shutil
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from openbook.entities import Bm25Info, IndexInfo, Lineage, Passage
from openbook.errors import SourceInvalid
from openbook.indexing.array_writing import save_array, write_vectors
from openbook.indexing.bm25_build import in_order, write_bm25
from openbook.indexing.building.progress import Report, Silence
from openbook.indexing.faiss_adopting import adopt
from openbook.indexing.faiss_building import Begun, build_index, write_index
from openbook.indexing.index_spec import IndexSpec
from openbook.indexing.passage_fields import fields_of
from openbook.indexing.passage_writing import write_passages
from openbook.storage.faiss_index import FaissIndex
from openbook.storage.index_store import IndexStore
from openbook.storage.manifest import INDEX_FILE, MASKED_FILE, PASSAGES_FILE, VECTORS_FILE, is_date
from openbook.storage.passages import PassageFields, PassageFile
from openbook.storage.placing import check_free, describe, making, put_in_place

REPORT_EVERY = 10_000


@dataclass(frozen=True, slots=True)
class VersionContents:
    """What a version is made of: row i is `vectors[i]` (N, d) and the i-th passage.

    `vectors` are finite: `VectorRows` sees to it. They may be a memory map larger than memory, float32 or float16,
    which is read in slices. `passages` are read once. Each has an id of its own and text in UTF-8: `reading.read` sees
    to it. They may be a stream, and then `fields` says what they have beside their text; in a sequence this is found.
    `spec` says which index is made. `adopted` is a FAISS file in its place, whose spec `faiss_adopting.adoptable` made;
    `begun` an index to add to. With `bm25` its scores lie beside.
    """

    vectors: NDArray[np.float32]
    passages: Iterable[Passage]
    spec: IndexSpec
    encoder_name: str
    encoder_fingerprint: str
    fields: PassageFields | None = None
    snapshot_date: str | None = None
    source: str = ""
    licence: str = ""
    attribution: str = ""
    bm25: bool = False
    lineage: Lineage | None = None
    adopted: Path | None = None
    begun: Begun | None = None


def publish(
    store: IndexStore,
    version: str,
    contents: VersionContents,
    *,
    replace: bool = False,
    work: Path | None = None,
    report: Report | None = None,
    n_threads: int | None = None,
) -> IndexInfo:
    """Write a version: it is there wholly or not at all.

    Everything is written in a hidden folder, brought to the disk and moved into place by `put_in_place`. With
    `replace` a version of that name may be there; a process that has it open keeps reading it. `work` is a folder of
    this publishing alone: it keeps what FAISS has trained and filled between attempts, until the version is there.
    `report` receives done, total and what: "passages", "vectors", "train", "add", "compare", "probe", "bm25",
    "checksum".

    Raises IndexExists, UnknownIndex, and SourceInvalid for passages that no index can hold, or a file of other
    vectors.
    """
    check_free(store, version, replace=replace)
    vectors, passages, spec, fields = contents.vectors, contents.passages, contents.spec, contents.fields
    if contents.snapshot_date is not None and not is_date(contents.snapshot_date):
        raise SourceInvalid(source=version, reason=f"{contents.snapshot_date!r} is no date such as 2018-12-20")
    if vectors.ndim != 2 or vectors.shape[1] < 1:
        raise SourceInvalid(source=version, reason=f"vectors of shape {vectors.shape} do not fit passages")
    if fields is None:
        fields = fields_of(passages if isinstance(passages, Sequence) else ())
    told = report or Silence().update
    with making(store, version) as place:
        _write_passages(place / PASSAGES_FILE, version, passages, fields, vectors, told)
        if spec.lossy:
            write_vectors(place / VECTORS_FILE, vectors, version, lambda done: told(done, len(vectors), "vectors"))
        reason = _write_index(place, version, contents, work, told, n_threads)
        scored = _write_bm25(place, version, fields, told) if contents.bm25 else None
        info = IndexInfo(
            version=version,
            n_passages=len(vectors),
            dimension=vectors.shape[1],
            index_type=spec.index_type,
            encoder_name=contents.encoder_name,
            encoder_fingerprint=contents.encoder_fingerprint,
            created_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            snapshot_date=contents.snapshot_date,
            source=contents.source,
            licence=contents.licence,
            attribution=contents.attribution,
            factory=spec.factory,
            index_reason=reason,
            search=dict(spec.search),
            bm25=scored,
            lineage=contents.lineage,
            passages_format=fields.passages_format,
            metadata=dict(fields.metadata),
            files=describe(
                place,
                sorted(path.name for path in place.iterdir()),
                lambda done, total: told(done, total, "checksum"),
            ),
        )
        put_in_place(store, place, info, replace=replace)
    if work is not None:
        shutil.rmtree(work, ignore_errors=True)
    return info


def _write_passages(
    path: Path,
    version: str,
    passages: Iterable[Passage],
    fields: PassageFields,
    vectors: NDArray[np.float32],
    report: Report,
) -> None:
    """Raises SourceInvalid unless each passage has a vector and no field but `fields`."""
    n_written = 0

    def counted() -> Iterable[Passage]:
        nonlocal n_written
        for n_written, passage in enumerate(passages, start=1):
            if n_written % REPORT_EVERY == 0:
                report(n_written, len(vectors), "passages")
            yield passage

    write_passages(path, counted(), fields)
    if len(vectors) != n_written:
        raise SourceInvalid(source=version, reason=f"vectors of shape {vectors.shape} do not fit {n_written} passages")


def _write_index(
    place: Path, version: str, contents: VersionContents, work: Path | None, report: Report, n_threads: int | None
) -> str:
    """Write index.faiss and what it masks; returns why the index is of its type."""
    vectors, spec, begun = contents.vectors, contents.spec, contents.begun
    path, reason, masked = place / INDEX_FILE, spec.reason, None
    if contents.adopted is not None:
        reason = adopt(contents.adopted, path, vectors, spec, report)
    else:
        write_index(path, build_index(vectors, spec, work=work, report=report, n_threads=n_threads, begun=begun))
    if begun is not None and len(begun.masked):
        masked = begun.masked
        save_array(place / MASKED_FILE, masked.astype("<i8"))
    # a defect shows here and not in a service
    with closing(FaissIndex.open(path, version=version, masked=masked)) as written:
        written.check_links()
    return reason


def _write_bm25(place: Path, version: str, fields: PassageFields, report: Report) -> Bm25Info:
    with closing(PassageFile.open(place / PASSAGES_FILE, version=version, fields=fields)) as passages:
        total = len(passages)
        taken = in_order(passages.take, total)
        return write_bm25(place, taken, total, report=lambda share: report(round(share * total), total, "bm25"))
