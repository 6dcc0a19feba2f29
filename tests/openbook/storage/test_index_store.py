import fcntl
import os
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openbook.entities import Passage
from openbook.errors import (
    IndexExists,
    IndexInUse,
    InvalidVersionName,
    ManifestInvalid,
    ManifestMissing,
    NoIndexes,
    SourceInvalid,
    UnknownIndex,
)
from openbook.indexing import workplace
from openbook.indexing.publishing import check_free, delete_version, publish
from openbook.storage import durable
from openbook.storage.faiss_index import IndexType
from openbook.storage.index_store import IndexStore, check_version_name
from tests.fixtures.indexes import DIMENSION, ENCODER, publish_tiny, tiny_passages, tiny_vectors

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def texts_of(store: IndexStore, version: str = "tiny-2016") -> list[Passage]:
    snapshot = store.open(version, verify="checksum")
    passages = list(snapshot.passages(range(len(snapshot))))
    snapshot.close()
    return passages


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- publishing and opening --------------------------------------------------------------------------------


@settings(deadline=None, max_examples=30)
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
    snapshot = store.open("v", encoder_fingerprint="f", dimension=4, verify="checksum")
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


def test_the_store_makes_its_folder(tmp_path: Path) -> None:
    store = IndexStore(tmp_path / "not" / "there")
    assert store.versions() == ()
    publish_tiny(store, "tiny-2016")
    assert store.versions() == ("tiny-2016",)


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
        ({"passages": []}, "no passage"),
        ({"vectors": np.zeros((11, 32), dtype=np.float32)}, r"\(11, 32\) do not fit 12"),
        ({"vectors": np.zeros(12, dtype=np.float32)}, r"\(12,\) do not fit"),
        ({"vectors": np.zeros((12, 0), dtype=np.float32)}, r"\(12, 0\) do not fit"),
        ({"vectors": np.full((12, 32), np.nan, dtype=np.float32)}, "the vector of row 0 is not finite"),
        ({"passages": [Passage("same", "", "")] * 12}, "'same' comes again in row 1"),
        ({"passages": [Passage(f"{row}\ud800", "", "") for row in range(12)]}, "UTF-8 cannot hold"),
        ({"snapshot_date": "yesterday"}, "is no date"),
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


def test_a_version_that_another_published_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = IndexStore(tmp_path)
    install = workplace.install

    def install_late(place: Path, target: Path) -> None:
        monkeypatch.setattr(workplace, "install", install)
        publish_tiny(store, "tiny-2016")
        install(place, target)

    monkeypatch.setattr(workplace, "install", install_late)
    with pytest.raises(IndexExists):
        publish_tiny(store, "tiny-2016", passages=tiny_passages("tiny-2018"))
    assert texts_of(store) == tiny_passages("tiny-2016")
    assert names_in(tmp_path) == ["tiny-2016"]


# --- publishing again --------------------------------------------------------------------------------------


@pytest.fixture(params=["exchange", "two renames"])
def kind_of_file_system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "two renames":
        monkeypatch.setattr(durable, "exchange", lambda *_: False)
    return str(request.param)


@pytest.mark.usefixtures("kind_of_file_system")
def test_publishing_again_replaces_a_version(indexes_folder: Path) -> None:
    store = IndexStore(indexes_folder)
    publish_tiny(store, "tiny-2016", passages=tiny_passages("tiny-2018"), replace=True)
    assert texts_of(store) == tiny_passages("tiny-2018")
    assert names_in(indexes_folder) == ["CURRENT", "tiny-2016", "tiny-2018"]


@pytest.mark.usefixtures("kind_of_file_system")
def test_publishing_again_makes_a_version_that_was_not_there(tmp_path: Path) -> None:
    store = IndexStore(tmp_path)
    publish_tiny(store, "tiny-2016", replace=True)
    assert texts_of(store) == tiny_passages("tiny-2016")


@pytest.mark.usefixtures("kind_of_file_system")
def test_who_reads_a_version_goes_on_reading_the_old_one(indexes_folder: Path) -> None:
    store = IndexStore(indexes_folder)
    snapshot = store.open("tiny-2016")
    vectors = snapshot.vectors(range(12))
    newer = tiny_passages("tiny-2018")
    publish_tiny(store, "tiny-2016", passages=newer, vectors=tiny_vectors(newer), replace=True)
    assert list(snapshot.passages(range(12))) == tiny_passages("tiny-2016")
    np.testing.assert_array_equal(snapshot.vectors(range(12)), vectors)
    snapshot.warm()


