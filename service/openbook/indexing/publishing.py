"""Making a version and putting it into the folder of indexes, and taking one out. `IndexStore` reads what it writes."""

import datetime
import math
import os
import shutil
import time
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

import numpy as np
from numpy.typing import NDArray

from openbook.entities import Bm25Info, FileInfo, IndexInfo, Lineage, Passage
from openbook.errors import IndexChecksumWrong, IndexCorrupt, IndexExists, IndexInUse, SourceInvalid
from openbook.indexing import workplace
from openbook.indexing.bm25_build import Bm25Parameters, in_order, write_bm25
from openbook.indexing.building.progress import Report, Silence
from openbook.indexing.faiss_adopting import adopt
from openbook.indexing.faiss_building import Begun, build_index, forget, write_index
from openbook.indexing.index_spec import IndexSpec
from openbook.indexing.unique_ids import UniqueIds
from openbook.storage import current, durable
from openbook.storage.faiss_index import FaissIndex
from openbook.storage.index_store import IndexStore, check_version_name
from openbook.storage.manifest import (
    BM25_FILES,
    FOLDER_NAME,
    INDEX_FILE,
    MANIFEST,
    MASKED_FILE,
    PASSAGES_FILE,
    VECTORS_FILE,
    is_date,
    open_manifest,
    write_manifest,
)
from openbook.storage.passage_fields import PassageFields
from openbook.storage.passages import PassageFile, write_passages
from openbook.storage.vectors import save_array, slices, write_vectors

# Where an NFS mount keeps locks to its own machine, a service that has deleted or replaced files open must let go of
# them within this time.
PRUNE_AFTER_S = 3600.0
DATA_FILES = (INDEX_FILE, MASKED_FILE, PASSAGES_FILE, VECTORS_FILE, *BM25_FILES)
REPORT_EVERY = 10_000


@dataclass(frozen=True, slots=True)
class VersionContents:
    """What a version is made of: row i is `vectors[i]` (N, d) and the i-th passage.

    `vectors` may be a memory map larger than memory, float32 or float16: it is read in slices. `passages` are read
    once. They may be a stream, and then `fields` says what they have beside their text; in a sequence this is found.
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
    bm25: Bm25Parameters | None = None
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

    Raises IndexExists, InvalidVersionName, and SourceInvalid for passages that no index can hold, or a file of other
    vectors.
    """
    check_free(store, version, replace=replace)
    vectors, passages, spec, fields = contents.vectors, contents.passages, contents.spec, contents.fields
    if contents.snapshot_date is not None and not is_date(contents.snapshot_date):
        raise SourceInvalid(source=version, reason=f"{contents.snapshot_date!r} is no date such as 2018-12-20")
    if vectors.ndim != 2 or vectors.shape[1] < 1:
        raise SourceInvalid(source=version, reason=f"vectors of shape {vectors.shape} do not fit passages")
    if fields is None:
        fields = PassageFields.of(passages if isinstance(passages, Sequence) else ())
    told = report or Silence().update
    store.folder.mkdir(parents=True, exist_ok=True)
    prune(store)
    with workplace.building(store.folder, version) as place:
        _check_finite(version, vectors)
        _write_passages(place / PASSAGES_FILE, version, passages, fields, vectors, told)
        if spec.lossy:
            write_vectors(place / VECTORS_FILE, vectors, version, lambda done: told(done, len(vectors), "vectors"))
        reason = _write_index(place, version, contents, work, told, n_threads)
        scored = None if contents.bm25 is None else _write_bm25(place, version, fields, contents.bm25, told)
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
            files=describe(place, sorted(path.name for path in place.iterdir()), told),
        )
        for name in info.files:
            durable.sync_file(place / name)
        put_in_place(store, place, info, replace=replace)
    if work is not None:
        forget(work)
    return info


