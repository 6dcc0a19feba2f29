"""BM25 added to a version that is there: the same vectors and passages, more files, and nothing half done."""

import errno
import os
import resource
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openbook.entities import Passage
from openbook.errors import IndexCorrupt, RetrieverUnavailable
from openbook.indexing import bm25_publish
from openbook.indexing.bm25_build import write_bm25
from openbook.indexing.bm25_publish import add_bm25
from openbook.storage import durable
from openbook.storage.index_store import IndexStore
from openbook.storage.manifest import BM25_FILES, INDEX_FILE, MANIFEST, PASSAGES_FILE
from openbook.storage.placing import prune
from tests.fixtures.indexes import publish_tiny, tiny_passages

VERSION = "tiny-2016"
NUMPY_HEAD_BYTES = 128
NAMES = {"tiny-2016", "tiny-2018", "CURRENT", ".lock"}
# enough for a report
MANY: dict[str, Any] = {
    "vectors": np.zeros((5000, 32), dtype=np.float32),
    "passages": [Passage(str(row), "Peru", "the president of peru") for row in range(5000)],
}


@pytest.fixture
def store(indexes_folder: Path) -> IndexStore:
    return IndexStore(indexes_folder)


@pytest.fixture
def no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_link(source: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "no such names here", str(source), None, str(target))

    monkeypatch.setattr(os, "link", no_link)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_vectors_passages_and_everything_else_stay_as_they_were(store: IndexStore) -> None:
    before, opened = store.info(VERSION), store.open(VERSION)
    inodes = {name: store.file(VERSION, name).stat().st_ino for name in before.files}
    after = add_bm25(store, VERSION)
    assert store.info(VERSION) == after
    assert {name: after.files[name] for name in before.files} == before.files
    assert set(after.files) == {*before.files, *BM25_FILES}
    for field in ("created_at", "n_passages", "dimension", "snapshot_date", "encoder_fingerprint", "licence"):
        assert getattr(after, field) == getattr(before, field)
    assert after.bm25 is not None
    assert (after.bm25.k1, after.bm25.b, after.bm25.analyser) == (0.9, 0.4, "english")
    # files that do not change take no more room
    assert {name: store.file(VERSION, name).stat().st_ino for name in before.files} == inodes
    assert names(store.folder) == NAMES
    # a process that has the version open keeps reading it
    assert list(opened.passages(range(12))) == tiny_passages(VERSION)
    for without in (opened, store.open("tiny-2018")):
        with pytest.raises(RetrieverUnavailable):
            without.bm25()
        without.close()
    prune(store, older_than_s=0)
    store.verify(VERSION)


def test_a_version_can_be_published_with_bm25_at_once(store: IndexStore, tmp_path: Path) -> None:
    """The same files as when it is added afterwards, reported on the way."""
    other = IndexStore(tmp_path / "other")
    told: list[str] = []
    publish_tiny(other, VERSION, **MANY, bm25=True, report=lambda done, total, what: told.append(what))
    assert "bm25" in told
    other.verify(VERSION)
    publish_tiny(store, VERSION, **MANY, replace=True)
    added = add_bm25(store, VERSION)
    assert other.info(VERSION).bm25 == added.bm25
    assert other.info(VERSION).files == added.files


def test_words_of_the_section_count(store: IndexStore) -> None:
    passages = [Passage(str(row), "Peru", "its president", section="Lima" if row == 2 else None) for row in range(4)]
    publish_tiny(
        store, VERSION, vectors=np.zeros((4, 32), dtype=np.float32), passages=passages, bm25=True, replace=True
    )
    with closing(store.open(VERSION)) as snapshot:
        assert np.flatnonzero(snapshot.bm25().scores("lima")).tolist() == [2]


def test_parameters_are_in_the_manifest_and_scores_can_be_made_again(store: IndexStore) -> None:
    first, second = add_bm25(store, VERSION), add_bm25(store, VERSION)
    assert first.bm25 is not None
    assert (first.bm25.k1, first.bm25.b) == (0.9, 0.4)
    assert set(first.files) == {INDEX_FILE, PASSAGES_FILE, *BM25_FILES}
    assert second.files == first.files