@pytest.mark.usefixtures("kind_of_file_system")
def test_a_version_can_be_opened_at_every_moment_of_being_replaced(indexes_folder: Path) -> None:
    store = IndexStore(indexes_folder)
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


def test_a_version_whose_publisher_died_between_two_renames_is_still_there(indexes_folder: Path) -> None:
    (indexes_folder / "tiny-2016").rename(indexes_folder / ".replaced-tiny-2016-0123abcd")
    store = IndexStore(indexes_folder)
    assert store.versions() == ("tiny-2016", "tiny-2018")
    assert store.default_version() == "tiny-2016"
    assert texts_of(store) == tiny_passages("tiny-2016")
    with pytest.raises(IndexExists):
        publish_tiny(store, "tiny-2016")


def test_what_is_left_of_a_version_on_its_way_out_is_none(indexes_folder: Path) -> None:
    """Its removal was interrupted: the manifest went, other files are still there."""
    (indexes_folder / "tiny-2018" / "manifest.json").unlink()
    (indexes_folder / "tiny-2018").rename(indexes_folder / ".replaced-tiny-2018-0123abcd")
    store = IndexStore(indexes_folder)
    assert store.versions() == ("tiny-2016",)
    with pytest.raises(UnknownIndex):
        store.info("tiny-2018")


def test_the_next_publisher_mends_it(indexes_folder: Path) -> None:
    (indexes_folder / "tiny-2016").rename(indexes_folder / ".replaced-tiny-2016-0123abcd")
    store = IndexStore(indexes_folder)
    publish_tiny(store, "tiny-2016", passages=tiny_passages("tiny-2018"), replace=True)
    assert texts_of(store) == tiny_passages("tiny-2018")
    assert names_in(indexes_folder) == ["CURRENT", "tiny-2016", "tiny-2018"]


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
    with pytest.raises(ManifestMissing):
        store.info("tiny-2018")


