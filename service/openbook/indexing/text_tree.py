"""A folder of texts, read without leaving it: whoever may write there does not choose what else is read."""

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from openbook.storage import durable

# Of a path below the folder, in characters. It becomes the id of passages.
MOST_PATH = 1024
# By their beginning; `~$` is the lock of a document that is open in Word.
HIDDEN = (".", "~$")
OF_WINDOWS = frozenset({"desktop.ini", "thumbs.db"})
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class TextTree:
    """All below a folder but hidden names and what Windows puts beside texts. The folder itself may be a link: the
    operator names it. Below it no link is followed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def entries(self) -> Iterator[tuple[str, os.stat_result]]:
        """Paths in the folder, separated by `/`, with what `lstat` says: files, links and all else but folders.

        The entries of a folder come in the order of their names, before those of the folders in it. A folder whose
        path is longer than MOST_PATH is an entry too, and nothing below it is. Raises OSError, with the path in the
        folder as its `filename`, for a folder that cannot be listed.
        """
        waiting = [""]
        while waiting:
            folder = waiting.pop()
            folders: list[str] = []
            for name, state in self._listed(folder):
                if stat.S_ISDIR(state.st_mode) and len(name) <= MOST_PATH:
                    folders.append(name)
                else:
                    yield name, state
            waiting += reversed(folders)

    def read(self, name: str, at_most: int) -> bytes:
        """The first bytes of a regular file. Raises OSError as `durable.open_regular`: ELOOP for a link, EINVAL for
        what is no regular file; NotADirectoryError where a folder on the way is none any more."""
        *folders, file = name.split("/")
        with self._opened(folders) as folder:
            descriptor = durable.open_regular(Path(file), folder=folder)
        with os.fdopen(descriptor, "rb") as opened:
            return opened.read(at_most)

    def _listed(self, folder: str) -> list[tuple[str, os.stat_result]]:
        found: list[tuple[str, os.stat_result]] = []
        try:
            with self._opened(folder.split("/") if folder else []) as descriptor, os.scandir(descriptor) as entries:
                for entry in entries:
                    # a file may go while the folder is listed
                    with suppress(FileNotFoundError):
                        if not entry.name.startswith(HIDDEN) and entry.name.lower() not in OF_WINDOWS:
                            name = f"{folder}/{entry.name}" if folder else entry.name
                            found.append((name, entry.stat(follow_symlinks=False)))
        except (FileNotFoundError, NotADirectoryError) as error:
            # a folder within has just gone, or become a link
            if not folder:
                raise OSError(error.errno, error.strerror, folder) from error
        except OSError as error:
            raise OSError(error.errno, error.strerror, folder) from error
        return sorted(found, key=lambda entry: entry[0])

    @contextmanager
    def _opened(self, folders: list[str]) -> Iterator[int]:
        """A descriptor of a folder within, reached step by step: a step that is a link raises NotADirectoryError."""
        descriptor = os.open(self._path, _FOLDER)
        try:
            for name in folders:
                above, descriptor = descriptor, os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
                os.close(above)
            yield descriptor
        finally:
            os.close(descriptor)


def stamp_of(path: Path) -> str:
    """Text that changes when a file does, or the path, size or time of anything below a folder, hidden names aside.

    A link counts by its own time, and nothing that it leads to. A recipe holds the stamp, so that no two texts mix.
    Raises OSError.
    """
    if not path.is_dir():
        return _mark(path.stat())
    marks = hashlib.sha256()
    for name, state in TextTree(path).entries():
        marks.update(os.fsencode(f"{name}\0{_mark(state)}\0"))
    return marks.hexdigest()


def _mark(state: os.stat_result) -> str:
    return f"{state.st_size} {state.st_mtime_ns}"
