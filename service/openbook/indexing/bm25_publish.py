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
from openbook.indexing.publishing import prune, put_in_place
from openbook.indexing.version_writing import describe
from openbook.storage import durable
from openbook.storage.index_store import IndexStore
from openbook.storage.manifest import BM25_FILES, MANIFEST, PASSAGES_FILE


def add_bm25(
    store: IndexStore,
    version: str,
    parameters: Bm25Parameters = ANSERINIS,
    *,
    report: Callable[[float], None] | None = None,
) -> IndexInfo:
    """Publish `version` anew with BM25 scores of its passages; they replace those that it has. Returns the manifest.

    The other files stay the same: each gets a second name. A process that has the version open keeps reading it as it
    was. Raises what `IndexStore.open` raises, IndexChecksumWrong for damaged passages, SettingInvalid for parameters
    out of range, and IndexUnreadable where another process published the version meanwhile.
    """
    parameters.check()
    with closing(store.open(version)) as snapshot:
        prune(store)
        with workplace.building(store.folder, version) as place:
            kept = {name: file for name, file in snapshot.info.files.items() if name not in BM25_FILES}
            for name, file in kept.items():
                _carry_over(store.file(version, name), place / name, file, version)
            # all its text is read now, so this finds damage before it reaches the scores
            _check_sum(place / PASSAGES_FILE, kept[PASSAGES_FILE], version)
            passages = in_order(snapshot.passages, len(snapshot))
            bm25 = write_bm25(place, passages, len(snapshot), parameters, report=report)
            info = replace(snapshot.info, bm25=bm25, files=kept | describe(place, BM25_FILES))
            for name in info.files:
                durable.sync_file(place / name)
            with store.lock:
                if store.check(version) != snapshot.identity:
                    raise IndexUnreadable(version=version, file=MANIFEST, reason="it was published again meanwhile")
                put_in_place(store, place, info, replace=True)
    return info


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
