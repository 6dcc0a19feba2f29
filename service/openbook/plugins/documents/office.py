"""Word, Excel and PowerPoint files, books in EPUB, and mails: each becomes HTML or Markdown, which is read as such."""

import codecs
import email
import email.policy
import io
import posixpath
import re
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from email.message import EmailMessage, MIMEPart
from itertools import zip_longest
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

from openbook.indexing.sources.folder_file import BROKEN, LARGEST_TEXT, TOO_LARGE, FolderFile, decoded
from openbook.indexing.sources.lined_text import from_plain, row_text
from openbook.indexing.sources.markdown import read_markdown
from openbook.indexing.sources.moments import as_moment
from openbook.indexing.splitting import Section
from openbook.plugins.documents.reading import ENCRYPTED, NO_TEXT, FileLeftOut, reader

# Of all files in one zip together: a few kilobytes of it may hold petabytes.
LARGEST_CONTENT = 512 << 20
SLIDE = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
# of a sheet: what is further right than this has no name that anybody reads
MOST_COLUMNS = 200
# `[$€-407]` or a sign of its own; `[$-409]` is a language.
CURRENCY = re.compile(r"\[\$([^-\]]+)(?:-[^\]]*)?\]|(?<!\[)([$£€¥])")


def from_html(page: str, infer_names: bool = True) -> FolderFile | str:
    """Clean HTML, all of which is text, as Markdown is read: see `as_markdown`."""
    from openbook.plugins.documents.html_markdown import as_markdown

    if len(page) > LARGEST_TEXT:
        return TOO_LARGE
    text = as_markdown(page, infer_names)
    return read_markdown(text) if text.strip() else NO_TEXT


def table(rows: Iterable[list[str]], name: str | None) -> Section | None:
    """The rows below the first one that has two cells or more, which names the columns."""
    names: list[str] = []
    lines, length = [], 0
    # what may name the columns anew, with the names that it would make, until the next row says so
    held: tuple[list[str], list[str]] | None = None
    may_name, above = False, list[str]()
    for row in rows:
        cells = [" ".join(cell.split()) for cell in row[:MOST_COLUMNS]]
        n_filled = sum(map(bool, cells))
        if held is not None:
            if _has_numbers(cells):
                names = held[1]
            else:
                lines.append(row_text(names, held[0]))
            held = None
        if not names and n_filled > 1:
            names, may_name = cells, True
            above = list(names)
            for at in range(1, len(above)):
                above[at] = above[at] or above[at - 1]
        elif may_name and n_filled > 1 and not _has_numbers(cells) and _fills(above, cells):
            pairs = zip_longest(above, cells, fillvalue="")
            held, may_name = (cells, [" ".join(dict.fromkeys(filter(None, pair))) for pair in pairs]), False
        elif line := row_text(names, cells):
            lines.append(line)
            length += len(line)
            may_name = False
        elif names:
            # behind an empty row another table may begin
            may_name, above = True, list[str]()
        if length > LARGEST_TEXT:
            break
    if held is not None:
        lines.append(row_text(names, held[0]))
    if not lines and names:
        lines = [row_text([], names)]
    # a row is a line of its own: a passage may begin between any two
    return Section("\n".join([f"{name}\n", *lines] if name else lines), name, has_lines=True) if lines else None


def _has_numbers(cells: Iterable[str]) -> bool:
    return any(any(map(str.isdecimal, cell)) for cell in cells)


def _fills(above: list[str], cells: list[str]) -> bool:
    """Whether the cells tell columns apart that the names leave together, as "Retail" and "Trade" below "Price"."""
    together = [above.count(name) > 1 for name in above]
    return not above or any(cell and one for cell, one in zip(cells, together, strict=False))


def _unpacked(content: bytes) -> zipfile.ZipFile:
    if content.startswith(b"\xd0\xcf\x11\xe0"):
        # an OLE container: an encrypted file of today's Office, or one of before 2007
        raise FileLeftOut(ENCRYPTED)
    packed = zipfile.ZipFile(io.BytesIO(content))
    if sum(one.file_size for one in packed.infolist()) > LARGEST_CONTENT:
        raise FileLeftOut(TOO_LARGE)
    return packed


def _xml(packed: zipfile.ZipFile, name: str) -> ElementTree.Element:
    content = packed.read(name)
    if b"<!ENTITY" in content:
        raise ValueError("entities")
    return ElementTree.fromstring(content)


@reader
def read_docx(content: bytes) -> FolderFile | str:
    import mammoth

    packed = _unpacked(content)
    for name in packed.namelist():
        if name.endswith(".xml"):
            _xml(packed, name)
    # a title is above all headings
    styles = "p[style-name='Title'] => h1.title:fresh\np[style-name='Subtitle'] => p:fresh"
    html = mammoth.convert_to_html(io.BytesIO(content), style_map=styles, external_file_access=False).value
    return from_html(html)


@reader
def read_xlsx(content: bytes) -> FolderFile | str:
    """A section for each sheet, its rows read with the names in the first one."""
    from openpyxl import load_workbook

    _unpacked(content)
    book = load_workbook(io.BytesIO(content), read_only=True, data_only=True, keep_links=False)
    sections = []
    for sheet in book.worksheets:
        rows = ([_shown(cell) for cell in row] for row in sheet.iter_rows())
        # one sheet needs no name
        name = sheet.title if len(book.worksheets) > 1 else None
        sections += [section] if (section := table(rows, name)) is not None else []
    return FolderFile(tuple(sections))


