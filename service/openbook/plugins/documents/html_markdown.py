"""HTML as Markdown that `read_markdown` reads: markdownify's, with lists, tables and code as its lines need them."""

import re
from copy import copy
from typing import Any

from markdownify import MarkdownConverter

from openbook.indexing.sources.lined_text import LONGEST_MARKED, fenced

HEADINGS = ["h1", "h2", "h3", "h4", "h5", "h6"]
# What markdownify would join with the words beside it.
BLOCKS = re.compile(
    "^(address|aside|center|details|fieldset|figure|footer|form|header|hgroup|label|legend|main|summary)$"
)
# What cannot hold a heading, as Markdown has it.
PLAIN = ["ul", "ol", "li", "dl", "dt", "dd", "blockquote"]
CELLS = ["td", "th"]
# The words alone are read.
UNMARKED = ["img", "a", "b", "strong", "em", "i", "del", "s"]
# Of columns or rows that a cell spans, and of characters that are repeated in them.
MOST_SPANNED = 200
# Its stub leaves out what a subclass changes.
UNTYPED: Any = MarkdownConverter
BEGINS_BLOCK = re.compile(r"```|~~~|\||-\s|\d+\.\s")


def as_markdown(page: str, infer_names: bool) -> str:
    """`infer_names`: the first row of a table names its columns, where nothing says that it does not.

    A heading's attribute `fragment` stands behind it, as in `## Limits {#limits}`.
    """
    options = {"heading_style": "ATX", "strip": UNMARKED, "table_infer_header": infer_names, "escape_misc": True}
    return str(_Converter(**options).convert(page)).replace("\xa0", " ")


def _regular(page: Any) -> Any:
    """The page with tags alone that Markdown has a mark for."""
    for one in page(["script", "style", "title"]):
        one.decompose()
    for one in page(BLOCKS):
        one.name = "div"
    for one in page(PLAIN):
        one.name = "div" if one.find(HEADINGS) else one.name
    for one in page("pre"):
        one.name = "div" if one.find("pre") else one.name
    for one in page("ol"):
        start = one.get("start", "")
        for number, item in enumerate(one("li", recursive=False), int(start) if re.fullmatch(r"\d{1,6}", start) else 1):
            item["number"] = str(number)
    for one in page("table"):
        rows = [row for row in one("tr") if row.find_parent("table") is one]
        cells = [cell for row in rows for cell in row(CELLS, recursive=False)]
        # what only arranges a page, or numbers lines of code, or has words beside its cells
        is_frame = len(rows) == 1 and (len(cells) == 1 or one.find(["pre", "ul", "ol", "dl"]))
        held = sum(_length(part) for part in (*cells, *one("caption")))
        if is_frame or one.find(["table", *HEADINGS]) or held != _length(one):
            for part in (one, *rows, *cells):
                part.name = "div"
        else:
            _make_regular(one, rows)
    return page


def _make_regular(table: Any, rows: list[Any]) -> None:
    """Give each row a cell for each column, what spans several rows in each of them; the names are the first row."""
    above = table("caption")
    if len(rows) > 1 and len(rows[0](CELLS)) == 1:
        above += rows.pop(0)(CELLS)
    for one in above:
        one.name = "p"
        table.insert_before(one)
    # by the column, for how many rows more, and what
    below: dict[int, tuple[int, Any]] = {}
    for row in rows:
        waiting, filled = row(CELLS, recursive=False), list[Any]()
        while waiting or len(filled) in below:
            left, cell = below.pop(len(filled), (0, None))
            if left:
                if left > 1:
                    below[len(filled)] = (left - 1, cell)
                filled.append(copy(cell))
                continue
            cell = waiting.pop(0)
            wide, high = (_span(cell.attrs.pop(name, "1")) for name in ("colspan", "rowspan"))
            # a long text need not be said again, nor one that has the row for itself
            is_short = (waiting or filled) and len(filled) < MOST_SPANNED and len(cell.get_text()) < MOST_SPANNED
            for number in range(wide if is_short else 1):
                if high > 1 and is_short:
                    below[len(filled)] = (high - 1, cell)
                filled.append(copy(cell) if number else cell)
        row.clear()
        row.extend(filled)
    table.clear()
    table.extend(rows)
    if rows and all(cell.find(["b", "strong"]) for cell in rows[0](CELLS)):
        for cell in rows[0](CELLS):
            cell.name = "th"
    elif rows and len(rows[0]) == 2 and not table("th") and any(map(str.isdecimal, rows[0].contents[1].get_text())):
        # "Order | 77-12" names no columns
        blank = copy(rows[0])
        for cell in blank.contents:
            cell.name = "th"
            cell.clear()
        rows[0].insert_before(blank)


