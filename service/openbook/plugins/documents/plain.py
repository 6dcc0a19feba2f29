"""Tables, notebooks, records and source code: what the standard library reads, or nobody has to."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from openbook.indexing.sources.folder_file import LARGEST_TEXT, TOO_LARGE, FolderFile, decoded
from openbook.indexing.sources.lined_text import fenced
from openbook.indexing.sources.markdown import read_markdown
from openbook.indexing.splitting import Section
from openbook.plugins.documents.office import table
from openbook.plugins.documents.reading import FileLeftOut, reader

UNDECODABLE = "undecodable"
SNIFFED = 16_384
# Of a value in a file of values, and of values one inside another.
MOST_DEPTH = 40
DEFINITION = re.compile(
    r"[ \t]*(?:export |public |private |protected |static |async |pub |abstract |final )*"
    r"(?:def|class|func|fn|function|interface|struct|enum|trait|impl|type|module|sub)\s+(?:\([^)\n]*\)\s*)?[\w.]+"
)
# What is written otherwise in Markdown, in this order.
Rules = tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...]
CODE = re.compile(r"^(```\n.*?^```$)", re.MULTILINE | re.DOTALL)
ADOC_CODE: Rules = ((re.compile(r"^-{4,}[ \t]*$|^\.{4,}[ \t]*$", re.MULTILINE), lambda _: "```"),)
ADOC: Rules = (
    (re.compile(r"^(={1,6}) ", re.MULTILINE), lambda found: "#" * len(found[1]) + " "),
    # of blocks, of what goes on with an item, and what is elsewhere
    (re.compile(r"^(?:={4,}|\*{4,}|_{4,}|--|\+)[ \t]*$|^(?:include|image|video)::.*$", re.MULTILINE), lambda _: ""),
    (re.compile(r"<<(?:[^<>,\n]*,)?[ ]*([^<>,\n]+)>>"), lambda found: found[1]),
    (re.compile(r"^\[[^\]\n]*\][ \t]*$|^:[\w-]+:.*$|^//.*$", re.MULTILINE), lambda _: ""),
    (re.compile(r"^(\*{1,5}) ", re.MULTILINE), lambda found: "  " * (len(found[1]) - 1) + "- "),
    (re.compile(r"^(\.{1,5}) ", re.MULTILINE), lambda found: "  " * (len(found[1]) - 1) + "1. "),
    (re.compile(r"(?:link:|xref:|https?:)\S*?\[([^\]\n]+)\]"), lambda found: found[1]),
)
ADOC_NAME = re.compile(r"^:([\w-]+):[ \t]+(.+?)[ \t]*$", re.MULTILINE)
# above a block, such as code or a table
ADOC_TITLE = re.compile(r"(?<=\n\n)\.(?=[^\s.].*\n(?:\[|-{4}|={4}|\.{4}|_{4}|\|===|image:))")
ADOC_TABLE = re.compile(
    r"^(?:\[(?P<attributes>[^\]\n]*)\][ \t]*\n)?\|={3,}[ \t]*\n(?P<rows>.*?)^\|={3,}[ \t]*$", re.MULTILINE | re.DOTALL
)
ADOC_CELL = re.compile(r"(?<!\S)(?:(?:(\d{1,2})(?:\.\d+)?\+|[\d.+*]*)[<^>]?[adehlmsv]?)\|")
ADOC_COLUMNS = re.compile(r'cols="?(?:(?P<times>\d{1,2})\*|(?P<each>[^"\]]*))')
ORG_CODE: Rules = (
    (re.compile(r"^[ \t]*#\+(?:begin|end)_(?:src|example)\b.*$", re.MULTILINE | re.IGNORECASE), lambda _: "```"),
)
ORG: Rules = (
    (re.compile(r"^#\+title:[ \t]*", re.MULTILINE | re.IGNORECASE), lambda _: "* "),
    (re.compile(r"^[ \t]*(?:#\+\w+:?.*|:\w+:.*|#[ \t].*)$", re.MULTILINE), lambda _: ""),
    (re.compile(r"^(\*{1,6}) ", re.MULTILINE), lambda found: "#" * len(found[1]) + " "),
    (re.compile(r"\[\[[^\]\n]*\]\[([^\]\n]+)\]\]"), lambda found: found[1]),
    (re.compile(r"^(\|[-+]+\|)[ \t]*$", re.MULTILINE), lambda found: found[1].replace("+", "|")),
)


@reader
def read_csv(content: bytes) -> FolderFile | str:
    """The rows of a table, read with the names in the first one; commas, semicolons, tabs or bars between cells."""
    # Excel's own first line
    text = re.sub(r'\A"?sep=."?\r?\n', "", _text(content))
    try:
        dialect: Any = csv.Sniffer().sniff(text[:SNIFFED], delimiters=",;\t|")
    except csv.Error:
        dialect = csv.excel
    return _of_table(csv.reader(io.StringIO(text, newline=""), dialect))


@reader
def read_ipynb(content: bytes) -> FolderFile | str:
    """The notebook's text, and its code between fences; no outputs."""
    parts = []
    for cell in json.loads(content)["cells"]:
        source = cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
        if source.strip() and cell["cell_type"] in ("markdown", "code"):
            parts.append(source if cell["cell_type"] == "markdown" else fenced(source))
    return read_markdown("\n\n".join(parts))


