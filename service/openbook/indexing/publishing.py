"""Putting a version into the folder of indexes, and taking one out. `IndexStore` reads what this file writes."""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from openbook.entities import IndexInfo, Passage
from openbook.errors import IndexExists, IndexInUse
from openbook.indexing import workplace
from openbook.indexing.bm25_build import Bm25Parameters
from openbook.indexing.content import check_description, check_shape
from openbook.indexing.faiss_building import SAVE_EVERY_S, Report
from openbook.indexing.faiss_work import forget
from openbook.indexing.index_spec import IndexSpec, choose_index
from openbook.indexing.version_writing import Description, Filling, write_version
from openbook.storage import current, durable, hidden_folders
from openbook.storage.index_store import IndexStore, check_version_name
from openbook.storage.manifest import MANIFEST


def publish(
    store: IndexStore,
    version: str,
    *,
    vectors: NDArray[np.float32],
    passages: Iterable[Passage],
    encoder_name: str,
    encoder_fingerprint: str,
    spec: IndexSpec | None = None,
    index_type: str = "flat",
    snapshot_date: str | None = None,
    source: str = "",
    licence: str = "",
    attribution: str = "",
    replace: bool = False,
    work: Path | None = None,
    report: Report | None = None,
    n_threads: int | None = None,
    save_every_s: float = SAVE_EVERY_S,
    bm25: Bm25Parameters | None = None,
    adopted: Path | None = None,
) -> IndexInfo:
    """Write a version: row i is `vectors[i]` (N, d) and the i-th passage. It is there wholly or not at all.

    `vectors` may be a memory map larger than memory, float32 or float16: it is read in slices. `passages` are read
    once and may be a stream. The index is what `spec` says, or of `index_type` with our numbers; or `adopted`, a
    FAISS file of which `spec` is that of `faiss_adopting.adoptable`.

    Everything is written in a hidden folder, brought to the disk and moved into place by one rename. With
    `replace` a version of that name may be there already; a process that has it open goes on reading the old one.
    `work` is a folder of this publishing alone: what FAISS has trained and filled is kept there between attempts,
    saved no more often than every `save_every_s`, and removed once the version is there. `report` receives done,
    total and what: "passages", "vectors", "train", "add", "compare", "probe", "bm25", "checksum". With `bm25` its
    scores lie beside. Raises IndexExists, InvalidVersionName, SettingInvalid for an index type that cannot hold so
    many passages, SourceInvalid for passages that no index can hold, or a file that is none of these vectors.
    """
    check_free(store, version, replace=replace)
    check_description(version, snapshot_date)
    check_shape(version, vectors)
    if bm25 is not None:
        bm25.check()
    spec = spec or choose_index(
        index_type, n_passages=max(1, vectors.shape[0]), dimension=vectors.shape[1], memory_bytes=None
    )
    description = Description(encoder_name, encoder_fingerprint, snapshot_date, source, licence, attribution)
    store.folder.mkdir(parents=True, exist_ok=True)
    _restore(store, version)
    with workplace.building(store.folder, version) as place:
        filling = Filling(work, report, n_threads, save_every_s, adopted)
        info = write_version(place, version, vectors, passages, spec, description, filling, bm25)
        if replace and (store.folder / version).exists():
            workplace.replace(place, store.folder / version, version)
        else:
            _install(store, place, version)
    if work is not None:
        forget(work)
    return info


def publish_copy(store: IndexStore, folder: Path) -> IndexInfo:
    """Publish a version that lies ready in another folder, such as one that a package brings, under its own name.

    Raises IndexExists, and what `IndexStore.open` raises for files that are not those of its manifest.
    """
    version = check_version_name(folder.name)
    check_free(store, version)
    info = IndexStore(folder.parent).verify(version)
    store.folder.mkdir(parents=True, exist_ok=True)
    with workplace.building(store.folder, version) as place:
        for name in (*info.files, MANIFEST):
            shutil.copyfile(folder / name, place / name)
            durable.sync_file(place / name)
        _install(store, place, version)
    return info


def check_free(store: IndexStore, version: str, *, replace: bool = False) -> None:
    """Raise IndexExists where `publish` would, before hours are spent on vectors."""
    check_version_name(version)
    taken = os.path.lexists(store.folder / version)
    if not replace and (taken or hidden_folders.replaced(store.folder, version) is not None):
        raise IndexExists(version=version)


def delete_version(store: IndexStore, version: str) -> None:
    """Remove a version. A process that has it open goes on reading; none opens it from here on.

    Raises UnknownIndex, and IndexInUse for the version that CURRENT names and for one that is being published.
    """
    place = store.find(version)
    if workplace.is_being_built(store.folder, version):
        raise IndexInUse(version=version, reason="it is being published")
    _check_not_current(store, version)
    aside = workplace.set_aside(place, version)
    try:
        # CURRENT may have come to name it between the look and the rename
        _check_not_current(store, version)
    except IndexInUse:
        aside.rename(store.folder / version)
        raise
    workplace.remove_replaced(store.folder, version)
    workplace.remove_deleted(store.folder, version)


def _check_not_current(store: IndexStore, version: str) -> None:
    if current.read(store.folder) == version:
        raise IndexInUse(version=version, reason="CURRENT names it, so that services come back on it")


def _restore(store: IndexStore, version: str) -> None:
    """Put back a version whose publisher died between two renames; clear what it would have cleared."""
    aside = hidden_folders.replaced(store.folder, version)
    if aside is not None and not (store.folder / version).exists():
        aside.rename(store.folder / version)
    workplace.remove_replaced(store.folder, version)


def _install(store: IndexStore, place: Path, version: str) -> None:
    try:
        workplace.install(place, store.folder / version)
    except OSError as error:
        if (store.folder / version).exists():
            raise IndexExists(version=version) from error
        raise
