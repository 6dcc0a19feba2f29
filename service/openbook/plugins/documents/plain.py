"""Tables, notebooks, records and source code: what the standard library reads, or nobody has to."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from openbook.indexing.sources.folder_file import BROKEN, LARGEST_TEXT, TOO_LARGE, FolderFile
from openbook.indexing.sources.lined_text import fenced
from openbook.indexing.sources.markdown import read_markdown
from openbook.indexing.splitting import Section
from openbook.plugins.documents.office import NO_TEXT, table

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
ADOC: Rules = (
    (re.compile(r"^(={1,6}) ", re.MULTILINE), lambda found: "#" * len(found[1]) + " "),
    (re.compile(r"^-{4,}[ \t]*$|^\.{4,}[ \t]*$", re.MULTILINE), lambda _: "```"),
    (re.compile(r"^\[[^\]\n]*\][ \t]*$|^:[\w-]+:.*$|^//.*$", re.MULTILINE), lambda _: ""),
    (re.compile(r"^(\*{1,5}) ", re.MULTILINE), lambda found: "  " * (len(found[1]) - 1) + "- "),
    (re.compile(r"^(\.{1,5}) ", re.MULTILINE), lambda found: "  " * (len(found[1]) - 1) + "1. "),
    (re.compile(r"(?:link:|https?:)\S*?\[([^\]\n]+)\]"), lambda found: found[1]),
)
ORG: Rules = (
    (re.compile(r"^[ \t]*#\+(?:begin|end)_(?:src|example)\b.*$", re.MULTILINE | re.IGNORECASE), lambda _: "```"),
    (re.compile(r"^#\+title:[ \t]*", re.MULTILINE | re.IGNORECASE), lambda _: "* "),
    (re.compile(r"^[ \t]*(?:#\+\w+:?.*|:\w+:.*|#[ \t].*)$", re.MULTILINE), lambda _: ""),
    (re.compile(r"^(\*{1,6}) ", re.MULTILINE), lambda found: "#" * len(found[1]) + " "),
    (re.compile(r"\[\[[^\]\n]*\]\[([^\]\n]+)\]\]"), lambda found: found[1]),
    (re.compile(r"^(\|[-+]+\|)[ \t]*$", re.MULTILINE), lambda found: found[1].replace("+", "|")),
)


def read_csv(content: bytes) -> FolderFile | str:
    """The rows of a table, read with the names in the first one; commas, semicolons, tabs or bars between cells."""
    text = _text(content)
    if text is None:
        return UNDECODABLE
    try:
        dialect: Any = csv.Sniffer().sniff(text[:SNIFFED], delimiters=",;\t|")
    except csv.Error:
        dialect = csv.excel
    try:
        section = table(iter(csv.reader(io.StringIO(text, newline=""), dialect)), None)
    except csv.Error:
        return BROKEN
    return FolderFile((section,)) if section is not None else NO_TEXT


def read_ipynb(content: bytes) -> FolderFile | str:
    """The notebook's text, and its code between fences; no outputs."""
    try:
        cells = json.loads(content)["cells"]
        parts = []
        for cell in cells:
            source = cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
            if source.strip() and cell["cell_type"] in ("markdown", "code"):
                parts.append(source if cell["cell_type"] == "markdown" else fenced(source))
    except (ValueError, KeyError, TypeError, RecursionError):
        return BROKEN
    return _as_markdown("\n\n".join(parts))


def read_json(content: bytes) -> FolderFile | str:
    """A list of records as a table; anything else as lines of `place: value`."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return BROKEN
    records = found if isinstance(found, list) else None
    if records and all(isinstance(one, dict) for one in records):
        names = list(dict.fromkeys(name for one in records for name in one))
        rows = ([_said(one.get(name)) for name in names] for one in records)
        section = table(iter([names, *rows]), None)
        return FolderFile((section,)) if section is not None else NO_TEXT
    text = "\n".join(_places(found, ""))
    if len(text) > LARGEST_TEXT:
        return TOO_LARGE
    return FolderFile((Section(text, has_lines=True),)) if text else NO_TEXT


def read_adoc(content: bytes) -> FolderFile | str:
    return _rewritten(content, ADOC)


def read_org(content: bytes) -> FolderFile | str:
    return _rewritten(content, ORG)


def read_code(content: bytes) -> FolderFile | str:
    """Source code as it stands, a section from each definition at the left margin to the next."""
    text = _text(content)
    if text is None:
        return UNDECODABLE
    parts: list[tuple[str | None, list[str]]] = [(None, [])]
    for line in text.splitlines():
        found = DEFINITION.match(line)
        if found and not line[0].isspace():
            parts.append((" ".join(found[0].split())[:120], []))
        parts[-1][1].append(line.rstrip())
    sections = (Section("\n".join(lines).strip("\n"), name, has_lines=True) for name, lines in parts if any(lines))
    return FolderFile(tuple(sections)) if text.strip() else NO_TEXT


def _rewritten(content: bytes, rules: Rules) -> FolderFile | str:
    text = _text(content)
    if text is None:
        return UNDECODABLE
    for pattern, written in rules:
        text = pattern.sub(written, text)
    return _as_markdown(text)


def _as_markdown(text: str) -> FolderFile | str:
    return read_markdown(text) if text.strip() else NO_TEXT


def _text(content: bytes) -> str | None:
    try:
        return content.decode("utf-8-sig")
    except UnicodeError:
        return None


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
