"""A folder of texts as a source of passages."""

import errno
import logging
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path, PurePosixPath

from openbook.entities import Metadata, Passage
from openbook.errors import SourceInvalid
from openbook.extensions import FILES, extensions
from openbook.indexing.passage_fields import MOST_URL, is_url
from openbook.indexing.sources.folder_file import LARGEST_TEXT, TOO_LARGE, FileReader, FolderFile, decoded
from openbook.indexing.sources.front_fields import FrontFields
from openbook.indexing.sources.guarded import Guarded
from openbook.indexing.sources.lined_text import from_plain
from openbook.indexing.sources.markdown import MOST_FRONT, free_fields, read_markdown
from openbook.indexing.sources.source import PassageBatch, PassageSource, no_mark, unreadable
from openbook.indexing.sources.url_template import UrlTemplate
from openbook.indexing.splitting import Section, SourceArticle, Split, split_article
from openbook.indexing.text_tree import MOST_PATH, TextTree

MARKDOWN, PLAIN_TEXT = ".md", ".txt"
LARGEST_FILE = 64 << 20
# A PDF of a thousand pages takes a minute.
FILE_SECONDS = 120.0
# A character of UTF-8 has at most four bytes; the rest is for the lines of hyphens.
FRONT_BYTES = 4 * MOST_FRONT + 1024
LINK, NO_FILE, LONG_PATH = "link", "no file", "path too long"
SHOWN_LINKS = 5
# Of the files that are left out, so many are named.
SHOWN_FILES = 20

Converter = Guarded[tuple[str, bytes], FolderFile | str]

logger = logging.getLogger(__name__)


