"""A web page: what trafilatura takes for its text, without menus, adverts and footers."""

from typing import Any

from openbook.indexing.sources.folder_file import BROKEN, FolderFile
from openbook.indexing.sources.headings import Headings
from openbook.indexing.sources.moments import as_moment
from openbook.indexing.splitting import Section

NO_TEXT = "empty"


def read_html(content: bytes) -> FolderFile | str:
    """The page, or the reason why there is none. Call it in a process that can be ended.

    The address is its canonical link, the date the one that it gives of itself.
    """
    try:
        return _read(content)
    except MemoryError:
        raise
    # hostile pages fail in any of the libraries' ways
    except Exception:
        return BROKEN


def _read(content: bytes) -> FolderFile | str:
    import trafilatura

    dates = {"extensive_search": False, "original_date": True}
    # fast: without two more extractors to compare with, whose choice between them no reader can foresee
    found: Any = trafilatura.bare_extraction(
        content, with_metadata=True, include_comments=False, fast=True, date_extraction_params=dates
    )
    if found is None or found.body is None:
        return NO_TEXT
    headings = Headings()
    parts: list[tuple[str | None, list[str]]] = [(None, [])]
    for block in found.body:
        text = " ".join("".join(block.itertext()).split()) if block.tag in ("p", "head") else _lines(block)
        rank = block.get("rend", "")
        if block.tag == "head" and text == found.title:
            # the page's own title is no section of it
            continue
        if block.tag == "head" and rank[1:].isdecimal():
            parts.append((headings.below(int(rank[1:]), text), [text]))
        elif text:
            parts[-1][1].append(text)
    sections = tuple(Section("\n\n".join(texts), section) for section, texts in parts if len(texts) > bool(section))
    return FolderFile(sections, found.title or None, found.url or None, as_moment(found.date)) if sections else NO_TEXT


def _lines(block: Any) -> str:
    """The entries of a list, the cells of a table, each apart from the next."""
    return "\n".join(" ".join(text.split()) for text in block.itertext() if text.strip())
