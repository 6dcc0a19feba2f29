"""A folder of texts as a source of passages."""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from openbook.entities import Passage
from openbook.errors import SourceInvalid
from openbook.indexing.sources.source import Batch, BatchedSource, no_mark
from openbook.indexing.splitting import split_words

SUFFIXES = {".txt", ".md"}
LARGEST_FILE = 64 << 20
HEADING = re.compile(r"#{1,6}[ \t]+(?P<title>.*?)[ \t]*#*[ \t]*$")


class FolderSource(BatchedSource):
    """Every `.txt` and `.md` below a folder: one file, one article, in the order of their paths.

    The title is the first line of a `.md` if that is a heading, else the file's name, with spaces for `_`. Passages
    are named `<path in the folder>#0`, `#1`, ...; a mark is such a path. Names that begin with a dot are ignored, and
    links to folders are not followed. A file that is empty, no UTF-8 or larger than 64 MiB is left out and counted.
    """

    def __init__(self, path: Path, *, snapshot_date: str | None = None, licence: str = "") -> None:
        self._path = path
        self._skipped: Counter[str] = Counter()
        self.name = path.resolve().name
        self.snapshot_date = snapshot_date
        self.licence = licence
        self._sizes = self._find()
        self.total_bytes: int | None = sum(self._sizes.values())

    def batches(self, after: str | None = None) -> Iterator[Batch]:
        """Raises SourceInvalid for a file that cannot be read, and for a mark that is none of this folder."""
        if after is not None and after not in self._sizes:
            raise no_mark(self._path, after)
        self._skipped = Counter()
        read, ahead = 0, after is not None
        for name, size in self._sizes.items():
            read += size
            if not ahead:
                yield Batch(self._passages(name, size), mark=name, read=read)
            ahead = ahead and name != after

    def skipped(self) -> Mapping[str, int]:
        return dict(self._skipped)

    def _find(self) -> dict[str, int]:
        """Paths in the folder, separated by `/`, in their order, with the files' sizes."""
        found: dict[str, int] = {}

        def fail(error: OSError) -> None:
            raise self._invalid(str(error.filename), error) from error

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
            raise self._invalid(name, error) from error
        except UnicodeError:
            self._skipped["undecodable"] += 1
            return ()
        title = PurePosixPath(name).stem.replace("_", " ")
        if name.lower().endswith(".md"):
            first, _, rest = text.lstrip().partition("\n")
            heading = HEADING.match(first.rstrip("\r"))
            if heading and heading["title"]:
                title, text = heading["title"], rest
        pieces = split_words(text)
        self._skipped["empty"] += not pieces
        return tuple(Passage(f"{name}#{position}", title, piece) for position, piece in enumerate(pieces))

    def _invalid(self, name: str, error: OSError) -> SourceInvalid:
        return SourceInvalid(source=str(self._path / name), reason=f"cannot be read ({error.strerror or error})")
