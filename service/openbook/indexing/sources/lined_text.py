"""Text as it stands: paragraphs, lists, tables and code of Markdown, in lines that `openbook.rag.blocks` reads.

A paragraph and a list item have one line each, code stands between fences, and a row of a table is read with the names
of its columns: a passage may begin between any two rows. Links, images and marks of emphasis leave their words.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.common.utils import normalizeReference

_FENCE = re.compile(r" {0,3}(?P<fence>`{3,}|~{3,})")
# in an item of a list code stands further right
_INNER_FENCE = re.compile(r"(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})")
_ITEM = re.compile(r"[ \t]*(?:[-*+•]|\d{1,3}[.)])[ \t]")
_RULE = re.compile(r" {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$")
_CELL = re.compile(r"(?<!\\)\|")
_QUOTED = re.compile(r"^ {0,3}> ?")
_EMPTY_LINES = re.compile(r"\n{3,}")
# What begins a mark. A longer line stays as it is: brackets alone take the parser more than linear time.
_MARK = re.compile(r"[\[<*_\\`&]")
LONGEST_MARKED = 10_000
# `[name]: https://x.example`: an address of links that say `[words][name]`.
_DEFINITION = re.compile(r" {0,3}\[(?P<label>[^\[\]^][^\[\]]{0,998})\]:[ \t]*\S")
# In four spaces or a tab code may stand, whose marks are its own.
_INDENTED = re.compile(r"(?: {4}|\t)")
# What a page has, anything with an attribute, and comments; `<version>` stands for a word that its reader fills in.
_TAG = re.compile(
    r"<!--.*|</?(?:a|abbr|aside|b|br|center|cite|code|dd|del|details|div|dl|dt|em|fig\w+|font|h[1-6]|hr|i|iframe|img|input|ins|kbd"
    r"|li|mark|ol|p|picture|pre|s|samp|section|small|span|strong|su[bp]|summary|t(?:able|body|[dhrt]|head)|u|ul|var"
    r"|video)(?:[\s/].*)?>|<[\w.:-]+\s(?:[^<>]*\s)?[\w:@.-]+=[\"'].*>"
    r"|</(?:article|button|footer|form|header|label|main|nav|option|select|svg)>",
    re.DOTALL | re.IGNORECASE,
)
_APART = re.compile(r"</?(?:aside|br|d[dlt]|div|details|li|p|summary|t[dhr])\b", re.IGNORECASE)
# In characters: no page of plain text is narrower.
NARROWEST_PAGE = 50
# What stands below the names of columns.
_BELOW_NAMES = frozenset("|:- \t")


def from_markdown(lines: Sequence[str], references: Mapping[str, Any] | None = None) -> str:
    """The text of these lines of Markdown; `references` are those of the document that they are from."""
    text = "\n".join(_lines(list(_unquoted(line.rstrip("\r") for line in lines)), references or {}))
    return _EMPTY_LINES.sub("\n\n", text).strip("\n")


def from_plain(text: str) -> str:
    """Plain text with its lines, but that a paragraph broken at the page's width, the longest line's, has one.

    A line was broken there if the first word of the next one had no room in it.
    """
    lines = [line.rstrip() for line in text.expandtabs(4).splitlines()]
    width = max(NARROWEST_PAGE, max(map(len, lines), default=0))
    # adding to a text again and again takes time with the square of its length
    joined = [lines[:1]]
    for before, line in pairwise(lines):
        first, *_ = line.split(maxsplit=1) or [""]
        if before and first and len(before) + 1 + len(first) > width and not _ITEM.match(line):
            joined[-1].append(line.lstrip())
        else:
            joined.append([line])
    return _EMPTY_LINES.sub("\n\n", "\n".join(map(" ".join, joined))).strip("\n")


def references_of(lines: Sequence[str]) -> Mapping[str, Any]:
    """What a document's links by name refer to."""
    found: dict[str, Mapping[str, Any]] = {}
    defined = [line.strip() for line in lines if len(line) <= LONGEST_MARKED and _DEFINITION.match(line)]
    _parser().parse("\n\n".join(defined), found)
    return found.get("references", {})


