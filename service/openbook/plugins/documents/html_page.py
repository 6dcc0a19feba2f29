"""A web page: the part that holds its text, without menus and footers, read as Markdown is."""

from dataclasses import replace
from typing import Any

from openbook.indexing.sources.folder_file import FolderFile
from openbook.indexing.sources.headings import as_fragment
from openbook.indexing.sources.moments import as_moment
from openbook.plugins.documents.office import from_html
from openbook.plugins.documents.reading import NO_TEXT, FileLeftOut, reader

HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
LONGEST_HEADING = 1000
# What generators of pages put behind a heading, or a note, to link to it.
LINK_SIGNS = "¶#§🔗↩︎\u200b "
UNREAD = ("script", "style", "noscript", "template", "nav", "footer", "select", "textarea", "svg", "img", "title")
# Also numbers of lines of code; a button in a sentence is a word of it.
BESIDE_TEXT = """.//*[@role="navigation" or @role="banner" or @role="contentinfo" or @role="search"]
    | .//*[contains(@class, "editsection") or contains(@class, "lineno")]
    | .//*[not(text()[normalize-space()])]/button"""
LOCAL_LINKS = './/*[self::ul or self::ol][.//a[starts-with(@href, "#")] and not(.//a[not(starts-with(@href, "#"))])]'
# Above all headings a menu, and anywhere in a page that has no mark of where its text begins.
LINK_LISTS = ".//*[(self::ul or self::ol) and count(.//a) > 10]"
ABOVE_HEADINGS = "[ancestor::header or not(preceding::h1 or preceding::h2)]"


@reader
def read_html(content: bytes) -> FolderFile | str:
    """The page, or the reason why there is none. Call it in a process that can be ended.

    The address is its canonical link, the date the one that it gives of itself.
    """
    import trafilatura
    from lxml.etree import tostring

    page = trafilatura.load_html(content)
    if page is None:
        raise FileLeftOut(NO_TEXT)
    _name_headings(page)
    dates = {"extensive_search": False, "original_date": True}
    found = trafilatura.extract_metadata(page, date_config=dates, extensive=False)
    text = _container(page)
    _prune(text)
    _head_descriptions(text)
    # of those a page may have more, in what stands around its text
    heads = text.findall(".//h1") if text.tag != "body" else []
    title = (_words(heads[0]) if len(heads) == 1 else "") or found.title or None
    names = _mark_headings(text, title)
    file = from_html(tostring(text, encoding="unicode", method="html", with_tail=False), infer_names=False)
    if isinstance(file, str):
        return file
    sections = tuple(replace(one, fragment=names.get(one.fragment or "")) for one in file.sections)
    return FolderFile(sections, title, found.url or None, as_moment(found.date))


def _container(page: Any) -> Any:
    """What holds the text, and all that is made as this is: of a page with several articles what holds them."""
    from trafilatura.xpaths import BODY_XPATH

    for find in BODY_XPATH:
        for one in find(page)[:1]:
            alike = [other for other in page.iter(one.tag) if other.get("class") == one.get("class")]
            if one.tag == "article" or one.get("class"):
                while any(one is not other and one not in other.iterancestors() for other in alike):
                    one = one.getparent()
            return one
    body = page.find("body")
    return page if body is None else body


def _prune(text: Any) -> None:
    """Take away what is no text, and what trafilatura takes for menus where it is of links."""
    from lxml.etree import strip_elements
    from trafilatura.xpaths import OVERALL_DISCARD_XPATH

    strip_elements(text, *UNREAD, with_tail=False)
    doubtful = [one for find in OVERALL_DISCARD_XPATH for one in find(text)] + text.xpath(LOCAL_LINKS)
    most = len(_words(text)) / 2
    lists = text.xpath(LINK_LISTS if text.tag == "body" else LINK_LISTS + ABOVE_HEADINGS)
    doubtful += [one for one in lists if len(_words(one)) < most]
    for one in text.xpath(BESIDE_TEXT) + [one for one in doubtful if _is_of_links(one)]:
        if one.getparent() is not None:
            one.drop_tree()


def _is_of_links(element: Any) -> bool:
    linked = sum(len(_words(link)) for link in element.iter("a"))
    return 2 * linked > len(_words(element))


def _head_descriptions(page: Any) -> None:
    """Make a heading of each term with an id: so pages describe settings, options and functions, Sphinx's first of all.

    Paragraphs of a list item become one.
    """
    level, found = 1, []
    for one in page.iter(*HEADINGS, "dt"):
        if one.tag != "dt":
            level = int(one.tag[1])
        elif one.get("id") and one.getparent().tag == "dl":
            found.append((one, f"h{min(6, level + sum(1 for _ in one.iterancestors('dl')))}"))
    for term, heading in found:
        for one in (term.getparent(), *term.itersiblings("dd")):
            one.tag = "div"
        term.tag = heading
    for paragraph in page.xpath(".//li/p | .//dd/p"):
        paragraph.text = f" {paragraph.text or ''}"
        paragraph.drop_tag()


def _name_headings(page: Any) -> None:
    """Give a heading the id that the elements around it have. Takes the signs away that link to a heading or note."""
    for heading in page.iter(*HEADINGS):
        above = heading.getparent()
        begins = above is not None and above.tag in ("section", "div") and above[0] is heading
        links = heading.xpath(
            './/a[starts-with(@href, "#")] | following-sibling::*[1]/self::a[starts-with(@href, "#")]'
        )
        linked = [link.get("href")[1:] for link in links if not _words(link).strip(LINK_SIGNS)]
        named = [*heading.xpath("@id | .//@id"), *linked, *(above.xpath("@id") if begins else [])]
        if named:
            heading.set("id", named[0])
    for link in page.xpath('//a[starts-with(@href, "#")]'):
        if not _words(link).strip(LINK_SIGNS):
            link.drop_tree()


def _mark_headings(text: Any, title: str | None) -> dict[str, str]:
    """The fragment of each heading that has an id, by the attribute that it gets. Leaves words alone in a heading.

    The page's own title is no section of it, nor is the first heading its title.
    """
    from lxml.etree import strip_tags

    found = {}
    for number, heading in enumerate(list(text.iter(*HEADINGS))):
        words = _words(heading)
        if len(words) > LONGEST_HEADING:
            # it was never closed
            heading.tag = "div"
            continue
        if own := heading.get("id"):
            found[str(number)] = as_fragment(own[:200])
        heading[:] = []
        heading.text = "" if words == title else words
        heading.set("fragment", str(number))
    # a page of code has thousands, and old pages never close them
    strip_tags(text, "span", "font")
    first = text.makeelement("h1", fragment="")
    first.tail, text.text = text.text, None
    text.insert(0, first)
    return found


def _words(element: Any) -> str:
    return " ".join("".join(element.itertext()).split())
