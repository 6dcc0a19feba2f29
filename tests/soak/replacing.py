"""What may lie in a folder of indexes in place of a file: each way to replace one."""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

GIB = 1 << 30
SECRET = "a file that is no part of the index"


def folder(path: Path) -> None:
    path.mkdir()
    (path / "more").write_text("more")


def device(path: Path) -> None:
    """An endless file, as /dev/zero."""
    try:
        os.mknod(path, 0o020666, os.makedev(1, 5))
    except OSError:
        pytest.skip("this user may not make a device")


def link_out(path: Path) -> None:
    outside = path.parent / f"{path.name}-outside"
    while (outside.parent / "CURRENT").exists() or (outside.parent / "manifest.json").exists():
        outside = outside.parent.parent / outside.name
    outside.write_text(SECRET)
    path.symlink_to(outside)


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(8 * GIB)


REPLACEMENTS: dict[str, Callable[[Path], None]] = {
    "a folder": folder,
    "a pipe": os.mkfifo,
    "a device": device,
    "a link out of the folder": link_out,
    "a dangling link": lambda path: path.symlink_to(path.parent.parent.parent / "nowhere"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a sparse file of 8 GiB": sparse,
}


def each(names: Sequence[str]) -> Iterator[object]:
    """Every name with every replacement; so many of them are quick that each name and each replacement comes once."""
    for place, name in enumerate(names):
        for turn, replacement in enumerate(REPLACEMENTS):
            marks = () if place % len(REPLACEMENTS) == turn else (pytest.mark.slow,)
            yield pytest.param(name, replacement, marks=marks)


def replace(path: Path, replacement: str) -> None:
    """Put a replacement where `path` is, or would be."""
    remove(path)
    REPLACEMENTS[replacement](path)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