def _length(element: Any) -> int:
    return sum(map(len, element.get_text(" ").split()))


def _span(size: str) -> int:
    return min(max(1, int(size)), MOST_SPANNED) if size.isdecimal() and len(size) < 7 else 1


class _Converter(UNTYPED):  # type: ignore[misc]
    """Lines of an item stand at the margin, where code keeps its fences; a term is an item of a list."""

    def convert_soup(self, soup: Any) -> str:
        return str(super().convert_soup(_regular(soup)))

    def escape(self, text: str, parent_tags: set[str]) -> str:
        text = re.sub("[ \xa0]+", " ", text)
        return text if len(text) > LONGEST_MARKED else str(super().escape(text, parent_tags))

    def convert_hN(self, n: int, el: Any, text: str, parent_tags: set[str]) -> str:  # noqa: N802
        text = text if el.get("fragment") is None else f"{text.strip()} {{#{el['fragment']}}}"
        return str(super().convert_hN(n, el, text, parent_tags))

    def convert_list(self, el: Any, text: str, parent_tags: set[str]) -> str:
        return f"\n{text.rstrip()}\n\n" if "li" in parent_tags else f"\n\n{text}\n\n"

    convert_ul = convert_ol = convert_list

    def convert_li(self, el: Any, text: str, parent_tags: set[str]) -> str:
        depth = sum(1 for one in el.parents if one.name in ("ul", "ol"))
        mark = f"{'  ' * (depth - 1)}{el['number']}." if el.get("number") else f"{'  ' * (depth - 1)}-"
        return f"{mark}{_beside(text)}\n" if text.strip() else "\n"

    def convert_dt(self, el: Any, text: str, parent_tags: set[str]) -> str:
        return f"\n- {' '.join(text.split())}\n" if text.strip() and "_inline" not in parent_tags else f" {text} "

    def convert_dd(self, el: Any, text: str, parent_tags: set[str]) -> str:
        above = el.find_previous_sibling()
        if not text.strip() or "_inline" in parent_tags or above is None or above.name != "dt":
            return f"\n\n{text.strip()}\n\n"
        said = _beside(text)
        return f":{said}\n" if said.startswith(" ") else said

    def convert_pre(self, el: Any, text: str, parent_tags: set[str]) -> str:
        if "_inline" in parent_tags:
            return str(self.convert_code(el, " ".join(text.split()), parent_tags))
        return f"\n\n{fenced(text)}\n\n" if text.strip() else ""

    def convert_hr(self, el: Any, text: str, parent_tags: set[str]) -> str:
        return "\n\n"

    def convert_td(self, el: Any, text: str, parent_tags: set[str]) -> str:
        # in code it is not escaped
        return str(super().convert_td(el, re.sub(r"(?<!\\)\|", r"\|", " ".join(text.split())), parent_tags))

    convert_th = convert_td


def _beside(text: str) -> str:
    """What an item says behind its mark, or below it, where it begins with a block of its own."""
    return f"\n\n{text.strip()}\n" if BEGINS_BLOCK.match(text.strip()) else f" {text.strip()}"