def test_every_file_is_on_the_disk_before_the_manifest_names_it(
    store: IndexStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[str] = set()
    before: list[set[str]] = []
    sync_file, rename = durable.sync_file, Path.rename

    def sync_and_tell(path: Path) -> None:
        sync_file(path)
        synced.add(path.name)

    def tell_and_rename(path: Path, target: Path) -> Path:
        before.append(set(synced))
        return rename(path, target)

    monkeypatch.setattr(durable, "sync_file", sync_and_tell)
    monkeypatch.setattr(Path, "rename", tell_and_rename)
    info = add_bm25(store, VERSION)
    assert before == [{*info.files, MANIFEST}] * 2


@pytest.mark.usefixtures("no_links")
def test_a_file_system_without_second_names_has_copies(store: IndexStore) -> None:
    add_bm25(store, VERSION)
    store.verify(VERSION)


@pytest.mark.usefixtures("no_links")
@pytest.mark.parametrize("name", [INDEX_FILE, PASSAGES_FILE])
def test_damaged_files_get_no_scores(store: IndexStore, name: str) -> None:
    path = store.folder / VERSION / name
    content = bytearray(path.read_bytes())
    content[content.find(b"president") if name == PASSAGES_FILE else -1] ^= 1
    path.write_bytes(content)
    with pytest.raises(IndexCorrupt, match=name):
        add_bm25(store, VERSION)
    assert store.info(VERSION).bm25 is None
    assert names(store.folder) == NAMES


def test_damaged_passages_with_a_second_name_get_no_scores(store: IndexStore) -> None:
    path = store.folder / VERSION / PASSAGES_FILE
    path.write_bytes(path.read_bytes().replace(b"president", b"resident!", 1))
    with pytest.raises(IndexCorrupt, match=PASSAGES_FILE):
        add_bm25(store, VERSION)


def test_a_version_that_is_published_again_meanwhile_is_not_put_back(
    store: IndexStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def and_somebody_publishes(*given: object, **more: object) -> object:
        publish_tiny(store, VERSION, replace=True, source="somebody else")
        return write(*given, **more)  # type: ignore[arg-type]

    write = bm25_publish.write_bm25
    monkeypatch.setattr(bm25_publish, "write_bm25", and_somebody_publishes)
    with pytest.raises(IndexCorrupt, match="published again meanwhile"):
        add_bm25(store, VERSION)
    assert store.info(VERSION).source == "somebody else"


def test_nothing_is_left_of_a_run_that_is_interrupted(store: IndexStore) -> None:
    def interrupt(share: float) -> None:
        raise KeyboardInterrupt

    publish_tiny(store, VERSION, **MANY, replace=True)
    with pytest.raises(KeyboardInterrupt):
        add_bm25(store, VERSION, report=interrupt)
    assert store.info(VERSION).bm25 is None
    assert names(store.folder) == NAMES


def test_a_disk_that_is_full_after_the_head_of_a_file_is_an_error(tmp_path: Path) -> None:
    """numpy.save leaves the last bytes to a buffer of C, and does not ask whether they were written."""
    passages = tiny_passages(VERSION)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (NUMPY_HEAD_BYTES, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_bm25(tmp_path, passages, len(passages))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("name", BM25_FILES)
def test_each_file_is_verified(store: IndexStore, name: str, tmp_path: Path) -> None:
    add_bm25(store, VERSION)
    path = store.file(VERSION, name)
    content = path.read_bytes()
    for damage in ("byte", "cut", "gone", "link"):
        if damage == "link":
            (tmp_path / name).write_bytes(content)
            path.symlink_to(tmp_path / name)
        elif damage == "gone":
            path.unlink()
        else:
            path.write_bytes(content[:-1] if damage == "cut" else content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(IndexCorrupt) as refused:
            store.verify(VERSION)
        assert refused.value.data["file"] == name
        if damage != "byte":
            with pytest.raises(IndexCorrupt):
                store.open(VERSION)