def _shown(cell: Any) -> str:
    """A cell's value, with the % or currency that its format shows."""
    value, form = cell.value, cell.number_format or ""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return _cell(value)
    if "%" in form:
        return f"{100 * value:.10g}%"
    currency = CURRENCY.search(form)
    return f"{currency[1] or currency[2] if currency else ''}{_cell(value)}"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    # a day has no time
    return str(value).removesuffix(" 00:00:00")


@reader
def read_pptx(content: bytes) -> FolderFile | str:
    """A section for each slide, with its number as the metadata `page`."""
    packed = _unpacked(content)
    shown = _xml(packed, "ppt/presentation.xml")
    targets = {
        one.get("Id", ""): posixpath.join("ppt", one.get("Target", ""))
        for one in _xml(packed, "ppt/_rels/presentation.xml.rels")
    }
    slides = [targets[one.get(f"{RELATION}id", "")] for one in shown.iter() if one.tag.endswith("}sldId")]
    sections = []
    for number, name in enumerate(slides, start=1):
        lines = []
        for element in _xml(packed, posixpath.normpath(name)).iter():
            if element.tag == f"{SLIDE}tr":
                lines.append(row_text([], [" ".join(_runs(cell)) for cell in element.iter(f"{SLIDE}tc")]))
                for paragraph in list(element.iter(f"{SLIDE}p")):
                    paragraph.clear()
            elif element.tag == f"{SLIDE}p" and (said := "".join(_runs(element)).strip()):
                lines.append(said if not lines else f"- {said}")
        if lines:
            heading, *below = lines
            text = "\n".join([f"{heading}\n", *below])
            sections.append(Section(text, heading[:200], metadata=(("page", number),), has_lines=True))
    title = sections[0].heading if sections else None
    return FolderFile(tuple(sections), title)


def _runs(element: ElementTree.Element) -> Iterator[str]:
    for one in element.iter():
        if one.tag == f"{SLIDE}t":
            yield one.text or ""
        elif one.tag == f"{SLIDE}br":
            yield " "


@reader
def read_epub(content: bytes) -> FolderFile | str:
    packed = _unpacked(content)
    root = next(one for one in _xml(packed, "META-INF/container.xml").iter() if one.tag.endswith("}rootfile"))
    place = root.get("full-path", "")
    book = _xml(packed, place)
    files = {one.get("id"): one for one in book.iter() if one.tag.endswith("}item")}
    order = [files[one.get("idref")] for one in book.iter() if one.tag.endswith("}itemref")]
    names = [
        posixpath.normpath(posixpath.join(posixpath.dirname(place), unquote(one.get("href", "")))) for one in order
    ]
    sections: list[Section] = []
    length = 0
    for name in names:
        chapter = from_html(packed.read(name).decode("utf-8", "replace"))
        if isinstance(chapter, FolderFile):
            # the chapter's title is a section of the book
            own = [chapter.title] if chapter.title else []
            for section in chapter.sections:
                heading = " > ".join([*own, *([section.heading] if section.heading else [])]) or None
                sections.append(Section(section.text, heading, fragment=section.fragment, has_lines=True))
                length += len(section.text)
        if length > LARGEST_TEXT:
            raise FileLeftOut(TOO_LARGE)
    said = {one.tag.rpartition("}")[2]: (one.text or "").strip() for one in book.iter() if "/dc/" in one.tag}
    return FolderFile(tuple(sections), said.get("title") or None, published=as_moment(said.get("date")))


@reader
def read_eml(content: bytes) -> FolderFile | str:
    """A mail: its subject is the title, its date that of the text; attachments are left out."""
    message = email.message_from_bytes(_with_plain_head(content), policy=email.policy.default)
    if not isinstance(message, EmailMessage) or not message.keys():
        raise FileLeftOut(BROKEN)
    body = message.get_body(("plain", "html"))
    text = _content(body) if body is not None else ""
    if not text.strip() and (other := message.get_body(("html",))) is not None:
        # some programs send an empty text beside the page
        body, text = other, _content(other)
    sent = message["date"].datetime.isoformat() if message["date"] is not None and message["date"].datetime else None
    head = [f"{name}: {message[name.lower()]}" for name in ("From", "To", "Date") if message[name.lower()]]
    if body is not None and body.get_content_type() == "text/html":
        page = from_html(text)
        sections = page.sections if isinstance(page, FolderFile) else ()
    else:
        sections = (Section(from_plain(text), has_lines=True),) if text.strip() else ()
    if not sections:
        raise FileLeftOut(NO_TEXT)
    title = " ".join(str(message["subject"] or "").split()) or None
    return FolderFile((Section("\n".join(head), has_lines=True), *sections), title, published=as_moment(sent))


def _with_plain_head(content: bytes) -> bytes:
    """The mail with its headers in UTF-8, which some programs write as they write texts."""
    head, *rest = re.split(rb"(\r?\n\r?\n)", content, maxsplit=1)
    with suppress(UnicodeError):
        head = decoded(head).encode()
    return b"".join([head, *rest])


def _content(part: MIMEPart) -> str:
    """The text of a part of a mail. Programs say less of its encoding than is so: nothing, ASCII, or Latin-1."""
    content = part.get_payload(decode=True)
    if not isinstance(content, bytes):
        return ""
    charset = part.get_content_charset("us-ascii")
    with suppress(LookupError, UnicodeError):
        name = codecs.lookup(charset).name
        return content.decode("cp1252" if name == "iso8859-1" else name)
    try:
        return decoded(content)
    except UnicodeError:
        return content.decode("utf-8", "replace")
