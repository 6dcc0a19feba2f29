"""Writing that survives a power cut, and the few calls of the system that it takes."""

import ctypes
import errno
import fcntl
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

    What writers that died on their way left beside it is removed. Returns the state of the file that was written,
    whatever has come to be at `path` since.
    """
    for leftover in path.parent.glob(f".{path.name}-{'[0-9a-f]' * 8}"):
        _remove_if_dead(leftover)
    aside, descriptor = _locked_aside(path)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            written = os.fstat(file.fileno())
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


def _locked_aside(path: Path) -> tuple[Path, int]:
    """A new file beside `path`, open and locked, so that it is told from what a dead process left."""
    while True:
        aside = path.with_name(f".{path.name}-{token_hex(4)}")
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        # whoever clears may have come between the two calls, and then has removed it or is about to
        if _lock(descriptor, unsupported=True) and aside.exists():
            return aside, descriptor
        os.close(descriptor)


def _remove_if_dead(leftover: Path) -> None:
    try:
        descriptor = os.open(leftover, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if _lock(descriptor, unsupported=False):
            leftover.unlink(missing_ok=True)
    except OSError:
        # nobody's, and in nobody's way
        return
    finally:
        os.close(descriptor)


def _lock(descriptor: int, *, unsupported: bool) -> bool:
    """Whether the lock is ours now; `unsupported` where the file system has none."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return unsupported
    return True
