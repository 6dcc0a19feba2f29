import errno
import fcntl
import hashlib
import os
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from openbook.errors import IndexCorrupt
from openbook.storage import durable
from openbook.storage.durable import BLOCK_BYTES, FileMark, sha256_of, write_atomically
from openbook.storage.index_store import IndexStore
from tests.waiting import PATIENCE_S


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


def test_an_atomic_write_that_has_replaced_the_file_does_not_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "unlink", lambda path: (_ for _ in ()).throw(OSError(errno.EIO, "bad disk")))
    mark = write_atomically(tmp_path / "CURRENT", "one\n")
    assert mark == FileMark.of((tmp_path / "CURRENT").stat())


def test_a_pipe_beside_the_file_does_not_stop_an_atomic_write(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".CURRENT-0123abcd")
    writing = threading.Thread(target=write_atomically, args=(tmp_path / "CURRENT", "one\n"), daemon=True)
    writing.start()
    writing.join(PATIENCE_S)
    assert not writing.is_alive()


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


def test_a_folder_that_cannot_be_synced_does_not_undo_an_atomic_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(folder: Path) -> None:
        raise OSError(errno.EIO, "Input/output error", str(folder))

    monkeypatch.setattr(durable, "sync_folder", fail)
    mark = write_atomically(tmp_path / "CURRENT", "one\n")
    assert mark == FileMark.of((tmp_path / "CURRENT").stat())
    assert "a power cut may undo it" in caplog.text


def put_pipe(path: Path) -> None:
    os.mkfifo(path)


def put_link(path: Path) -> None:
    path.with_name("aside").write_text("tiny-2016\n")
    path.symlink_to(path.with_name("aside"))


def put_sparse_file(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def put_device(path: Path) -> None:
    os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))


NOT_READ = {
    "it is no regular file": (Path.mkdir, put_pipe, put_device),
    "it is a symbolic link": (put_link,),
    "it has more than": (put_sparse_file,),
}


@pytest.mark.parametrize(("said", "put"), [(said, put) for said, puts in NOT_READ.items() for put in puts])
@pytest.mark.parametrize("name", ["CURRENT", "tiny-2016/manifest.json"])
def test_what_is_no_small_file_is_refused_at_once(
    indexes_folder: Path, name: str, said: str, put: Callable[[Path], None]
) -> None:
    path = indexes_folder / name
    path.unlink()
    try:
        put(path)
    except PermissionError:
        pytest.skip("only root makes devices")
    store = IndexStore(indexes_folder)
    with pytest.raises(IndexCorrupt, match=said) as refused:
        store.info("tiny-2016") if path.name == "manifest.json" else store.current()
    assert len(str(refused.value)) < 300
    assert str(indexes_folder) not in str(refused.value)


@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES, BLOCK_BYTES + 1])
def test_the_sha256_of_a_file_is_that_of_its_bytes(tmp_path: Path, size: int) -> None:
    content = bytes(i % 251 for i in range(size))
    path = tmp_path / "file"
    path.write_bytes(content)
    seen: list[int] = []
    assert sha256_of(path, seen.append) == hashlib.sha256(content).hexdigest()
    assert sum(seen) == size