class FolderSource(PassageSource):
    """Every `.txt`, `.md` and file that a plug-in reads, below a folder: one file, one article, in the order of paths.

    A passage has the metadata `path`, that of its file's front matter, and in a PDF `page`; headings are its section.
    Passages are named `<path in the folder>#0`, `#1`, ...; a mark is such a path. Names that begin with a dot are
    ignored. Below the folder no link is followed: one that is named like a text is left out, named and counted. So is a
    file that cannot be read: of another kind, empty, undecodable, too large, encrypted, broken, or too heavy for its
    converter.
    """

    def __init__(
        self,
        path: Path,
        *,
        snapshot_date: str | None = None,
        licence: str = "",
        split: Split | None = None,
        url_template: UrlTemplate | None = None,
        file_seconds: float = FILE_SECONDS,
    ) -> None:
        """`split` None cuts at sentences. Raises SourceInvalid for a folder that cannot be listed, and for one all of
        whose files need an extra that is not installed."""
        self._path = path
        self._tree = TextTree(path)
        self._readers = file_readers()
        # why a path is not even opened
        self._unread: dict[str, str] = {}
        self._left_out: list[tuple[str, str]] = []
        self._warned = False
        self._sizes = self._find()
        self._split: Split = split or "sentences"
        self._url_template = url_template
        self._file_seconds = file_seconds
        readers = {name: reader for name in self._sizes if (reader := self._readers.get(_kind(name))) is not None}
        lacking = {name: extra for name, reader in readers.items() if (extra := reader.lacks) is not None}
        if lacking and not self._sizes.keys() - self._unread.keys() - lacking.keys():
            extras = " ".join(f"'{extra}'" for extra in sorted(set(lacking.values())))
            raise SourceInvalid(source=str(path), reason=f"its files need an extra: pip install {extras}")
        self._front = FrontFields.of(self._front_matters())
        choices = {"split": self._split, "left out without": ", ".join(sorted(set(lacking.values())))}
        if url_template is not None:
            choices["url template"] = url_template.template
        size = sum(self._sizes.values())
        super().__init__(path.resolve().name, size, snapshot_date=snapshot_date, licence=licence, choices=choices)

    def batches(self, after: str | None = None) -> Iterator[PassageBatch]:
        """Raises SourceInvalid for a file that cannot be read, and for a mark that is none of this folder."""
        if after is not None and after not in self._sizes:
            raise no_mark(self._path, after)
        self._skipped.clear()
        self._left_out.clear()
        read, ahead = 0, after is not None
        guarded: Converter = Guarded(partial(convert, self._readers), self._file_seconds)
        with closing(guarded) as converter:
            for name, size in self._sizes.items():
                read += size
                if not ahead:
                    yield PassageBatch(self._passages(name, size, converter), mark=name, read=read)
                ahead = ahead and name != after
        if self._left_out and not self._warned:
            # an estimate has read the folder already
            self._warned = True
            logger.warning("%s: left out: %s", self._path, self.left_out())

    def left_out(self) -> str:
        shown = [f"{name!r:.120} ({reason})" for name, reason in self._left_out[:SHOWN_FILES]]
        rest = Counter(reason for _, reason in self._left_out[SHOWN_FILES:])
        return ", ".join([*shown, *(f"{count:,} more ({reason})" for reason, count in rest.most_common())])

    def _find(self) -> dict[str, int]:
        """Paths in the folder, separated by `/`, in their order, with the files' sizes: 0 of what is not opened."""
        found: dict[str, int] = {}
        try:
            for name, state in self._tree.entries():
                known = _kind(name) in (MARKDOWN, PLAIN_TEXT, *self._readers)
                if len(name) > MOST_PATH:
                    self._unread[name] = LONG_PATH
                elif known and stat.S_ISLNK(state.st_mode):
                    self._unread[name] = LINK
                elif known and not stat.S_ISREG(state.st_mode):
                    self._unread[name] = NO_FILE
                elif not known and stat.S_ISREG(state.st_mode):
                    self._unread[name] = f"no reader for {_kind(name)[:20] or 'files without a kind'}"
                if known or name in self._unread:
                    found[name] = 0 if name in self._unread else state.st_size
        except OSError as error:
            raise unreadable(self._path / str(error.filename), error) from error
        links = [name for name, reason in self._unread.items() if reason == LINK]
        if links:
            shown = ", ".join(map(repr, links[:SHOWN_LINKS])) + (", ..." if links[SHOWN_LINKS:] else "")
            logger.warning("%s: links are left out (%d): %s", self._path, len(links), shown)
        return dict(sorted(found.items(), key=lambda entry: PurePosixPath(entry[0]).parts))

    def _front_matters(self) -> Iterator[Mapping[str, object]]:
        for name in self._sizes:
            if _kind(name) == MARKDOWN and name not in self._unread:
                try:
                    head = self._tree.read(name, FRONT_BYTES)
                except OSError:
                    # reading its passages says so
                    continue
                yield free_fields(head.decode("utf-8-sig", "replace"))

    def _passages(self, name: str, size: int, converter: Converter) -> tuple[Passage, ...]:
        file = self._file(name, size, converter)
        if isinstance(file, str):
            return self._leave_out(name, file)
        if file.noted is not None:
            self._skipped[file.noted] += 1
        title = file.title or PurePosixPath(name).stem.replace("_", " ")
        url = file.url
        if url is None or len(url) > MOST_URL or not is_url(url):
            url = self._url_template.url(title=title, path=name) if self._url_template is not None else None
        metadata: Metadata = self._front.metadata(file.fields, path=name)
        article = SourceArticle(name, title, file.sections, url, file.published, metadata)
        found = split_article(article, self._split)
        return found or self._leave_out(name, "empty")

    def _leave_out(self, name: str, reason: str) -> tuple[Passage, ...]:
        self._skipped[reason] += 1
        self._left_out.append((name, reason))
        return ()

    def _file(self, name: str, size: int, converter: Converter) -> FolderFile | str:
        """The file, or the reason why it is left out. Raises SourceInvalid where the system does not let it be read."""
        if name in self._unread:
            return self._unread[name]
        reader = self._readers.get(_kind(name))
        largest = LARGEST_FILE if reader is not None else LARGEST_TEXT
        if size > largest:
            return TOO_LARGE
        if reader is not None and reader.lacks is not None:
            return f"{_kind(name)} without {reader.lacks}"
        try:
            name.encode()
            # the file may be another, or a longer one, since it was listed
            content = self._tree.read(name, largest + 1)
            text = "" if reader is not None else decoded(content)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                return LINK
            if error.errno in (errno.EINVAL, errno.ENXIO):
                return NO_FILE
            raise unreadable(self._path / name, error) from error
        except UnicodeError:
            return "undecodable"
        if len(content) > largest:
            return TOO_LARGE
        if reader is None and _kind(name) == MARKDOWN:
            return read_markdown(text)
        if reader is None:
            return FolderFile((Section(from_plain(text), has_lines=True),))
        converter.send([(_kind(name), content)])
        [file] = converter.outcomes()
        if isinstance(file, FolderFile) and sum(len(section.text) for section in file.sections) > LARGEST_TEXT:
            return TOO_LARGE
        return file


def file_readers() -> dict[str, FileReader]:
    """What plug-ins read, by the ending in lower case."""
    return {name: found.load() for name, found in extensions(FILES).items()}


def convert(readers: Mapping[str, FileReader], item: tuple[str, bytes]) -> FolderFile | str:
    """A file by its kind; for the other process."""
    kind, content = item
    return readers[kind].read(content)


def _kind(name: str) -> str:
    return PurePosixPath(name).suffix.lower()
