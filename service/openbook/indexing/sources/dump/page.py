"""One page of a dump: its XML, and whether it is an article."""

import re
from dataclasses import dataclass
from xml.parsers import expat

from openbook.indexing.sources.dump.wikitext import FILE_NAMESPACES, plain_text

DEEPEST_XML = 16
REDIRECT = re.compile(r"\s*#\s*\w+\s*:?\s*\[\[")
# Pages that are mostly links, as DrQA's code, which DPR took over, leaves them out.
LIST_TITLE = re.compile(r"(?:Lists? of|Index of|Outline of) ")
DISAMBIGUATION_TITLE = re.compile(r"\(disambiguation(?: page)?\)$", re.IGNORECASE)
# The English Wikipedia's templates for such pages, with the words that may stand before; "disambiguation needed",
# which marks a link in an article, is none of them.
DISAMBIGUATION = re.compile(
    r"__DISAMBIG__"
    r"|\{\{\s*(?:template:)?(?:(?:airport|biology|call sign|case ?law|chinese title|church|genus|given name|hospital"
    r"|human name|letter-number combination|mathematical|military unit|music|opus|phonetics|place ?name|portal"
    r"|road|school|ship|species latin name|station|surname|synagogue|taxonomic authority|taxonomy|wikipedia)[ _]+)?"
    r"(?:disambig(?:uation)?(?:[ _-](?:page|cleanup))?|disam|disamb|dab|hndis|geodis|schooldis|roaddis|mathdab"
    r"|numberdis|letter[ _]disambig|begriffsklärung|homonymie|desambiguación)\s*[|}]"
    r"|\[\[\s*category\s*:[^\]|\n]{0,80}\bdisambiguation pages\b",
    re.IGNORECASE,
)


class NotAnArticle(Exception):
    """A page that is left out; `reason` is what it is counted under."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Article:
    """An article in plain text. Its id is the page's, which stays when the page is renamed."""

    article_id: str
    title: str
    text: str


def read_article(data: bytes, files: frozenset[str] = FILE_NAMESPACES) -> Article:
    """The article in one `<page>...</page>`. `files`: see `plain_text`. Raises NotAnArticle for every other page."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise NotAnArticle("undecodable") from error
    fields = _PageFields().parse(data)
    page_id, title = fields.get("page/id", ""), " ".join(fields.get("page/title", "").split())
    if not (page_id.isascii() and page_id.isdigit() and title):
        raise NotAnArticle("broken")
    wikitext = fields.get("page/revision/text", "")
    if (fields.get("page/ns") or "0") != "0":
        raise NotAnArticle("other namespace")
    if "page/redirect" in fields or REDIRECT.match(wikitext):
        raise NotAnArticle("redirect")
    if fields.get("page/revision/model", "wikitext") != "wikitext":
        raise NotAnArticle("no wikitext")
    if DISAMBIGUATION_TITLE.search(title) or DISAMBIGUATION.search(wikitext):
        raise NotAnArticle("disambiguation")
    if LIST_TITLE.match(title):
        raise NotAnArticle("list")
    try:
        text = plain_text(wikitext, files)
    except MemoryError:
        raise
    # whatever a parser of other people's markup may stumble over costs this page and no other
    except Exception as error:
        raise NotAnArticle("unparsable") from error
    if not text:
        raise NotAnArticle("empty")
    return Article(page_id, title, text)


class _PageFields:
    """The text of a page's elements by their path; of several revisions that of the last.

    Reads one page alone, which can have no document type: nothing outside is fetched and no entity is defined.
    """

    def __init__(self) -> None:
        self._path: list[str] = []
        self._fields: dict[str, list[str]] = {}

    def parse(self, data: bytes) -> dict[str, str]:
        parser = expat.ParserCreate("utf-8")
        parser.buffer_text = True
        parser.buffer_size = 1 << 16
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        try:
            parser.Parse(data, True)
        except expat.ExpatError as error:
            raise NotAnArticle("broken") from error
        return {path: "".join(parts) for path, parts in self._fields.items()}

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._path.append(name)
        if len(self._path) > DEEPEST_XML:
            raise NotAnArticle("broken")
        self._fields["/".join(self._path)] = []

    def _end(self, name: str) -> None:
        self._path.pop()

    def _text(self, text: str) -> None:
        self._fields["/".join(self._path)].append(text)
