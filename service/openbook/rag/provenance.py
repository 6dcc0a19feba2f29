"""Where an answer stands in the passages, and the form that it has there.

A generator with an uncased vocabulary answers "pedro pablo kuczynski" and "$ 630 billion"; the passage says
"Pedro Pablo Kuczynski" and "$630 billion". Both are compared folded: lower case, without accents or spaces. Each
folded character knows its character in the text, so that the passage's own substring comes back. Spaces beside
punctuation are the tokenizer's, and count for nothing; a space between two words is a boundary that both must have. An
answer that no passage holds whole is put together from the longest stretches that one holds; other words stay as the
generator wrote them.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# The empty string: nothing stands before the first sentence.
_SENTENCE_ENDS = frozenset({"", ".", "!", "?"})
# A stretch of more words than these is not sought by itself.
LONGEST_STRETCH = 12


@dataclass(frozen=True, slots=True)
class _Folded:
    text: str
    characters: str
    positions: tuple[int, ...]  # of each folded character, in the text
    begins: tuple[bool, ...]  # whether it is a letter or digit that a space parts from another one


def answer_spans(answer: str, text: str) -> tuple[tuple[int, int], ...]:
    """Character ranges [start, end) of `text` that say `answer`, whole words only, first to last, not overlapping."""
    return tuple(_spans(_fold(answer), _fold(text)))


def as_written(answer: str, texts: Sequence[str]) -> str:
    """The answer in the form of the first of `texts` that holds it.

    Where none holds it whole, each of its longest stretches that one holds has the form that they write most often.
    Casing, accents and spaces are all that changes: folded, the answer is what it was.
    """
    whole = _fold(answer)
    folded = [_fold(text) for text in texts]
    for text in folded:
        for start, end in _spans(whole, text):
            return text.text[start:end]
    words = answer.split()
    written: list[str] = []
    at = 0
    while at < len(words):
        # longest first; a single word that stands nowhere is its own form
        for end in range(min(len(words), at + LONGEST_STRETCH), at, -1):
            form = _usual_form(_fold(" ".join(words[at:end])), folded)
            if form is not None or end == at + 1:
                written.append(form or words[at])
                at = end
                break
    made = " ".join(written)
    return made if _fold(made).characters == whole.characters else answer


def _usual_form(stretch: _Folded, texts: Sequence[_Folded]) -> str | None:
    """How the texts write a stretch of words most often, of several forms the first one; None where none has it.

    The beginning of a sentence, where every word has a capital, counts only for words that stand nowhere else.
    """
    spans = [(text.text, start, end) for text in texts for start, end in _spans(stretch, text)]
    within = [(text, start, end) for text, start, end in spans if text[:start].rstrip()[-1:] not in _SENTENCE_ENDS]
    forms = Counter(text[start:end] for text, start, end in within or spans)
    return forms.most_common(1)[0][0] if forms else None


def _spans(sought: _Folded, folded: _Folded) -> Iterator[tuple[int, int]]:
    needle, text = sought.characters, folded.text
    at = folded.characters.find(needle) if needle else -1
    while at >= 0:
        start = folded.positions[at]
        end = _end_of_character(text, folded.positions[at + len(needle) - 1])
        same_words = folded.begins[at + 1 : at + len(needle)] == sought.begins[1:]
        found = same_words and _is_whole(text, start, end)
        if found:
            yield start, end
        at = folded.characters.find(needle, at + (len(needle) if found else 1))


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
    return _Folded(text, "".join(characters), tuple(positions), tuple(begins))


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
