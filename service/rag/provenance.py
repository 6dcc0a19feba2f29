"""Where an answer stands in the passages, and the form that it has there.

A generator with an uncased vocabulary answers "pedro pablo kuczynski" and "$ 630 billion"; the passage says
"Pedro Pablo Kuczynski" and "$630 billion". Both are compared folded: lower case, without accents or spaces, each
folded character knowing which character of the text it came from. Spaces beside punctuation are the tokenizer's, and
count for nothing; a space between two words is a boundary that both must have. So the passage's own substring is given
back, and an answer that stands in no passage stays as the generator wrote it.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class _Folded:
    characters: str
    positions: tuple[int, ...]  # of each folded character, in the text
    begins: tuple[bool, ...]  # whether a space parts it from a letter or digit before it, being one itself


def answer_spans(answer: str, text: str) -> tuple[tuple[int, int], ...]:
    """Character ranges [start, end) of `text` that say `answer`, whole words only, first to last, not overlapping."""
    sought = _fold(answer)
    needle = sought.characters
    if not needle:
        return ()
    folded = _fold(text)
    spans: list[tuple[int, int]] = []
    at = folded.characters.find(needle)
    while at >= 0:
        start = folded.positions[at]
        end = _end_of_character(text, folded.positions[at + len(needle) - 1])
        same_words = folded.begins[at + 1 : at + len(needle)] == sought.begins[1:]
        if same_words and _is_whole(text, start, end):
            spans.append((start, end))
            at = folded.characters.find(needle, at + len(needle))
        else:
            at = folded.characters.find(needle, at + 1)
    return tuple(spans)


def as_written(answer: str, texts: Sequence[str]) -> str:
    """The answer in the form of the first of `texts` that holds it; unchanged where none does."""
    for text in texts:
        for start, end in answer_spans(answer, text):
            return text[start:end]
    return answer


def _fold(text: str) -> _Folded:
    characters: list[str] = []
    positions: list[int] = []
    begins: list[bool] = []
    after_space = False
    for position, character in enumerate(text):
        for part in unicodedata.normalize("NFKD", character).casefold():
            if part.isspace():
                after_space = True
            elif not unicodedata.combining(part):
                begins.append(after_space and part.isalnum() and bool(characters) and characters[-1].isalnum())
                characters.append(part)
                positions.append(position)
                after_space = False
    return _Folded("".join(characters), tuple(positions), tuple(begins))


def _end_of_character(text: str, last: int) -> int:
    """One past the character at `last`, its combining marks included."""
    end = last + 1
    while end < len(text) and unicodedata.combining(text[end]):
        end += 1
    return end


def _is_whole(text: str, start: int, end: int) -> bool:
    """True unless the span begins or ends inside a word or a number: 'Niger' does not stand in 'Nigeria'."""
    return not _joined(text, start) and not _joined(text, end)


def _joined(text: str, at: int) -> bool:
    """True where the characters before and after position `at` belong to one word or number."""
    if at <= 0 or at >= len(text):
        return False
    before, after = text[at - 1], text[at]
    if before.isalnum() and after.isalnum():
        return True
    # 41,657,488 and 76.8 are one number each: "657" does not stand there, nor does "41"
    if before in ",." and after.isdigit():
        return at >= 2 and text[at - 2].isdigit()
    return before.isdigit() and after in ",." and at + 1 < len(text) and text[at + 1].isdigit()
