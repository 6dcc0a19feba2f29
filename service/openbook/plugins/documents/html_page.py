"""A web page: what trafilatura takes for its text, without menus, adverts and footers."""

from collections.abc import Iterator
from typing import Any

from openbook.indexing.sources.folder_file import FolderFile
from openbook.indexing.sources.headings import Headings, as_fragment
from openbook.indexing.sources.lined_text import fenced, row_text
from openbook.indexing.sources.moments import as_moment
from openbook.indexing.splitting import Section
from openbook.plugins.documents.reading import NO_TEXT, FileLeftOut, reader

LINE_END = "\u2028"
# What generators of pages put behind a heading, to link to it.
HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
# What stands within a paragraph.
INLINE = {"a", "abbr", "b", "br", "cite", "code", "em", "font", "i", "img", "kbd", "q", "small", "span", "strong", "u"}
LINK_SIGNS = "¶#§🔗\u200b "


@reader
def read_html(content: bytes) -> FolderFile | str:
    """The page, or the reason why there is none. Call it in a process that can be ended.

    The address is its canonical link, the date the one that it gives of itself.
    """
    import trafilatura

    page = trafilatura.load_html(content)
    names = []
    if page is not None:
        _contain(page)
        _head_descriptions(page)
        names = _names(page)
    dates = {"extensive_search": False, "original_date": True}
    # fast: without two more extractors to compare with, whose choice between them no reader can foresee
    found: Any = trafilatura.bare_extraction(
        page, with_metadata=True, include_comments=False, fast=True, date_extraction_params=dates
    )
    if found is None or found.body is None:
        raise FileLeftOut(NO_TEXT)
    headings = Headings()
    # the section, the id and the words of its heading, and the texts below
    parts: list[tuple[str | None, str | None, str, list[str]]] = [(None, None, "", [])]
    for block in found.body:
        rank = block.get("rend", "")
        if block.tag == "head" and rank[1:].isdecimal():
            text = _words(block)
            at = next((number for number, (words, _) in enumerate(names) if words == text), None)
            name = names[at][1] if at is not None else None
            del names[: 0 if at is None else at + 1]
            # the page's own title is no section of it
            words = "" if text == found.title else text
            parts.append((headings.below(int(rank[1:]), words), name, words, []))
        elif text := "\n".join(_lines(block)):
            parts[-1][3].append(text)
    sections = tuple(
        Section("\n\n".join([words, *texts] if words else texts), section, fragment=name, has_lines=True)
        for section, name, words, texts in parts
        if texts
    )
    return FolderFile(sections, found.title or None, found.url or None, as_moment(found.date))


def _contain(page: Any) -> None:
    """Put a `main` around a page in which the extraction finds no container, and a `p` around its bare text.

    Of such a page, as a person writes it by hand, it would take the paragraphs and lose headings and lists.
    """
    from trafilatura.xpaths import BODY_XPATH

    body = page if page.tag != "html" else page.find("body")
    if body is None or any(container(page) for container in BODY_XPATH):
        return
    main, paragraph = body.makeelement("main"), None
    text, body.text = body.text, None
    for child in [None, *body]:
        if child is not None:
            text, child.tail = child.tail, None
            # an empty line ends a paragraph
            last = paragraph[-1] if paragraph is not None and len(paragraph) else None
            ends = child.tag == "br" and last is not None and last.tag == "br" and not (last.tail or "").strip()
            if child.tag not in INLINE or ends:
                main.append(child)
                paragraph = None
            else:
                paragraph = _paragraph(main) if paragraph is None else paragraph
                paragraph.append(child)
        if text and (text.strip() or paragraph is not None):
            paragraph = _paragraph(main) if paragraph is None else paragraph
            if len(paragraph):
                paragraph[-1].tail = text
            else:
                paragraph.text = text
    body.append(main)


def _paragraph(main: Any) -> Any:
    main.append(main.makeelement("p"))
    return main[-1]


def _head_descriptions(page: Any) -> None:
    """Make a heading of each term with an id: so pages describe settings, options and functions, Sphinx's first of all.

    Paragraphs of a list item are kept apart, which the extraction would join.
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
    for paragraph in page.xpath("//li/p | //dd/p"):
        paragraph.text = f" {paragraph.text or ''}"
        paragraph.drop_tag()


def _names(page: Any) -> list[tuple[str, str]]:
    """The words and the id of each heading that has one, in order. Takes the signs away that link to a heading."""
    found = []
    for heading in page.iter(*HEADINGS):
        own = heading.get("id")
        for link in heading.xpath('.//a[starts-with(@href, "#")]'):
            if not _words(link).strip(LINK_SIGNS):
                own = own or link.get("href")[1:]
                link.drop_tree()
        above = heading.getparent()
        if own is None and above is not None and above.tag in ("section", "div") and above[0] is heading:
            own = above.get("id")
        if own:
            found.append((_words(heading), as_fragment(own[:200])))
    return found


def _words(element: Any) -> str:
    return " ".join("".join(element.itertext()).split())


def _lines(block: Any, indent: str = "") -> Iterator[str]:
    """A block of a page as lines of text: see `lined_text`."""
    if block.tag == "list":
        term = ""
        for number, item in enumerate(block.iterchildren("item"), start=1):
            inner = [line for one in item.iterchildren("list") for line in _lines(one, f"{indent}  ")]
            for one in item.findall("list"):
                item.remove(one)
            if (item.get("rend") or "").startswith("dt"):
                term += f"{_words(item)}: "
                continue
            mark = f"{number}." if block.get("rend") == "ol" else "-"
            yield f"{indent}{mark} {term}{_words(item)}"
            yield from inner
            term = ""
        if term:
            yield f"{indent}- {term[:-2]}"
    elif block.tag == "table":
        rows = [list(row.iterchildren("cell")) for row in block.iter("row")]
        names = [_words(cell) for cell in rows.pop(0)] if rows and all(_is_name(cell) for cell in rows[0]) else []
        for row in rows:
            yield row_text(names, [_words(cell) for cell in row])
    elif block.tag == "code" or (block.tag == "quote" and not len(block) and "\n" in (block.text or "")):
        yield fenced("".join(block.itertext()))
    elif block.tag in ("p", "head", "item", "quote"):
        for line in block.iter("lb"):
            line.tail = f"{LINE_END}{line.tail or ''}"
        said = [" ".join(part.split()) for part in "".join(block.itertext()).split(LINE_END)]
        yield "\n".join(part for part in said if part)
    else:
        yield "\n".join(" ".join(text.split()) for text in block.itertext() if text.strip())


def _is_name(cell: Any) -> bool:
    return bool(cell.get("role") == "head")
