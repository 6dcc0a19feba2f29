import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openbook.entities import Passage
from openbook.errors import IndexCorrupt, IndexExists, IndexInUse, NoIndexes, OpenbookError, SourceInvalid, UnknownIndex
from openbook.storage import current, durable, index_store, workplace
from openbook.storage.faiss_index import IndexType
from openbook.storage.index_store import IndexStore, check_version_name
from openbook.storage.placing import check_free, delete_version, prune
from tests.fixtures.indexes import DIMENSION, ENCODER, publish_tiny, tiny_passages, tiny_vectors
from tests.fixtures.publishing import publish
from tests.waiting import PATIENCE_S

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def texts_of(store: IndexStore, version: str = "tiny-2016") -> list[Passage]:
    snapshot = store.open(version)
    passages = list(snapshot.passages(range(len(snapshot))))
    snapshot.close()
    return passages


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- publishing and opening --------------------------------------------------------------------------------


@settings(max_examples=30)
@given(
    data=st.data(),
    rows=st.lists(st.builds(Passage, texts, texts, texts), min_size=1, max_size=6, unique_by=lambda p: p.passage_id),
    index_type=st.sampled_from(["flat", "hnsw"]),
)
def test_what_is_published_is_opened(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, rows: list[Passage], index_type: IndexType
) -> None:
    numbers = st.floats(-1e3, 1e3, width=32)
    vectors = np.array([data.draw(st.lists(numbers, min_size=4, max_size=4)) for _ in rows], dtype=np.float32)
    store = IndexStore(tmp_path_factory.mktemp("indexes"))
    info = publish(
        store, "v", vectors=vectors, passages=rows, index_type=index_type, encoder_name="e", encoder_fingerprint="f"
    )
    snapshot = store.open("v", encoder_fingerprint="f", dimension=4)
    assert snapshot.info == info == store.info("v")
    assert list(snapshot.passages(range(len(rows)))) == rows
    np.testing.assert_array_equal(snapshot.vectors(range(len(rows))), vectors)
    found = snapshot.search(vectors[:1], len(rows))
    assert sorted(found[0].tolist()) == list(range(len(rows)))


def test_the_manifest_says_what_was_published(tiny_indexes: Path) -> None:
    info = IndexStore(tiny_indexes).info("tiny-2018")
    assert (info.version, info.n_passages, info.dimension, info.index_type) == ("tiny-2018", 12, DIMENSION, "flat")
    assert (info.encoder_name, info.encoder_fingerprint, info.snapshot_date) == (ENCODER, ENCODER, "2018-12-20")
    assert (info.source, info.licence) == ("written for the tests", "Apache-2.0")
    assert info.created_at.endswith("+00:00")
    for name, file in info.files.items():
        path = tiny_indexes / "tiny-2018" / name
        assert (file.bytes, file.sha256) == (path.stat().st_size, durable.sha256_of(path))


def test_a_version_is_three_files_that_others_may_read(tmp_path: Path) -> None:
    previous = os.umask(0o022)
    try:
        publish_tiny(IndexStore(tmp_path), "tiny-2016")
    finally:
        os.umask(previous)
    assert names_in(tmp_path) == ["tiny-2016"]
    assert names_in(tmp_path / "tiny-2016") == ["index.faiss", "manifest.json", "passages.arrow"]
    assert (tmp_path / "tiny-2016").stat().st_mode & 0o777 == 0o755
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "tiny-2016").iterdir()} == {0o644}