def publish_copy(store: IndexStore, folder: Path) -> IndexInfo:
    """Publish a version that lies ready in another folder, such as one that a package brings, under its own name.

    Raises IndexExists, and what `IndexStore.verify` raises for files that do not fit their manifest.
    """
    version = check_version_name(folder.name)
    check_free(store, version)
    source = IndexStore(folder.parent, store.databases)
    info = source.verify(version)
    store.folder.mkdir(parents=True, exist_ok=True)
    prune(store)
    with workplace.building(store.folder, version) as place:
        for name in info.files:
            shutil.copyfile(source.file(version, name), place / name)
            check_sum(place / name, info)
            durable.sync_file(place / name)
        put_in_place(store, place, info)
    return info


def check_sum(path: Path, info: IndexInfo) -> None:
    """Raise IndexChecksumWrong unless the file is the one of this name in the manifest."""
    if durable.sha256_of(path) != info.files[path.name].sha256:
        raise IndexChecksumWrong(version=info.version, file=path.name)


def link_files(store: IndexStore, info: IndexInfo, names: Iterable[str], place: Path) -> None:
    """Give files of a version a second name in `place`, or a copy where the file system has no second names.

    Raises IndexChecksumWrong for a copy of damaged bytes.
    """
    for name in names:
        source = store.file(info.version, name)
        try:
            os.link(source, place / name)
        except OSError:
            shutil.copyfile(source, place / name)
            check_sum(place / name, info)


def describe(place: Path, names: Iterable[str], report: Report) -> dict[str, FileInfo]:
    """Bytes and sha256 of these files. `report` receives the bytes of them that are read."""
    paths = [place / name for name in names]
    total, read = sum(path.stat().st_size for path in paths), 0

    def count(n_bytes: int) -> None:
        nonlocal read
        read += n_bytes
        report(read, total, "checksum")

    return {path.name: FileInfo(path.stat().st_size, durable.sha256_of(path, count)) for path in paths}


def check_free(store: IndexStore, version: str, *, replace: bool = False) -> None:
    """Raise IndexExists where `publish` would, before hours are spent on vectors. Never replaces a link or a file."""
    path = store.folder / check_version_name(version)
    if os.path.lexists(path) and not (replace and path.is_dir() and not path.is_symlink()):
        raise IndexExists(version=version)


def put_in_place(store: IndexStore, place: Path, info: IndexInfo, *, replace: bool = False) -> None:
    """Publish the files in `place`, all on the disk, under `info.version`; readers see it whole, or the old version.

    A new version takes its name by one rename. With `replace`, the files become a folder of the version that is there,
    and one rename then replaces its manifest by one that names that folder. `prune` removes the older files. Raises
    IndexExists.
    """
    target = store.folder / info.version
    if replace and target.is_dir():
        with store.lock:
            _replace(place, target, info)
        return
    write_manifest(place, info)
    durable.sync_file(place / MANIFEST)
    durable.sync_folder(place)
    try:
        place.rename(target)
    except OSError as error:
        if target.exists():
            raise IndexExists(version=info.version) from error
        raise
    durable.sync_folder(store.folder)


def delete_version(store: IndexStore, version: str) -> None:
    """Take a version's name away. A process that has it open keeps reading; `prune` removes the files.

    Raises UnknownIndex, and IndexInUse for the version that CURRENT names and for one that is being published.
    """
    store.find(version)
    prune(store)
    with store.lock:
        place = store.find(version)
        if workplace.is_being_built(store.folder, version):
            raise IndexInUse(version=version, reason="it is being published")
        if current.read(store.folder) == version:
            raise IndexInUse(version=version, reason="CURRENT names it, and services start with it")
        os.utime(place)
        place.rename(workplace.tombstone(store.folder, version))
        durable.sync_folder(store.folder)


