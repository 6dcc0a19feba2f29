"""BM25 for a version that is there: published anew with more files beside those that it has."""

import os
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from openbook.entities import FileInfo, IndexInfo
from openbook.errors import IndexChecksumWrong, IndexUnreadable
from openbook.indexing import workplace
from openbook.indexing.bm25_build import ANSERINIS, Bm25Parameters, in_order, write_bm25
from openbook.storage import durable, hidden_folders
from openbook.storage.index_store import IndexStore
from openbook.storage.manifest import BM25_FILES, MANIFEST, PASSAGES_FILE, write_manifest


def add_bm25(
    store: IndexStore,
    version: str,
    parameters: Bm25Parameters = ANSERINIS,
    *,
    report: Callable[[float], None] | None = None,
) -> IndexInfo:
    """Publish `version` anew with BM25 scores of its passages; what BM25 it had gives way. Returns the manifest.

    Vectors and passages are the very files that were there, and whoever has the version open goes on reading it as it
    was. Raises what `IndexStore.open` raises, IndexChecksumWrong for damaged passages, SettingInvalid for parameters
    out of range, and IndexUnreadable where the version was published by somebody else meanwhile.
    """
    parameters.check()
    with closing(store.open(version)) as snapshot, workplace.building(store.folder, version) as place:
        folder = _folder(store, version)
        kept = {name: file for name, file in snapshot.info.files.items() if name not in BM25_FILES}
        for name, file in kept.items():
            _carry_over(folder / name, place / name, file, version)
        # its text is all read now, so that its damage would be found for certain later on
        _check_sum(place / PASSAGES_FILE, kept[PASSAGES_FILE], version)
        passages = in_order(snapshot.passages, len(snapshot))
        bm25 = write_bm25(place, passages, len(snapshot), parameters, report=report)
        info = replace(snapshot.info, bm25=bm25, files=kept | describe_bm25(place))
        write_manifest(place, info)
        for name in (*info.files, MANIFEST):
            durable.sync_file(place / name)
        if store.check(version) != snapshot.identity:
            raise IndexUnreadable(version=version, file=MANIFEST, reason="it was published again meanwhile")
        if (store.folder / version).exists():
            workplace.replace(place, store.folder / version, version)
        else:
            workplace.install(place, store.folder / version)
            workplace.remove_replaced(store.folder, version)
    return info


def describe_bm25(place: Path) -> dict[str, FileInfo]:
    """Bytes and sha256 of the files that `write_bm25` has written."""
    return {
        name: FileInfo(bytes=(place / name).stat().st_size, sha256=durable.sha256_of(place / name))
        for name in BM25_FILES
    }


def _folder(store: IndexStore, version: str) -> Path:
    """Where the version lies: the folder of its name, or what a publisher that died between two renames left."""
    folder = store.folder / version
    return folder if folder.is_dir() else hidden_folders.replaced(store.folder, version) or folder


def _carry_over(source: Path, target: Path, file: FileInfo, version: str) -> None:
    """The same file under a second name, or a copy where the file system has no such names."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
        _check_sum(target, file, version)


def _check_sum(path: Path, file: FileInfo, version: str) -> None:
    if durable.sha256_of(path) != file.sha256:
        raise IndexChecksumWrong(version=version, file=path.name)