def words_of(marked: str, references: Mapping[str, Any] | None = None) -> str:
    """What a reader of a line of Markdown sees: no addresses, tags and marks of emphasis; code keeps its backquotes."""
    if len(marked) > LONGEST_MARKED or not _MARK.search(marked):
        return marked
    parts: list[str] = []
    tokens = _parser().parseInline(marked, {"references": references or {}})[0].children or []
    closed = {token.content[2:-1].strip() for token in tokens if token.content.startswith("</")}
    for token in tokens:
        if token.type == "code_inline":
            parts.append(f"{token.markup}{token.content}{token.markup}")
        elif token.type == "html_inline":
            # words on both sides of a cell or an item are two
            known = " " if _APART.match(token.content) else ""
            # whatever its name, what is closed in its own line is a tag
            is_tag = _TAG.fullmatch(token.content) or token.content.strip("</>") in closed
            parts.append(known if is_tag else token.content)
        else:
            parts.append("\n" if token.type in ("softbreak", "hardbreak") else token.content)
    return "".join(parts)


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"maxNesting": 20})


def row_text(names: Sequence[str], cells: Sequence[str]) -> str:
    """A row of a table in one line: `code: F307 | meaning: the index is damaged`."""
    named = [
        f"{name}: {cell}" if name else cell
        for name, cell in zip([*names, *[""] * len(cells)], cells, strict=False)
        if cell
    ]
    if len(named) > 1 and any(names):
        return " | ".join(named)
    return f"| {' | '.join(named)} |" if len(named) > 1 else f"- {named[0]}" if named else ""


def fenced(code: str) -> str:
    """Code between fences that it does not hold itself."""
    fence = "~~~" if "```" in code else "```"
    return f"{fence}\n{code.strip()}\n{fence}"


def _unquoted(lines: Iterable[str]) -> Iterator[str]:
    """Lines of a quotation without the > before them, which in code is a prompt."""
    fence, in_quotation = "", False
    for line in lines:
        plain = _QUOTED.sub("", line)
        shown = plain if in_quotation or not fence else line
        yield shown
        if found := _FENCE.match(shown):
            if not fence:
                fence, in_quotation = found["fence"], plain != line
            elif found["fence"].startswith(fence):
                fence, in_quotation = "", False


def _lines(given: Sequence[str], references: Mapping[str, Any]) -> Iterator[str]:
    names: list[str] | None = None
    fence = ""
    # the lines of a paragraph or item, which the next one may continue
    begun: list[str] = []
    listed = False
    # the indentation of code and of its fences, and whether a list goes on
    indent, in_list = "", False
    for number, line in enumerate(given):
        found = (_INNER_FENCE if in_list or fence else _FENCE).match(line)
        if fence:
            yield line.removeprefix(indent).rstrip()
            fence = "" if found and found["fence"].startswith(fence) else fence
            continue
        in_list = _ITEM.match(line) is not None or (in_list and (not line.strip() or line[0].isspace()))
        defined = _DEFINITION.match(line)
        if defined and normalizeReference(defined["label"]) in references:
            line = ""
        is_row = "|" in line and (names is not None or _is_below_names(given[number + 1 : number + 2]))
        is_rule = _RULE.match(line) is not None
        if begun and (found or is_row or is_rule or not line.strip() or _ITEM.match(line)):
            yield _joined(begun, references, listed)
            begun = []
        if is_row:
            cells = [
                words_of(cell.strip().replace("\\|", "|"), references).strip()
                for cell in _CELL.split(line.strip().strip("|"))
            ]
            if names is None:
                names = cells
                if not any("|" in below for below in given[number + 2 : number + 3]):
                    # of a table with no other row
                    yield row_text([], cells)
            elif not _is_below_names([line]):
                yield row_text(names, cells)
            continue
        names = None
        if found:
            fence = found["fence"]
            indent = "" if _FENCE.match(line) else found["indent"]
            yield line.removeprefix(indent).rstrip()
        elif is_rule or not line.strip():
            yield f"\n{line.strip()}\n"
        else:
            listed = in_list if not begun else listed
            begun.append(line)
    if begun:
        yield _joined(begun, references, listed)


def _joined(lines: Sequence[str], references: Mapping[str, Any], in_list: bool) -> str:
    """A paragraph in one line, but where two spaces at its end or a backslash break one; indented code as code."""
    is_code = all(map(_INDENTED.match, lines)) and not _ITEM.match(lines[0])
    if is_code and not in_list and len(lines) > 1:
        return fenced("\n".join(line.expandtabs(4)[4:].rstrip() for line in lines))
    joined = lines[0].rstrip(" \t\\")
    for before, line in pairwise(lines):
        joined += ("\n" if before.endswith(("  ", "\\")) else " ") + line.strip(" \t\\")
    if is_code:
        return joined
    shown = words_of(joined, references).rstrip()
    return shown if joined[0].isspace() else shown.lstrip()


def _is_below_names(lines: Sequence[str]) -> bool:
    return any("-" in line and "|" in line and _BELOW_NAMES.issuperset(line) for line in lines)
