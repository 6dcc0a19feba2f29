"""BM25 for a version that is there: published again with more files beside those that it has."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

from openbook.entities import IndexInfo
from openbook.errors import IndexCorrupt
from openbook.indexing.bm25_build import in_order, write_bm25
from openbook.storage.index_store import IndexStore
from openbook.storage.manifest import BM25_FILES, MANIFEST, PASSAGES_FILE
from openbook.storage.placing import check_sum, describe, link_files, making, put_in_place


def add_bm25(store: IndexStore, version: str, *, report: Callable[[float], None] | None = None) -> IndexInfo:
    """Publish `version` again with BM25 scores of its passages; they replace those that it has. Returns the manifest.

    The other files stay the same: each gets a second name, or a copy where the file system has no second names. A
    process that has the version open keeps reading it. Raises what `IndexStore.open` raises, IndexCorrupt for
    damaged passages, and IndexCorrupt where another process published the version meanwhile.
    """
    with closing(store.open(version)) as snapshot, making(store, version) as place:
        info = snapshot.info
        kept = {name: file for name, file in info.files.items() if name not in BM25_FILES}
        link_files(store, info, kept, place)
        # all its text is read now, so this finds damage before it reaches the scores
        check_sum(place / PASSAGES_FILE, info)
        passages = in_order(snapshot.passages, len(snapshot))
        bm25 = write_bm25(place, passages, len(snapshot), report=report)
        info = replace(info, bm25=bm25, files=kept | describe(place, BM25_FILES))
        with store.lock:
            if store.check(version) != snapshot.identity:
                raise IndexCorrupt("file", version=version, file=MANIFEST, reason="it was published again meanwhile")
            put_in_place(store, place, info, replace=True)
    return info