def test_vectors_of_any_layout_are_stored_row_by_row(tmp_path: Path) -> None:
    vectors = tiny_vectors(tiny_passages("tiny-2016"))
    store = IndexStore(tmp_path)
    publish_tiny(store, "tiny-2016", vectors=np.asfortranarray(vectors.astype(np.float64)))
    np.testing.assert_array_equal(store.open("tiny-2016").vectors(range(12)), vectors)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"vectors": np.zeros((11, 32), dtype=np.float32)}, r"\(11, 32\) do not fit 12"),
        ({"vectors": np.zeros(12, dtype=np.float32)}, r"\(12,\) do not fit"),
        ({"vectors": np.zeros((12, 0), dtype=np.float32)}, r"\(12, 0\) do not fit"),
        ({"snapshot_date": "yesterday"}, "is no date"),
        ({"passages": [Passage(f"{row}", "", "", url="file:///etc") for row in range(12)]}, "passage '0': url"),
        ({"passages": iter([Passage("1", "", "", section="S")])}, "a field that is not declared"),
    ],
)
def test_what_no_index_can_hold_is_refused_and_leaves_nothing(
    tmp_path: Path, changed: dict[str, object], said: str
) -> None:
    store = IndexStore(tmp_path)
    with pytest.raises(SourceInvalid, match=said):
        publish_tiny(store, "tiny-2016", **changed)
    assert names_in(tmp_path) == []


def test_a_version_is_not_published_twice(indexes_folder: Path) -> None:
    store = IndexStore(indexes_folder)
    before = texts_of(store)
    with pytest.raises(IndexExists):
        publish_tiny(store, "tiny-2016", passages=tiny_passages("tiny-2018"))
    with pytest.raises(IndexExists):
        check_free(store, "tiny-2016")
    check_free(store, "tiny-2016", replace=True)
    check_free(store, "tiny-2020")
    assert texts_of(store) == before


def test_a_version_that_another_published_meanwhile_stays(tmp_path: Path) -> None:
    store = IndexStore(tmp_path)

    def publish_first(done: int, total: int | None, what: str) -> None:
        if "tiny-2016" not in store.versions():
            publish_tiny(store, "tiny-2016")

    with pytest.raises(IndexExists):
        publish_tiny(store, "tiny-2016", passages=tiny_passages("tiny-2018"), report=publish_first)
    assert texts_of(store) == tiny_passages("tiny-2016")
    assert names_in(tmp_path) == ["tiny-2016"]


# --- publishing again --------------------------------------------------------------------------------------

PUBLISHED = {"index.faiss", "manifest.json", "passages.arrow"}


@pytest.fixture
def store(indexes_folder: Path) -> IndexStore:
    return IndexStore(indexes_folder)


def publish_newer(store: IndexStore) -> None:
    newer = tiny_passages("tiny-2018")
    publish_tiny(store, "tiny-2016", passages=newer, vectors=tiny_vectors(newer), replace=True)


def test_publishing_again_replaces_the_manifest_and_no_other_file(store: IndexStore) -> None:
    place = store.folder / "tiny-2016"
    before = {name: (place / name).stat().st_ino for name in PUBLISHED}
    publish_newer(store)
    assert texts_of(store) == tiny_passages("tiny-2018")
    [folder] = set(names_in(place)) - PUBLISHED
    assert names_in(place / folder) == ["index.faiss", "passages.arrow"]
    assert store.file("tiny-2016", "index.faiss") == place / folder / "index.faiss"
    assert {name for name in PUBLISHED if (place / name).stat().st_ino != before[name]} == {"manifest.json"}
    assert names_in(store.folder) == [".lock", "CURRENT", "tiny-2016", "tiny-2018"]


def test_a_version_can_be_opened_at_every_moment_of_being_replaced(store: IndexStore) -> None:
    old, new = tiny_passages("tiny-2016"), tiny_passages("tiny-2018")
    ended = threading.Event()

    def publish() -> None:
        try:
            for turn in range(40):
                publish_tiny(store, "tiny-2016", passages=(new, old)[turn % 2], replace=True)
        finally:
            ended.set()

    publisher = threading.Thread(target=publish)
    publisher.start()
    opened = 0
    while not ended.is_set():
        assert "tiny-2016" in store.versions()
        assert texts_of(store) in (old, new)
        opened += 1
    publisher.join()
    assert opened > 10


