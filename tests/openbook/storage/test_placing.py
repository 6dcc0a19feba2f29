"""A version that lies ready is published as it is, or not at all."""

import shutil
from pathlib import Path

import pytest

from openbook.errors import IndexCorrupt
from openbook.storage.index_store import IndexStore
from openbook.storage.placing import place_copy


@pytest.fixture
def store(tmp_path: Path) -> IndexStore:
    return IndexStore(tmp_path / "indexes")


def test_a_copy_of_a_version_is_the_same_version(tiny_indexes: Path, store: IndexStore) -> None:
    info = place_copy(store, tiny_indexes / "tiny-2016")
    assert store.verify("tiny-2016") == info == IndexStore(tiny_indexes).info("tiny-2016")


def test_a_copy_that_changes_on_its_way_is_not_published(
    tiny_indexes: Path, store: IndexStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy_badly(source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes()[:-1] + b"?")

    monkeypatch.setattr(shutil, "copyfile", copy_badly)
    with pytest.raises(IndexCorrupt, match=r"index\.faiss"):
        place_copy(store, tiny_indexes / "tiny-2016")
    assert list(store.folder.iterdir()) == []
