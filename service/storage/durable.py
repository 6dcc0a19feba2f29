"""Writing that survives a power cut, and the few calls of the system that it takes."""

import ctypes
import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex

AT_FDCWD = -100
RENAME_EXCHANGE = 2
BLOCK_BYTES = 4 << 20


def sync_file(path: Path) -> None:
    """Bring a file's bytes to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Bring a folder's names to the disk: a rename counts only after this."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, text: str) -> os.stat_result:
    """Readers see what was there before or all of `text`, whatever happens meanwhile.

    Returns the state of the file that was written, whatever has come to be at `path` since.
    """
    aside = path.with_name(f".{path.name}-{token_hex(4)}")
    try:
        aside.write_text(text, encoding="utf-8")
        sync_file(aside)
        written = aside.stat()
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    sync_folder(path.parent)
    return written


def exchange(one: Path, other: Path) -> bool:
    """Swap the names of two folders in one step. False where this system or file system cannot."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    if renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code), str(one), None, str(other))


def sha256_of(path: Path, progress: Callable[[int], None] | None = None) -> str:
    """The file's sha256 in hexadecimal. `progress` is told how many bytes each block had."""
    digest = hashlib.sha256()
    block = bytearray(BLOCK_BYTES)
    with path.open("rb", buffering=0) as file:
        while n_read := file.readinto(block):
            digest.update(memoryview(block)[:n_read])
            if progress is not None:
                progress(n_read)
    return digest.hexdigest()