def prune(store: IndexStore, *, older_than_s: float = PRUNE_AFTER_S) -> int:
    """Remove deleted versions and replaced files once they are so many seconds old, and what dead builds left.

    They wait because a process may have them mapped, and longer while one has: `IndexStore.open` holds a shared lock on
    each file. A local file system keeps an unlinked file until the last mapping goes. NFS keeps it only for the client
    that unlinked it: a service on another machine would end with SIGBUS. The age covers mounts that keep locks local.
    Returns how many files and folders were removed.
    """
    before = time.time() - older_than_s
    workplace.remove_dead_builds(store.folder, before=before)
    for version in store.versions():
        # a folder of another user's stays as it is
        with suppress(OSError):
            place = store.folder / version
            if _unnamed(place, version, before):
                with store.lock:
                    for path in _unnamed(place, version, before):
                        path.rename(workplace.tombstone(store.folder, version))
    n_removed = 0
    for path in workplace.hidden(store.folder, "deleted"):
        # another process may prune at the same time
        with suppress(OSError):
            if path.lstat().st_mtime > before:
                continue
            with durable.unread(one for one in (path, *path.rglob("*")) if one.is_file()) as unread:
                if unread:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
                    n_removed += 1
    return n_removed


def _check_finite(version: str, vectors: NDArray[np.float32]) -> None:
    """Read all vectors, a slice at a time. Raises SourceInvalid for one that is not finite."""
    for part in slices(len(vectors)):
        strange = np.flatnonzero(~np.isfinite(vectors[part]).all(axis=1))
        if strange.size:
            raise SourceInvalid(source=version, reason=f"the vector of row {part.start + strange[0]} is not finite")


def _write_passages(
    path: Path,
    version: str,
    passages: Iterable[Passage],
    fields: PassageFields,
    vectors: NDArray[np.float32],
    report: Report,
) -> None:
    """Write them, and raise SourceInvalid unless each has an id of its own, text in UTF-8, a vector and no field
    but `fields`."""
    ids = UniqueIds(version)

    def counted() -> Iterable[Passage]:
        for passage in ids.over(passages):
            if len(ids) % REPORT_EVERY == 0:
                report(len(ids), len(vectors), "passages")
            yield passage

    try:
        write_passages(path, counted(), fields)
    except UnicodeEncodeError as error:
        raise SourceInvalid(source=version, reason=f"text that UTF-8 cannot hold: {error.object!r:.80}") from error
    with closing(PassageFile.open(path, version=version, fields=fields)) as written:
        ids.check(lambda: in_order(written.take, len(written)))
    if len(vectors) != len(ids):
        raise SourceInvalid(source=version, reason=f"vectors of shape {vectors.shape} do not fit {len(ids)} passages")


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


def _write_bm25(
    place: Path,
    version: str,
    fields: PassageFields,
    parameters: Bm25Parameters,
    report: Report,
) -> Bm25Info:
    with closing(PassageFile.open(place / PASSAGES_FILE, version=version, fields=fields)) as passages:
        total = len(passages)
        return write_bm25(
            place,
            in_order(passages.take, total),
            total,
            parameters,
            report=lambda share: report(round(share * total), total, "bm25"),
        )


def _replace(place: Path, target: Path, info: IndexInfo) -> None:
    folder = f"r-{token_hex(4)}"
    write_manifest(place, info, files_in=folder)
    durable.sync_file(place / MANIFEST)
    durable.sync_folder(place)
    unnamed = _unnamed(target, info.version)
    for path in _data(target):
        if path not in unnamed:
            # the age of a replaced file counts from now
            os.utime(path)
    place.rename(target / folder)
    durable.sync_folder(target)
    (target / folder / MANIFEST).rename(target / MANIFEST)
    durable.sync_folder(target)


def _unnamed(place: Path, version: str, before: float = math.inf) -> list[Path]:
    """What lies in a version, is not named by its manifest and has not changed since `before`.

    Empty where the manifest cannot be read: it may yet be mended.
    """
    try:
        folder = open_manifest(place, version).folder
    except IndexCorrupt:
        return []
    unnamed = (path for path in _data(place) if path != folder and (path.name not in DATA_FILES or folder != place))
    return [path for path in unnamed if path.lstat().st_mtime <= before]


def _data(place: Path) -> list[Path]:
    return [path for path in place.iterdir() if path.name in DATA_FILES or FOLDER_NAME.fullmatch(path.name)]
