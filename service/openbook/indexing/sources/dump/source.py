"""A MediaWiki dump, plain or compressed with bzip2, as a source of passages."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from openbook.entities import Passage
from openbook.errors import SourceInvalid
from openbook.indexing.sources.dump.cutting import OPEN, PageCutter
from openbook.indexing.sources.dump.page import Article
from openbook.indexing.sources.dump.pieces import Bzip2Pieces, Piece, Pieces, PlainPieces
from openbook.indexing.sources.dump.site import Site, read_site
from openbook.indexing.sources.dump.workers import PageReaders
from openbook.indexing.sources.source import Batch, passages_of
from openbook.indexing.splitting import passages

HEADER_BYTES = 1 << 20
FILE_NAME = re.compile(r"(?P<wiki>[a-z_]+)-(?P<date>\d{8})-pages-")


class WikipediaDumpSource:
    """`pages-articles.xml` or `.xml.bz2`: every article in plain text, split into passages.

    Passages are named `<page id>#0`, `<page id>#1`, ... What is left out is counted (`skipped`) and stops nothing. A
    mark is where a page ends: reading on from it begins at that block of the file, or at that byte of a plain one.
    """

    def __init__(self, path: Path, *, snapshot_date: str | None = None, licence: str = "", processes: int = 1) -> None:
        """Raises SourceInvalid for a file that is no dump, ValueError when `processes` is below 1."""
        self._path = path
        self._processes = processes
        self._pieces: Pieces = Bzip2Pieces(path) if path.suffix == ".bz2" else PlainPieces(path)
        self._skipped: Counter[str] = Counter()
        self._site = self._read_site()
        named = FILE_NAME.match(path.name)
        date = f"{named['date'][:4]}-{named['date'][4:6]}-{named['date'][6:]}" if named else None
        self.name = path.name
        self.snapshot_date = snapshot_date or date
        self.licence = licence or self._site.licence(self.snapshot_date)
        self.attribution = self._site.attribution(self.licence)
        self.total_bytes: int | None = path.stat().st_size

    def passages(self) -> Iterator[Passage]:
        return passages_of(self)

    def batches(self, after: str | None = None) -> Iterator[Batch]:
        """Raises SourceInvalid where the disk cannot be read, and for a mark that is none of this file."""
        start, offset = (0, 0) if after is None else self._position(after)
        self._skipped = Counter()
        readers = PageReaders(files=self._site.files, processes=self._processes)
        try:
            pages = PageCutter(offset).pages(self._read_from(start, offset))
            for page, outcome in readers.read(pages):
                found: tuple[Passage, ...] = ()
                if page.data is None:
                    self._skipped[page.defect] += 1
                elif isinstance(outcome, Article):
                    found = tuple(passages([outcome]))
                else:
                    self._skipped[outcome] += 1
                yield Batch(found, mark=page.mark, read=page.read)
        except OSError as error:
            raise SourceInvalid(source=str(self._path), reason=f"cannot be read ({error})") from error
        finally:
            readers.close()

    def skipped(self) -> Mapping[str, int]:
        return dict(self._skipped)

    def _read_from(self, start: int, offset: int) -> Iterator[Piece]:
        for number, piece in enumerate(self._pieces.read(start)):
            if number == 0 and offset and (piece.start != start or piece.data is None or len(piece.data) < offset):
                raise self._no_mark(f"{start}:{offset}")
            yield piece

    def _position(self, mark: str) -> tuple[int, int]:
        start, colon, offset = mark.partition(":")
        if not (colon and all(number.isascii() and number.isdigit() for number in (start, offset))):
            raise self._no_mark(mark)
        return int(start), int(offset)

    def _no_mark(self, mark: str) -> SourceInvalid:
        return SourceInvalid(source=str(self._path), reason=f"{mark!r} is no mark of this source")

    def _read_site(self) -> Site:
        """What the header says. A header that is damaged says nothing; a file that begins otherwise is no dump."""
        header = b""
        try:
            for piece in self._pieces.read():
                header += piece.data or b""
                if piece.data is None or OPEN in header or len(header) > HEADER_BYTES:
                    break
            else:
                if not header:
                    raise SourceInvalid(source=str(self._path), reason="holds nothing that can be decompressed")
        except OSError as error:
            raise SourceInvalid(source=str(self._path), reason=f"cannot be read ({error})") from error
        if header and b"<mediawiki" not in header[:HEADER_BYTES] and OPEN not in header:
            raise SourceInvalid(source=str(self._path), reason="is no MediaWiki dump: <mediawiki> is not in its header")
        return read_site(header.partition(OPEN)[0])