def test_what_a_dead_build_left_is_removed_by_the_next(tmp_path: Path) -> None:
    store = IndexStore(tmp_path)
    for name in (".building-tiny-2016-0123abcd", ".building-tiny-2018-0123abcd"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.faiss").write_bytes(b"half")
    publish_tiny(store, "tiny-2016")
    assert names_in(tmp_path) == [".building-tiny-2018-0123abcd", "tiny-2016"]


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


# --- names -------------------------------------------------------------------------------------------------

BAD_NAMES = [
    "",
    ".",
    "..",
    "../tiny-2016",
    "a/b",
    "/etc",
    ".hidden",
    "-x",
    "_x",
    "a" * 65,
    "a\n",
    "a b",
    "é",
    "a\0",
    "a\\b",
]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_is_none_is_refused_everywhere(indexes_folder: Path, name: str) -> None:
    store = IndexStore(indexes_folder)
    for use in (store.info, store.open, store.verify, store.set_current, partial(check_free, store)):
        with pytest.raises(InvalidVersionName):
            use(name)
    with pytest.raises(InvalidVersionName):
        publish(
            store,
            name,
            vectors=tiny_vectors(tiny_passages("tiny-2016")),
            passages=tiny_passages("tiny-2016"),
            index_type="flat",
            encoder_name=ENCODER,
            encoder_fingerprint=ENCODER,
        )
    assert names_in(indexes_folder) == ["CURRENT", "tiny-2016", "tiny-2018"]


@given(name=st.text(max_size=80) | st.from_regex(r"[A-Za-z0-9./_\-]{1,70}", fullmatch=True))
def test_a_name_that_is_accepted_is_one_folder_below(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    folder = Path("/indexes")
    try:
        check_version_name(name)
    except InvalidVersionName:
        return
    assert os.path.normpath(folder / name) == f"/indexes/{name}"
    assert name.isascii()
    assert 1 <= len(name) <= 64
    assert not name.startswith(".")


@pytest.mark.parametrize("name", ["a", "wiki-2018", "0", "Wiki_2018.12.20", "a" * 64, "a..b"])
def test_a_good_name_is_accepted(name: str) -> None:
    assert check_version_name(name) == name


def test_a_version_whose_name_begins_like_another_is_not_confused_with_it(tmp_path: Path) -> None:
    leftover = tmp_path / ".building-tiny-2016-next-0123abcd"
    leftover.mkdir()
    publish_tiny(IndexStore(tmp_path), "tiny-2016")
    assert leftover.is_dir()


def test_a_link_is_no_version(indexes_folder: Path, tmp_path: Path) -> None:
    outside = (indexes_folder / "tiny-2018").rename(tmp_path / "elsewhere")
    (indexes_folder / "tiny-2018").symlink_to(outside)
    store = IndexStore(indexes_folder)
    assert store.versions() == ("tiny-2016",)
    with pytest.raises(UnknownIndex):
        store.open("tiny-2018")
    with pytest.raises(IndexExists):
        publish_tiny(store, "tiny-2018")


def test_an_unknown_version_names_those_that_are_there(tiny_indexes: Path) -> None:
    with pytest.raises(UnknownIndex, match=r"'tiny-2020'\. Versions on disk: tiny-2016, tiny-2018"):
        IndexStore(tiny_indexes).open("tiny-2020")


# --- CURRENT -----------------------------------------------------------------------------------------------


def test_current_is_one_line(indexes_folder: Path) -> None:
    store = IndexStore(indexes_folder)
    assert store.current() == "tiny-2016"
    store.set_current("tiny-2018")
    assert (indexes_folder / "CURRENT").read_text() == "tiny-2018\n"
    assert store.current() == store.default_version() == "tiny-2018"


def test_current_cannot_name_what_is_not_there(indexes_folder: Path) -> None:
    store = IndexStore(indexes_folder)
    with pytest.raises(UnknownIndex):
        store.set_current("tiny-2020")
    assert store.current() == "tiny-2016"


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
    with pytest.raises(ManifestInvalid):
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
    with pytest.raises(InvalidVersionName):
        IndexStore(indexes_folder).current()


def test_the_newest_text_comes_first(indexes_folder: Path) -> None:
    store = IndexStore(indexes_folder)
    assert store.newest_first() == ("tiny-2018", "tiny-2016")
    (indexes_folder / "tiny-2018" / "manifest.json").write_text("{}")
    assert store.newest_first() == ("tiny-2016",)
    assert IndexStore(indexes_folder / "none").newest_first() == ()


# --- deleting ----------------------------------------------------------------------------------------------


def test_a_deleted_version_is_gone_and_whoever_reads_it_goes_on(indexes_folder: Path) -> None:
    store = IndexStore(indexes_folder)
    snapshot = store.open("tiny-2018")
    delete_version(store, "tiny-2018")
    assert store.versions() == ("tiny-2016",)
    assert names_in(indexes_folder) == ["CURRENT", "tiny-2016"]
    assert list(snapshot.passages(range(12))) == tiny_passages("tiny-2018")
    snapshot.warm()
    snapshot.close()
    with pytest.raises(UnknownIndex):
        delete_version(store, "tiny-2018")


def test_the_version_that_current_names_is_not_deleted(indexes_folder: Path) -> None:
    store = IndexStore(indexes_folder)
    with pytest.raises(IndexInUse, match="CURRENT names it"):
        delete_version(store, "tiny-2016")
    assert texts_of(store) == tiny_passages("tiny-2016")


def test_a_version_that_current_comes_to_name_meanwhile_is_put_back(
    indexes_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = IndexStore(indexes_folder)
    set_aside = workplace.set_aside

    def set_aside_late(place: Path, version: str) -> Path:
        store.set_current(version)
        return set_aside(place, version)

    monkeypatch.setattr(workplace, "set_aside", set_aside_late)
    with pytest.raises(IndexInUse):
        delete_version(store, "tiny-2018")
    assert texts_of(store, "tiny-2018") == tiny_passages("tiny-2018")


def test_a_version_that_is_being_published_is_not_deleted(indexes_folder: Path) -> None:
    store = IndexStore(indexes_folder)
    with (
        workplace.building(indexes_folder, "tiny-2018"),
        pytest.raises(IndexInUse, match="it is being published"),
    ):
        delete_version(store, "tiny-2018")
    (indexes_folder / ".building-tiny-2018-0123abcd").mkdir()
    delete_version(store, "tiny-2018")
    assert store.versions() == ("tiny-2016",)


def test_what_an_interrupted_deletion_left_is_no_version_and_goes_with_the_next_publishing(
    indexes_folder: Path,
) -> None:
    (indexes_folder / "tiny-2018").rename(indexes_folder / ".deleted-tiny-2018-0123abcd")
    store = IndexStore(indexes_folder)
    assert store.versions() == ("tiny-2016",)
    publish_tiny(store, "tiny-2018")
    assert names_in(indexes_folder) == ["CURRENT", "tiny-2016", "tiny-2018"]


def test_a_version_whose_publisher_died_between_two_renames_is_deleted_too(indexes_folder: Path) -> None:
    (indexes_folder / "tiny-2018").rename(indexes_folder / ".replaced-tiny-2018-0123abcd")
    store = IndexStore(indexes_folder)
    delete_version(store, "tiny-2018")
    assert names_in(indexes_folder) == ["CURRENT", "tiny-2016"]
