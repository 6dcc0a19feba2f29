import fcntl
import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from openbook.storage.durable import BLOCK_BYTES, exchange, sha256_of, write_atomically


def test_an_atomic_write_replaces_the_text_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "CURRENT"
    write_atomically(path, "one\n")
    write_atomically(path, "two\n")
    assert path.read_text() == "two\n"
    assert [child.name for child in tmp_path.iterdir()] == ["CURRENT"]


def test_an_atomic_write_gives_the_name_to_a_new_file(tmp_path: Path) -> None:
    """Whoever has the old file open reads the old text to its end."""
    path = tmp_path / "CURRENT"
    write_atomically(path, "one\n")
    with path.open() as old:
        write_atomically(path, "two\n")
        assert old.read() == "one\n"


def test_a_failed_atomic_write_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "CURRENT"
    write_atomically(path, "one\n")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "\ud800")
    assert path.read_text() == "one\n"
    assert [child.name for child in tmp_path.iterdir()] == ["CURRENT"]


def test_an_atomic_write_removes_what_a_dead_writer_left(tmp_path: Path) -> None:
    left = tmp_path / ".CURRENT-0123abcd"
    left.write_text("half")
    other = tmp_path / ".OTHER-0123abcd"
    other.touch()
    write_atomically(tmp_path / "CURRENT", "one\n")
    assert sorted(child.name for child in tmp_path.iterdir()) == [other.name, "CURRENT"]


def test_an_atomic_write_leaves_alone_what_another_one_is_writing(tmp_path: Path) -> None:
    writing = tmp_path / ".CURRENT-0123abcd"
    with writing.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        write_atomically(tmp_path / "CURRENT", "one\n")
        assert writing.exists()
    write_atomically(tmp_path / "CURRENT", "two\n")
    assert not writing.exists()


def test_many_atomic_writes_at_once_leave_one_of_their_texts_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "CURRENT"
    texts = [f"version-{number}\n" for number in range(200)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda text: write_atomically(path, text), texts))
    assert path.read_text() in texts
    assert [child.name for child in tmp_path.iterdir()] == ["CURRENT"]


def test_two_folders_exchange_their_names(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
        (folder / folder.name).touch()
    if not exchange(one, other):
        pytest.skip("this file system has no exchange")
    assert (one / "other").exists()
    assert (other / "one").exists()


def test_an_exchange_with_nothing_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    with pytest.raises(FileNotFoundError):
        exchange(tmp_path / "one", tmp_path / "absent")


@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES, BLOCK_BYTES + 1])
def test_the_sha256_of_a_file_is_that_of_its_bytes(tmp_path: Path, size: int) -> None:
    content = bytes(i % 251 for i in range(size))
    path = tmp_path / "file"
    path.write_bytes(content)
    seen: list[int] = []
    assert sha256_of(path, seen.append) == hashlib.sha256(content).hexdigest()
    assert sum(seen) == size
