from pathlib import Path

import pytest

from openbook.storage import current
from openbook.storage.index_store import IndexStore


def test_every_writing_has_a_mark_of_its_own(indexes_folder: Path) -> None:
    store = IndexStore(indexes_folder)
    marks = [store.set_current(("tiny-2016", "tiny-2018")[turn // 2 % 2]) for turn in range(30)]
    assert len(set(marks)) == 30
    assert store.current_mark() == marks[-1] == store.current_mark()


def test_no_current_has_no_mark(tmp_path: Path) -> None:
    store = IndexStore(tmp_path)
    assert store.current_mark() is None
    assert store.current() is None


def test_a_folder_that_is_away_is_no_folder_without_current(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as away:
        current.mark(tmp_path / "none")
    assert str(tmp_path) not in str(away.value)


def test_the_mark_is_of_what_was_written_whoever_writes_next(
    indexes_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the rename and the return another replica writes."""
    store = IndexStore(indexes_folder)
    sync = current.durable.sync_folder

    def another_writes(folder: Path) -> None:
        monkeypatch.setattr(current.durable, "sync_folder", sync)
        current.write(folder, "tiny-2018")

    monkeypatch.setattr(current.durable, "sync_folder", another_writes)
    ours = store.set_current("tiny-2016")
    assert store.current() == "tiny-2018"
    assert store.current_mark() != ours
