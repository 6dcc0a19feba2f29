"""How a reader of files says why one is left out."""

from collections.abc import Callable
from functools import wraps

from openbook.indexing.sources.folder_file import BROKEN, FolderFile

NO_TEXT, ENCRYPTED = "empty", "encrypted"


class FileLeftOut(Exception):
    """The file is left out, and its one argument says why."""


def reader(read: Callable[[bytes], FolderFile | str]) -> Callable[[bytes], FolderFile | str]:
    """`read` as a FileReader calls it: whatever it raises but MemoryError becomes the reason why there is no file."""

    @wraps(read)
    def read_safely(content: bytes) -> FolderFile | str:
        try:
            file = read(content)
        except MemoryError:
            raise
        except FileLeftOut as left_out:
            return str(left_out)
        # hostile files fail in any of the libraries' ways
        except Exception:
            return BROKEN
        return file if isinstance(file, str) or file.sections else NO_TEXT

    return read_safely
