"""The paragraphs, list items, table rows and code blocks of a text that has lines, and the sentences of a paragraph."""

import re
from dataclasses import dataclass

import sentencex

_FENCE = r" {0,3}(?:`{3}|~{3})"
_ITEM = r"[ \t]*(?:[-*+•]|\d{1,3}[.)])[ \t]"
# Of Markdown, or with its column names: code: F307 | meaning: the index is damaged. The first may have none.
_ROW = r"[ \t]*(?:\||[^|:\n]+: [^|\n]*\| |[^|\n]+ \| [^|:\n]+: )"
_MORE = rf"(?:\n(?!{_FENCE}|{_ITEM}|{_ROW})[^\n]*\S[^\n]*)*"
_BLOCK = re.compile(
    r"^(?:(?P<code> {0,3}(?P<fence>`{3,}|~{3,})[^\n]*(?:\n(?! {0,3}(?P=fence))[^\n]*)*(?:\n[^\n]*)?)"
    rf"|(?P<item>{_ITEM}[^\n]*{_MORE})|(?P<row>{_ROW}[^\n]*)|(?P<prose>[^\n]*\S[^\n]*{_MORE}))",
    re.MULTILINE,
)
# In characters: a number at the beginning of a text without lines makes no list.
LONGEST_ITEM = 400
_NUMBER = re.compile(r"\d{1,3}[.)]\s*")
# The time of sentencex grows with the square of the quotation marks in a text: it is given parts, whole words each.
_AT_ONCE = re.compile(r".{1,10000}(?:\s|\Z)|.{1,10000}", re.DOTALL)

Stretch = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Block:
    """Characters [start, end) that are `prose`, an `item` of a list, a `row` of a table or `code`."""

    kind: str
    start: int
    end: int


def blocks_of(text: str) -> list[Block]:
    """The blocks of a text, in order. What follows an item's first line belongs to it, up to an empty line."""
    found = []
    for block in _BLOCK.finditer(text):
        words = block.group()
        start = block.start() + len(words) - len(words.lstrip())
        end = start + len(words.strip())
        kind = block.lastgroup or "prose"
        found.append(Block("prose" if kind == "item" and end - start > LONGEST_ITEM else kind, start, end))
    return found


def sentences_of(text: str, block: Block, language: str = "en") -> list[Stretch]:
    """The sentences of a paragraph, at least one; any other block as it is. A number belongs to what comes after it.

    `language` is an ISO 639 code.
    """
    if block.kind != "prose":
        return [(block.start, block.end)]
    found: list[Stretch] = []
    at, begun = block.start, block.start
    for part in _AT_ONCE.findall(text, block.start, block.end):
        for sentence in sentencex.segment(language, part):
            at += len(sentence)
            if sentence.strip() and not _NUMBER.fullmatch(sentence):
                found.append((begun, at - len(sentence) + len(sentence.rstrip())))
                begun = at
    if text[begun : block.end].strip():
        # a number at the end
        found[-1:] = [(found[-1][0] if found else block.start, block.end)]
    return found
