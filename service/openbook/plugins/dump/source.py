"""A MediaWiki dump, plain or compressed with bzip2, as a source of passages."""

import html
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

from openbook.entities import Passage
from openbook.errors import SourceInvalid
from openbook.indexing.passage_fields import MOST_URL, is_url
from openbook.indexing.sources.source import PassageBatch, PassageSource, no_mark, unreadable
from openbook.indexing.splitting import SourceArticle, Split, split_article
from openbook.plugins.dump.cutting import OPEN, PageCutter
from openbook.plugins.dump.page import DumpArticle
from openbook.plugins.dump.pieces import Piece, read_pieces
from openbook.plugins.dump.wikitext import FILE_NAMESPACES
from openbook.plugins.dump.workers import PageReader

HEADER_BYTES = 1 << 20
FILE_NAME = re.compile(r"(?P<wiki>[a-z_]+)-(?P<date>\d{8})-pages-")
# Namespaces by their numbers, which are the same in every language.
FILE_KEYS = {"-2", "6", "14"}
NAMESPACE = re.compile(r'<namespace key="(-?\d+)"[^>]*>([^<]*)</namespace>')
FIELD = r"<{}>([^<]*)</{}>"
WIKIMEDIA = re.compile(
    r"(?:^|\.)(?:wikipedia|wiktionary|wikibooks|wikiquote|wikisource|wikiversity|wikivoyage|wikinews|wikimedia)\.org$"
)
# The day on which Wikimedia's terms of use began to say 4.0.
VERSION_4_SINCE = "2023-06-07"


@dataclass(frozen=True, slots=True)
class Site:
    """The wiki that a dump is of.

    `files`: namespaces, in lower case, whose links show no text. `pages` is what comes before a title in an address,
    and `language` the code of the wiki's language; what the header does not say is empty.
    """

    name: str
    host: str
    files: frozenset[str]
    pages: str = ""
    language: str = ""

    def url(self, title: str, revision: str) -> str | None:
        """The address of a page as it was at this revision; None where the header does not say the wiki's own."""
        path = quote(title.replace(" ", "_"), safe="/:@!$*(),;~'")
        address = f"{self.pages}{path}" + (f"?oldid={revision}" if revision else "")
        return address if self.pages and len(address) <= MOST_URL and is_url(address) else None

    def licence(self, snapshot_date: str | None) -> str:
        """The licence of Wikimedia's wikis on that day, or today's for None; empty for any other wiki."""
        if not WIKIMEDIA.search(self.host) or "wikinews" in self.host:
            return ""
        return "CC-BY-SA-3.0" if snapshot_date is not None and snapshot_date < VERSION_4_SINCE else "CC-BY-SA-4.0"

    def attribution(self, licence: str) -> str:
        """What a reader must be shown: text by the wiki's contributors."""
        if not self.host:
            return ""
        under = f", under {licence}" if licence else ""
        return f"Text from {self.name or self.host} (https://{self.host}), by its contributors{under}; made plain text."


def read_site(header: bytes) -> Site:
    """The site that the bytes before the first page describe. What they do not say is empty."""
    text = header.decode(errors="replace")

    def field(name: str) -> str:
        found = re.search(FIELD.format(name, name), text)
        return html.unescape(found[1]).strip() if found else ""

    localised = {html.unescape(name).strip().lower() for key, name in NAMESPACE.findall(text) if key in FILE_KEYS}
    main_page = field("base")
    language = re.search(r'<mediawiki[^>]*\sxml:lang="([a-z]{2,3})\b', text)
    return Site(
        name=field("sitename"),
        host=_host(main_page),
        files=FILE_NAMESPACES | localised,
        # .../wiki/Main_Page; ...?title=Main_Page is a wiki without such addresses
        pages=f"{main_page.rpartition('/')[0]}/" if is_url(main_page) and "?" not in main_page else "",
        language=language[1] if language else "",
    )


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


class WikipediaDumpSource(PassageSource):
    """`pages-articles.xml` or `.xml.bz2`: every article in plain text, split into passages.

    Passages are named `<page id>#0`, `<page id>#1`, ... A page that is left out is counted (`skipped`) and stops
    nothing. A mark is where a page ends: reading continues at that block of the file, or at that byte of a plain one.
    """

    def __init__(
        self, path: Path, *, snapshot_date: str | None = None, licence: str = "", split: Split = "words"
    ) -> None:
        """Raises SourceInvalid for a file that is no dump."""
        self._path = path
        self._site = self._read_site()
        named = FILE_NAME.match(path.name)
        date = f"{named['date'][:4]}-{named['date'][4:6]}-{named['date'][6:]}" if named else None
        date = snapshot_date or date
        licence = licence or self._site.licence(date)
        self._split: Split = split
        choices = {"split": split}
        super().__init__(path.name, path.stat().st_size, snapshot_date=date, licence=licence, choices=choices)
        self.attribution = self._site.attribution(licence)

    def batches(self, after: str | None = None) -> Iterator[PassageBatch]:
        """Raises SourceInvalid if the disk cannot be read, and for a mark that is none of this file."""
        start, offset = (0, 0) if after is None else self._position(after)
        self._skipped.clear()
        try:
            with closing(PageReader(self._site.files)) as reader:
                for page, outcome in reader.read(PageCutter(offset).pages(self._read_from(start, offset))):
                    found: tuple[Passage, ...] = ()
                    if page.data is None:
                        self._skipped[page.defect] += 1
                    elif isinstance(outcome, DumpArticle):
                        found = self._passages(outcome)
                    else:
                        self._skipped[outcome] += 1
                    yield PassageBatch(found, mark=page.mark, read=page.read)
        except OSError as error:
            raise unreadable(self._path, error) from error

    def _passages(self, page: DumpArticle) -> tuple[Passage, ...]:
        url = self._site.url(page.title, page.revision)
        article = SourceArticle(page.article_id, page.title, page.sections, url, page.saved)
        return split_article(article, self._split, language=self._site.language or "en")

    def _read_from(self, start: int, offset: int) -> Iterator[Piece]:
        for number, piece in enumerate(read_pieces(self._path, start)):
            if number == 0 and offset and (piece.start != start or piece.data is None or len(piece.data) < offset):
                raise no_mark(self._path, f"{start}:{offset}")
            yield piece

    def _position(self, mark: str) -> tuple[int, int]:
        start, colon, offset = mark.partition(":")
        if not (colon and all(number.isascii() and number.isdigit() for number in (start, offset))):
            raise no_mark(self._path, mark)
        return int(start), int(offset)

    def _read_site(self) -> Site:
        """What the header says; nothing if it is damaged. Raises SourceInvalid for a file that is no dump."""
        header = b""
        try:
            for piece in read_pieces(self._path):
                header += piece.data or b""
                if piece.data is None or OPEN in header or len(header) > HEADER_BYTES:
                    break
            else:
                if not header:
                    raise SourceInvalid(source=str(self._path), reason="holds nothing that can be decompressed")
        except OSError as error:
            raise unreadable(self._path, error) from error
        if header and b"<mediawiki" not in header[:HEADER_BYTES] and OPEN not in header:
            raise SourceInvalid(source=str(self._path), reason="is no MediaWiki dump: <mediawiki> is not in its header")
        return read_site(header.partition(OPEN)[0])