def test_a_manifest_replaced_before_its_files_are_open_is_read_once_more(
    store: IndexStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = index_store.open_checked

    def read_late(*given: object, **named: object) -> object:
        monkeypatch.setattr(index_store, "open_checked", read)
        publish_newer(store)
        prune(store, older_than_s=0)
        return read(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(index_store, "open_checked", read_late)
    assert texts_of(store) == tiny_passages("tiny-2018")


def test_a_folder_that_is_a_link_is_not_read(store: IndexStore, tmp_path: Path) -> None:
    publish_newer(store)
    folder = store.file("tiny-2016", "index.faiss").parent
    folder.rename(tmp_path / "outside")
    folder.symlink_to(tmp_path / "outside")
    with pytest.raises(IndexCorrupt, match="symbolic link"):
        store.open("tiny-2016")


# --- pruning -----------------------------------------------------------------------------------------------


def test_what_is_replaced_or_deleted_stays_until_it_is_old_and_not_open(store: IndexStore) -> None:
    place = store.folder / "tiny-2016"
    deleted, replaced = store.open("tiny-2018"), store.open("tiny-2016")
    os.utime(place / "index.faiss", (0, 0))
    os.utime(store.folder / "tiny-2018", (0, 0))
    publish_newer(store)
    publish_newer(store)
    delete_version(store, "tiny-2018")
    publish_tiny(store, "tiny-2018")
    assert prune(store) == 0
    assert set(names_in(place)) > PUBLISHED
    assert len(names_in(place)) == 5
    kept = store.file("tiny-2016", "index.faiss").parent
    # the folder that came after the first files, which are open
    assert prune(store, older_than_s=0) == 1
    assert set(names_in(place)) == {"manifest.json", kept.name}
    deleted.warm()
    deleted.close()
    replaced.warm()
    assert prune(store, older_than_s=0) == 1
    replaced.close()
    assert prune(store, older_than_s=0) == 2
    assert names_in(store.folder) == [".lock", "CURRENT", "tiny-2016", "tiny-2018"]
    assert texts_of(store) == tiny_passages("tiny-2018")
    assert texts_of(store, "tiny-2018") == tiny_passages("tiny-2018")


@pytest.mark.parametrize("change", [publish_newer, lambda store: delete_version(store, "tiny-2018")])
def test_the_next_change_frees_what_is_old(store: IndexStore, change: Callable[[IndexStore], None]) -> None:
    publish_newer(store)
    place = store.folder / "tiny-2016"
    for name in PUBLISHED:
        os.utime(place / name, (0, 0))
    tombstone = store.folder / ".deleted-tiny-2014-0123abcd"
    tombstone.mkdir()
    os.utime(tombstone, (0, 0))
    change(store)
    assert not (place / "index.faiss").exists()
    assert not tombstone.exists()
    assert texts_of(store) == tiny_passages("tiny-2018")


def test_pruning_leaves_what_it_does_not_know_and_what_cannot_be_read(store: IndexStore) -> None:
    publish_newer(store)
    place = store.folder / "tiny-2016"
    (place / "notes.txt").touch()
    (place / "manifest.json").write_text("{")
    assert prune(store, older_than_s=0) == 0
    publish_newer(store)
    assert prune(store, older_than_s=0) == 3
    assert "notes.txt" in names_in(place)


def test_a_folder_that_a_killed_publisher_left_is_pruned(store: IndexStore) -> None:
    left = store.folder / "tiny-2016" / "r-0123abcd"
    left.mkdir()
    (left / "index.faiss").touch()
    assert texts_of(store) == tiny_passages("tiny-2016")
    assert prune(store, older_than_s=0) == 1
    assert not left.exists()
    assert texts_of(store) == tiny_passages("tiny-2016")


# --- what is half written ----------------------------------------------------------------------------------


def test_a_half_written_version_is_never_listed_and_never_opened(indexes_folder: Path) -> None:
    store = IndexStore(indexes_folder)
    (indexes_folder / "tiny-2018").rename(indexes_folder / ".building-tiny-2018-0123abcd")
    assert store.versions() == ("tiny-2016",)
    with pytest.raises(UnknownIndex, match="Versions on disk: tiny-2016"):
        store.open("tiny-2018")


def test_a_folder_without_manifest_is_not_listed(indexes_folder: Path) -> None:
    (indexes_folder / "tiny-2018" / "manifest.json").unlink()
    store = IndexStore(indexes_folder)
    assert store.versions() == ("tiny-2016",)
    with pytest.raises(IndexCorrupt, match="has no manifest"):
        store.info("tiny-2018")


def test_what_a_dead_build_left_is_removed_by_the_next(tmp_path: Path) -> None:
    store = IndexStore(tmp_path)
    mine, old, young = (tmp_path / f".building-tiny-{number}-0123abcd" for number in (2016, 2017, 2018))
    for place in (mine, old, young):
        place.mkdir()
        (place / "index.faiss").write_bytes(b"half")
    for path in (old / "index.faiss", old):
        os.utime(path, (0, 0))
    publish_tiny(store, "tiny-2016")
    # another version's may be another machine's, whose lock is not seen here
    assert names_in(tmp_path) == [young.name, "tiny-2016"]


def test_what_a_living_build_is_writing_is_left_alone(tmp_path: Path) -> None:
    living = tmp_path / ".building-tiny-2016-0123abcd"
    living.mkdir()
    lock = os.open(living, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    publish_tiny(IndexStore(tmp_path), "tiny-2016")
    assert living.is_dir()
    os.close(lock)


def test_two_builds_of_one_version_do_not_disturb_each_other(tmp_path: Path) -> None:
    with workplace.building(tmp_path, "v") as one, workplace.building(tmp_path, "v") as other:
        assert one != other
        assert one.is_dir()
    assert names_in(tmp_path) == []


def test_a_build_that_is_interrupted_leaves_nothing(tmp_path: Path) -> None:
    def build() -> None:
        with workplace.building(tmp_path, "v") as place:
            (place / "index.faiss").write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build()
    assert names_in(tmp_path) == []


@pytest.fixture
def closed_to_us(indexes_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """tiny-2018 belongs to another user, in mode 700. Root may read it, so the system calls are made to refuse."""
    private = f"{indexes_folder / 'tiny-2018'}/"

    def refusing(call: Callable[..., Any]) -> Callable[..., Any]:
        def refuse(path: object, *more: Any, **named: Any) -> Any:
            if str(path).startswith(private):
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return call(path, *more, **named)

        return refuse

    for name in ("stat", "lstat", "open"):
        monkeypatch.setattr(os, name, refusing(getattr(os, name)))


@pytest.mark.usefixtures("closed_to_us")
def test_a_version_that_may_not_be_looked_into_is_not_listed_and_the_others_go_on(store: IndexStore) -> None:
    assert store.versions() == store.newest_first() == ("tiny-2016",)
    with pytest.raises(UnknownIndex, match=r"on disk: tiny-2016\."):
        store.open("wiki-1999")
    with pytest.raises(IndexCorrupt, match="Permission denied"):
        store.open("tiny-2018")
    (store.folder / "CURRENT").unlink()
    assert store.default_version() == "tiny-2016"
    publish_newer(store)
    assert prune(store, older_than_s=0) == 2


# --- names -------------------------------------------------------------------------------------------------

BAD_NAMES = ["", ".", "..", "../tiny-2016", "a/b", "/etc", ".hidden", "-x", "_x", "a" * 65]
BAD_NAMES += ["a\n", "a b", "é", "a\0", "a\\b"]


@pytest.mark.parametrize("error", [errno.EIO, errno.EMFILE, errno.ENOMEM])
def test_a_folder_that_the_system_does_not_read_is_a_typed_error(
    store: IndexStore, error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: object, **_: object) -> NoReturn:
        raise OSError(error, os.strerror(error), str(path))

    monkeypatch.setattr(os, "stat", fail)
    with pytest.raises(IndexCorrupt, match=f"^'tiny-2016' of index 'tiny-2016' .*: {os.strerror(error)}$"):
        store.find("tiny-2016")
    with pytest.raises(IndexCorrupt, match=f": {os.strerror(error)}$"):
        store.versions()
    monkeypatch.undo()
    monkeypatch.setattr(os, "listdir", fail)
    with pytest.raises(IndexCorrupt, match=f": {os.strerror(error)}$"):
        store.versions()


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_is_none_is_refused_everywhere(indexes_folder: Path, name: str) -> None:
    store = IndexStore(indexes_folder)
    for use in (store.info, store.open, store.verify, store.set_current, partial(check_free, store)):
        with pytest.raises(UnknownIndex, match="cannot name an index version"):
            use(name)
    with pytest.raises(UnknownIndex, match="cannot name an index version"):
        publish(
            store,
            name,
            vectors=tiny_vectors(tiny_passages("tiny-2016")),
            passages=tiny_passages("tiny-2016"),
            index_type="flat",
            encoder_name=ENCODER,
            encoder_fingerprint=ENCODER,
        )
    assert names_in(indexes_folder) == [".lock", "CURRENT", "tiny-2016", "tiny-2018"]


@pytest.mark.parametrize("name", ["a", "wiki-2018", "0", "Wiki_2018.12.20", "a" * 64, "a..b"])
def test_a_good_name_is_accepted(name: str) -> None:
    assert check_version_name(name) == name


def test_a_link_is_no_version(indexes_folder: Path, tmp_path: Path) -> None:
    outside = (indexes_folder / "tiny-2018").rename(tmp_path / "elsewhere")
    (indexes_folder / "tiny-2018").symlink_to(outside)
    store = IndexStore(indexes_folder)
    assert store.versions() == ("tiny-2016",)
    with pytest.raises(UnknownIndex):
        store.open("tiny-2018")
    with pytest.raises(IndexExists):
        publish_tiny(store, "tiny-2018")


# --- CURRENT -----------------------------------------------------------------------------------------------


def test_current_is_one_line(indexes_folder: Path) -> None:
    store = IndexStore(indexes_folder)
    assert store.current() == "tiny-2016"
    store.set_current("tiny-2018")
    assert (indexes_folder / "CURRENT").read_text() == "tiny-2018\n"
    assert store.current() == store.default_version() == "tiny-2018"


def test_without_current_the_newest_text_is_the_default(indexes_folder: Path) -> None:
    (indexes_folder / "CURRENT").unlink()
    store = IndexStore(indexes_folder)
    publish_tiny(store, "tiny-2016", snapshot_date=None, replace=True)
    assert store.current() is None
    assert store.default_version() == "tiny-2018"


def test_a_broken_version_is_never_the_default_by_its_date(indexes_folder: Path) -> None:
    (indexes_folder / "CURRENT").unlink()
    (indexes_folder / "tiny-2018" / "manifest.json").write_text("{}")
    store = IndexStore(indexes_folder)
    assert store.default_version() == "tiny-2016"
    (indexes_folder / "tiny-2016" / "manifest.json").write_text("{}")
    with pytest.raises(IndexCorrupt, match="The manifest of index"):
        store.default_version()


def test_an_empty_folder_has_no_default(tmp_path: Path) -> None:
    with pytest.raises(NoIndexes, match="openbook index build"):
        IndexStore(tmp_path).default_version()


def test_a_current_whose_version_is_gone_is_an_error(indexes_folder: Path) -> None:
    (indexes_folder / "CURRENT").write_text("tiny-2020\n")
    with pytest.raises(UnknownIndex, match="tiny-2020"):
        IndexStore(indexes_folder).default_version()


@pytest.mark.parametrize("content", [b"", b"\n", b"../tiny-2016\n", b"tiny-2016\ntiny-2018\n", b"\xff\n", b"\0" * 10])
def test_a_current_that_names_nothing_is_an_error(indexes_folder: Path, content: bytes) -> None:
    (indexes_folder / "CURRENT").write_bytes(content)
    with pytest.raises(UnknownIndex, match="cannot name an index version"):
        IndexStore(indexes_folder).current()


def test_the_newest_text_comes_first(indexes_folder: Path) -> None:
    store = IndexStore(indexes_folder)
    assert store.newest_first() == ("tiny-2018", "tiny-2016")
    (indexes_folder / "tiny-2018" / "manifest.json").write_text("{}")
    assert store.newest_first() == ("tiny-2016",)
    assert IndexStore(indexes_folder / "none").newest_first() == ()


# --- deleting ----------------------------------------------------------------------------------------------


def test_a_deleted_version_is_gone_and_who_reads_it_goes_on(store: IndexStore) -> None:
    snapshot = store.open("tiny-2018")
    delete_version(store, "tiny-2018")
    assert store.versions() == ("tiny-2016",)
    assert list(snapshot.passages(range(12))) == tiny_passages("tiny-2018")
    snapshot.warm()
    snapshot.close()
    with pytest.raises(UnknownIndex):
        delete_version(store, "tiny-2018")
    prune(store, older_than_s=0)
    assert names_in(store.folder) == [".lock", "CURRENT", "tiny-2016"]


def test_the_version_that_current_names_is_not_deleted(store: IndexStore) -> None:
    with pytest.raises(IndexInUse, match="CURRENT names it"):
        delete_version(store, "tiny-2016")
    assert texts_of(store) == tiny_passages("tiny-2016")


@pytest.mark.parametrize("first", ["set_current", "delete"])
def test_a_deletion_waits_for_current_and_current_for_a_deletion(
    store: IndexStore, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """Each checks what the other changes: between its check and its change the other may not come."""
    checked, errors = threading.Event(), []
    module, name = (current, "write") if first == "set_current" else (workplace, "tombstone")
    change = getattr(module, name)

    def change_late(*given: object) -> object:
        checked.set()
        time.sleep(0.2)
        return change(*given)

    def act(do: Callable[..., object], *given: object) -> None:
        try:
            do(*given)
        except OpenbookError as error:
            errors.append(type(error))

    monkeypatch.setattr(module, name, change_late)
    calls = [(IndexStore(store.folder).set_current, "tiny-2018"), (delete_version, store, "tiny-2018")]
    late = threading.Thread(target=act, args=calls[first == "delete"])
    late.start()
    assert checked.wait(PATIENCE_S)
    act(*calls[first != "delete"])
    late.join(PATIENCE_S)
    assert errors == [IndexInUse if first == "set_current" else UnknownIndex]
    assert store.current() in store.versions()


def test_a_version_that_is_being_published_is_not_deleted(store: IndexStore) -> None:
    with workplace.building(store.folder, "tiny-2018"), pytest.raises(IndexInUse, match="it is being published"):
        delete_version(store, "tiny-2018")
    (store.folder / ".building-tiny-2018-0123abcd").mkdir()
    delete_version(store, "tiny-2018")
    assert store.versions() == ("tiny-2016",)


@pytest.mark.parametrize(("umask", "mode"), [(0o027, 0o640), (0o002, 0o664)])
def test_the_lock_of_a_folder_has_the_mode_that_the_umask_asks_for(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        with IndexStore(tmp_path).lock:
            assert (tmp_path / index_store.LOCK).stat().st_mode & 0o777 == mode
    finally:
        os.umask(before)
