"""One page of a dump: its XML, and whether it is an article."""

import re
from dataclasses import dataclass
from xml.etree import ElementTree

from openbook.indexing.sources.moments import as_moment
from openbook.indexing.splitting import Section
from openbook.plugins.dump.wikitext import FILE_NAMESPACES, prose_sections

# Of a page's id, a number of 64 bits.
MOST_DIGITS = 20
REDIRECT = re.compile(r"\s*#\s*\w+\s*:?\s*\[\[")
# Pages that are mostly links. DrQA's code, which DPR took over, leaves them out too.
LIST_TITLE = re.compile(r"(?:Lists? of|Index of|Outline of) ")
DISAMBIGUATION_TITLE = re.compile(r"\(disambiguation(?: page)?\)$", re.IGNORECASE)
# The English Wikipedia's templates for such pages, with the words that may come before. "disambiguation needed" is
# none of them: it marks a link in an article.
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


@dataclass(frozen=True, slots=True)
class DumpArticle:
    """An article in plain text. Its id is the page's, which a new title does not change.

    `revision` is the id of the newest revision, "" where the dump has none; `saved` is the time of it.
    """

    article_id: str
    title: str
    sections: tuple[Section, ...]
    revision: str = ""
    saved: str | None = None


def read_article(data: bytes, files: frozenset[str] = FILE_NAMESPACES) -> DumpArticle | str:
    """The article in one `<page>...</page>`, or the reason why it is left out. `files`: see `prose_sections`.

    Raises MemoryError.
    """
    try:
        data.decode()
    except UnicodeDecodeError:
        return "undecodable"
    try:
        # one page alone can have no document type, so no entity is defined and nothing outside is fetched
        page = ElementTree.fromstring(data)
    except ElementTree.ParseError:
        return "broken"

    def last(path: str, missing: str = "") -> str:
        """The text of the last of these elements: of several revisions, the newest."""
        found = page.findall(path)
        return (found[-1].text or "") if found else missing

    page_id, title = last("id"), " ".join(last("title").split())
    if not (page_id.isascii() and page_id.isdigit() and len(page_id) <= MOST_DIGITS and title):
        return "broken"
    wikitext = last("revision/text")
    if (last("ns") or "0") != "0":
        return "other namespace"
    if page.find("redirect") is not None or REDIRECT.match(wikitext):
        return "redirect"
    if last("revision/model", missing="wikitext") != "wikitext":
        return "no wikitext"
    if DISAMBIGUATION_TITLE.search(title) or DISAMBIGUATION.search(wikitext):
        return "disambiguation"
    if LIST_TITLE.match(title):
        return "list"
    try:
        sections = prose_sections(wikitext, files)
    except MemoryError:
        raise
    # any failure of the parser of markup costs this page alone
    except Exception:
        return "unparsable"
    if not sections:
        return "empty"
    revision = last("revision/id")
    known = revision if revision.isascii() and revision.isdigit() else ""
    return DumpArticle(page_id, title, sections, known, as_moment(last("revision/timestamp")))