@reader
def read_json(content: bytes) -> FolderFile | str:
    """A list of records as a table; anything else as lines of `place: value`."""
    found = json.loads(content)
    if found and isinstance(found, list) and all(isinstance(one, dict) for one in found):
        names = list(dict.fromkeys(name for one in found for name in one))
        return _of_table([names, *([_said(one.get(name)) for name in names] for one in found)])
    text = "\n".join(_places(found, ""))
    if len(text) > LARGEST_TEXT:
        raise FileLeftOut(TOO_LARGE)
    return FolderFile((Section(text, has_lines=True),) if text else ())


@reader
def read_marked(content: bytes) -> FolderFile | str:
    """Markdown by another name, with the components of MDX."""
    return read_markdown(_text(content))


@reader
def read_adoc(content: bytes) -> FolderFile | str:
    text = _text(content)
    named = dict(ADOC_NAME.findall(text))
    text = re.sub(r"\{([\w-]+)\}", lambda found: named.get(found[1], found[0]), text)
    return _rewritten(ADOC_TABLE.sub(_adoc_rows, ADOC_TITLE.sub("", text)), ADOC_CODE, ADOC)


def _adoc_rows(found: re.Match[str]) -> str:
    """The rows of a table as Markdown has them: a cell begins with a bar, on any line."""
    first, *split = ADOC_CELL.split(found["rows"])
    # behind each number of columns that a cell spans, the cell
    spanned = zip(split[::2], split[1::2], strict=True)
    cells = [one for times, cell in spanned for one in [" ".join(cell.split()), *[""] * (int(times or 1) - 1)]]
    line = next((line for line in found["rows"].splitlines() if line.strip()), "")
    in_line = sum(int(times or 1) for times in ADOC_CELL.findall(line))
    repeated = ADOC_COLUMNS.search(found["attributes"] or "")
    columns = int(repeated["times"] or repeated["each"].count(",") + 1) if repeated else in_line
    rows = [cells[place : place + columns] for place in range(0, len(cells), columns or 1)]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([" ".join(first.split()), "", *lines[:1], "|---" * columns + "|", *lines[1:], ""])


@reader
def read_org(content: bytes) -> FolderFile | str:
    return _rewritten(_text(content), ORG_CODE, ORG)


@reader
def read_code(content: bytes) -> FolderFile | str:
    """Source code as it stands, a section from each definition at the left margin to the next."""
    parts: list[tuple[str | None, list[str]]] = [(None, [])]
    for line in _text(content).splitlines():
        found = DEFINITION.match(line)
        if found and not line[0].isspace():
            parts.append((" ".join(found[0].split())[:120], []))
        parts[-1][1].append(line.rstrip())
    sections = (Section("\n".join(lines).strip("\n"), name, has_lines=True) for name, lines in parts if any(lines))
    return FolderFile(tuple(sections))


def _of_table(rows: Iterable[list[str]]) -> FolderFile:
    section = table(rows, None)
    return FolderFile((section,) if section is not None else ())


def _rewritten(text: str, code: Rules, rules: Rules) -> FolderFile | str:
    """What `code` puts between fences stays as it is: a comment in it is no comment of the text."""
    for pattern, written in code:
        text = pattern.sub(written, text)
    parts = CODE.split(text)
    for pattern, written in rules:
        parts[::2] = [pattern.sub(written, part) for part in parts[::2]]
    return read_markdown("".join(parts))


def _text(content: bytes) -> str:
    try:
        return decoded(content)
    except UnicodeError:
        raise FileLeftOut(UNDECODABLE) from None


def _said(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def _places(value: Any, place: str, depth: int = 0) -> Iterator[str]:
    if isinstance(value, dict) and depth < MOST_DEPTH:
        for name, inner in value.items():
            yield from _places(inner, f"{place}.{name}" if place else str(name), depth + 1)
    elif isinstance(value, list) and depth < MOST_DEPTH and any(isinstance(one, dict | list) for one in value):
        for number, inner in enumerate(value, start=1):
            yield from _places(inner, f"{place} {number}", depth + 1)
    elif isinstance(value, list):
        yield f"{place}: {', '.join(_said(one) for one in value)}"
    else:
        yield f"{place}: {_said(value)}"
