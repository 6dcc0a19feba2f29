"""A folder of texts is read without leaving it."""

import errno
import os
import socket
import stat
from pathlib import Path

import pytest

from openbook.indexing.text_tree import MOST_PATH, TextTree, stamp_of


def names(folder: Path) -> list[str]:
    return [name for name, _ in TextTree(folder).entries()]


def test_entries_come_a_folder_at_a_time_without_hidden_names(tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.txt", "a/deep/y.txt", "c/x.txt", ".hidden/w.txt", "a/.v.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    assert names(tmp_path) == ["b.txt", "a/z.txt", "a/deep/y.txt", "c/x.txt"]
    assert TextTree(tmp_path).read("a/deep/y.txt", 6) == b"a/deep"


def test_no_link_below_the_folder_is_followed(tmp_path: Path) -> None:
    secret, folder = tmp_path / "secret", tmp_path / "notes"
    (folder / "sub").mkdir(parents=True)
    secret.mkdir()
    (secret / "key.txt").write_text("secret")
    (folder / "sub" / "key.txt").write_text("words")
    (folder / "file.txt").symlink_to(secret / "key.txt")
    (folder / "itself.txt").symlink_to(folder / "itself.txt")
    (folder / "folder").symlink_to(secret)
    tree = TextTree(folder)
    links = {name for name, state in tree.entries() if stat.S_ISLNK(state.st_mode)}
    assert links == {"file.txt", "itself.txt", "folder"}
    for name, number in (("file.txt", errno.ELOOP), ("itself.txt", errno.ELOOP), ("folder/key.txt", errno.ENOTDIR)):
        with pytest.raises(OSError, match=rf"\[Errno {number}\]"):
            tree.read(name, 100)
    # a folder that becomes a link after it was listed
    assert tree.read("sub/key.txt", 100) == b"words"
    (folder / "sub").rename(tmp_path / "away")
    (folder / "sub").symlink_to(secret)
    with pytest.raises(NotADirectoryError):
        tree.read("sub/key.txt", 100)


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("words")
    (tmp_path / "link").symlink_to("notes")
    assert names(tmp_path / "link") == ["a.txt"]
    assert TextTree(tmp_path / "link").read("a.txt", 100) == b"words"
    assert stamp_of(tmp_path / "link") == stamp_of(tmp_path / "notes")


@pytest.mark.timeout(20)
def test_only_regular_files_are_read_and_nothing_is_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(tmp_path / "socket.txt"))
        for name in ("pipe.txt", "socket.txt"):
            with pytest.raises(OSError, match=rf"\[Errno ({errno.EINVAL}|{errno.ENXIO})\]"):
                TextTree(tmp_path).read(name, 100)


def test_a_folder_too_deep_to_name_its_files_ends_the_descent(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(8):
        os.mkdir("n" * 250, dir_fd=here)
        below = os.open("n" * 250, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("a.txt", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    [found] = names(tmp_path)
    assert MOST_PATH < len(found) <= MOST_PATH + 251


def test_a_stamp_follows_what_the_folder_holds_and_no_link(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    (folder / "deep").mkdir(parents=True)
    outside = tmp_path / "outside.txt"
    outside.write_text("before")
    (folder / "link.txt").symlink_to(outside)
    (folder / "itself.txt").symlink_to(folder / "itself.txt")
    before = stamp_of(folder)
    outside.write_text("afterwards")
    (folder / ".hidden").write_text("no text")
    assert stamp_of(folder) == before
    (folder / "deep" / "a.txt").write_text("text")
    changed = stamp_of(folder)
    assert changed != before
    (folder / "another.txt").symlink_to(outside)
    assert stamp_of(folder) != changed
    assert stamp_of(outside) == f"10 {outside.stat().st_mtime_ns}"
    with pytest.raises(FileNotFoundError):
        stamp_of(tmp_path / "gone")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path) -> None:
    (tmp_path / "a" / "closed").mkdir(parents=True)
    (tmp_path / "a" / "closed").chmod(0)
    with pytest.raises(PermissionError) as refused:
        names(tmp_path)
    assert refused.value.filename == "a/closed"
