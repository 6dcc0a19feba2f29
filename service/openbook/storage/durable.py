"""Writing that survives a power cut, and reading small files that anyone may have put there."""

import errno
import fcntl
import hashlib
import logging
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO, NamedTuple

BLOCK_BYTES = 4 << 20

logger = logging.getLogger(__name__)


class FileMark(NamedTuple):
    """Tells one writing of a file from another without reading it: each atomic write makes a file of its own."""

    inode: int
    mtime_ns: int
    size: int

    @classmethod
    def of(cls, state: os.stat_result) -> "FileMark":
        return cls(state.st_ino, state.st_mtime_ns, state.st_size)


def sync_file(path: Path) -> None:
    """Bring a file's bytes to the disk."""
    _sync(path, os.O_RDONLY)


def sync_folder(path: Path) -> None:
    """Bring a folder's names to the disk: a rename counts only after this."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def write_atomically(path: Path, text: str) -> FileMark:
    """Readers see what was there before or all of `text`, whatever happens meanwhile.

    Removes what writers that died left beside `path`. Returns the mark of the file that was written, whatever is at
    `path` by now. Raises OSError only where `path` has not changed: a folder that cannot be synced is logged.
    """
    for leftover in path.parent.glob(f".{path.name}-{'[0-9a-f]' * 8}"):
        _remove_if_dead(leftover)
    aside, descriptor = _locked_aside(path)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", closefd=False) as file:
            file.write(text)
        os.fsync(descriptor)
        written = FileMark.of(os.fstat(descriptor))
        aside.replace(path)
    except BaseException:
        with suppress(OSError):
            aside.unlink()
        raise
    finally:
        # the last, since the file is locked until then; and after the replacing nothing may fail
        with suppress(OSError):
            os.close(descriptor)
    try:
        sync_folder(path.parent)
    except OSError as error:
        logger.warning("%s is written, but its folder cannot be synced: a power cut may undo it (%s)", path.name, error)
    return written


def read_small(path: Path, at_most: int) -> tuple[bytes, FileMark]:
    """The bytes of a regular file, and its mark.

    Opens it as `open_regular` does, and reads no more than `at_most` bytes: a sparse file would fill the memory.
    Raises OSError, whose `strerror` names no path.
    """
    with reading(path) as file:
        content = file.read(at_most + 1)
        mark = FileMark.of(os.fstat(file.fileno()))
    if len(content) > at_most:
        raise OSError(errno.EFBIG, f"it has more than {at_most:,} bytes")
    return content, mark


def open_regular(path: Path, flags: int = os.O_RDONLY, mode: int = 0o644, *, folder: int | None = None) -> int:
    """A descriptor of a regular file: never waits, as for the other end of a pipe, and follows no link.

    A file that is made has `mode`. A relative `path` is one below the descriptor `folder`, where that is given.

    Raises OSError, whose `strerror` names no path.
    """
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a symbolic link") from error
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def append_line(descriptor: int, line: bytes) -> None:
    """Bring a line to the disk, at the end of a file that is open for reading and appending. Raises OSError."""
    size = os.fstat(descriptor).st_size
    # a process that died in its write left half a line: it must not swallow this one
    torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
    left = b"\n" + line + b"\n" if torn else line + b"\n"
    while left:
        left = left[os.write(descriptor, left) :]
    os.fsync(descriptor)


@contextmanager
def reading(path: Path) -> Iterator[BinaryIO]:
    """A regular file to read, opened by `open_regular`."""
    descriptor = open_regular(path)
    try:
        # where this fails, it leaves the descriptor open
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


def sha256_of(path: Path, progress: Callable[[int], None] | None = None) -> str:
    """The file's sha256 in hexadecimal. `progress` receives the bytes of each block."""
    digest = hashlib.sha256()
    block = bytearray(BLOCK_BYTES)
    with path.open("rb", buffering=0) as file:
        while n_read := file.readinto(block):
            digest.update(memoryview(block)[:n_read])
            if progress is not None:
                progress(n_read)
    return digest.hexdigest()


def lock(descriptor: int, path: Path, *, unsupported: bool) -> bool:
    """Lock what `path` names until `descriptor` is closed; `unsupported` where the file system has no such locks.

    False where another process holds the lock, or has removed `path` before this one had it.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return unsupported
    return os.path.lexists(path)


def hold(path: Path) -> int | None:
    """A descriptor whose shared lock tells `held` that this process reads the file; None without such locks.

    NFS carries the lock to the server, so that other machines see it, and drops it with the process. Raises
    FileNotFoundError where another process is just removing the file, and OSError as `open_regular`.
    """
    descriptor = open_regular(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise FileNotFoundError(errno.ENOENT, "it is being removed", str(path)) from None
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


@contextmanager
def unread(paths: Iterable[Path]) -> Iterator[bool]:
    """Whether no process holds any of these files; none can begin to before the `with` block ends."""
    with ExitStack() as opened:
        for path in paths:
            try:
                # over NFS an exclusive lock needs a file that is open for writing
                descriptor = open_regular(path, os.O_RDWR)
                opened.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            except OSError:
                # no lock to be had: the age of the file has to do
                continue
        yield True


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _locked_aside(path: Path) -> tuple[Path, int]:
    """A new file beside `path`, open and locked: a file without a lock belongs to a dead process."""
    while True:
        aside = path.with_name(f".{path.name}-{token_hex(4)}")
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        if lock(descriptor, aside, unsupported=True):
            return aside, descriptor
        os.close(descriptor)


def _remove_if_dead(leftover: Path) -> None:
    try:
        descriptor = open_regular(leftover)
    except OSError:
        return
    try:
        if lock(descriptor, leftover, unsupported=False):
            leftover.unlink(missing_ok=True)
    except OSError:
        # another user's, and in no one's way
        return
    finally:
        os.close(descriptor)
