"""A folder of texts as a source of passages."""

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from openbook.entities import Passage
from openbook.indexing.sources.source import PassageBatch, PassageSource, no_mark, unreadable
from openbook.indexing.splitting import split_article

SUFFIXES = {".txt", ".md"}
LARGEST_FILE = 64 << 20
HEADING = re.compile(r"#{1,6}[ \t]+(?P<title>.*?)[ \t]*#*[ \t]*$")


class FolderSource(PassageSource):
    """Every `.txt` and `.md` below a folder: one file, one article, in the order of their paths.

    The title is the first line of a `.md` if that is a heading, else the file's name, with spaces for `_`. Passages
    are named `<path in the folder>#0`, `#1`, ...; a mark is such a path. Names that begin with a dot are ignored, and
    links to folders are not followed. A file that is empty, not UTF-8 or larger than 64 MiB is left out and counted.
    """

    def __init__(self, path: Path, *, snapshot_date: str | None = None, licence: str = "") -> None:
        """Raises SourceInvalid for a folder that cannot be listed."""
        self._path = path
        self._sizes = self._find()
        size = sum(self._sizes.values())
        super().__init__(path.resolve().name, size, snapshot_date=snapshot_date, licence=licence)

    def batches(self, after: str | None = None) -> Iterator[PassageBatch]:
        """Raises SourceInvalid for a file that cannot be read, and for a mark that is none of this folder."""
        if after is not None and after not in self._sizes:
            raise no_mark(self._path, after)
        self._skipped.clear()
        read, ahead = 0, after is not None
        for name, size in self._sizes.items():
            read += size
            if not ahead:
                yield PassageBatch(self._passages(name, size), mark=name, read=read)
            ahead = ahead and name != after

    def _find(self) -> dict[str, int]:
        """Paths in the folder, separated by `/`, in their order, with the files' sizes."""
        found: dict[str, int] = {}

        def fail(error: OSError) -> None:
            raise unreadable(self._path / str(error.filename), error) from error

        for folder, folders, files in os.walk(self._path, onerror=fail):
            folders[:] = [name for name in folders if not name.startswith(".")]
            for name in files:
                path = Path(folder, name)
                if path.suffix.lower() in SUFFIXES and not name.startswith(".") and path.is_file():
                    found[path.relative_to(self._path).as_posix()] = path.stat().st_size
        return dict(sorted(found.items(), key=lambda entry: PurePosixPath(entry[0]).parts))

    def _passages(self, name: str, size: int) -> tuple[Passage, ...]:
        if size > LARGEST_FILE:
            self._skipped["too large"] += 1
            return ()
        try:
            text = (self._path / name).read_bytes().decode("utf-8-sig")
            name.encode()
        except OSError as error:
            raise unreadable(self._path / name, error) from error
        except UnicodeError:
            self._skipped["undecodable"] += 1
            return ()
        title = PurePosixPath(name).stem.replace("_", " ")
        if name.lower().endswith(".md"):
            first, _, rest = text.lstrip().partition("\n")
            heading = HEADING.match(first.rstrip("\r"))
            if heading and heading["title"]:
                title, text = heading["title"], rest
        found = split_article(name, title, text)
        self._skipped["empty"] += not found
        return found
