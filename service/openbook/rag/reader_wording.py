"""What a span reader reads: a question with a passage, as word pieces that know their place in the passage's text.

`openbook.json` of a checkpoint holds as `reader`, all of it with defaults:

    {"normalisation": "passage", "title_separator": " / ", "longest_span": 64, "longest_question": 64,
     "longest_input": 384}

`normalisation` says whether each passage's spans and null have a softmax of their own ("passage"), or those of all
passages share one ("shared"). Lengths are in tokens.

The context is heading (title and section), separator and text. A context that is too long is read in windows which
overlap by the longest span, so that each span stands whole in one of them.
"""

import re
import string
import zlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Annotated, Any, ClassVar

import torch
from pydantic import ConfigDict, Field
from torch import Tensor

from openbook.entities import HEADING_SEPARATOR, Passage
from openbook.errors import CheckpointInvalid, InvalidRequest
from openbook.rag.spans import Normalisation
from openbook.rag.wording import TITLE_SEPARATOR

# How tokenizers write the space before a word.
SPACES = ("Ġ", "▁")
# A letter or digit of a script that writes spaces between words: Latin, Greek, Cyrillic, Arabic, Devanagari and others.
_LETTER = r"(?:(?![\u0e00-\U0010ffff])[^\W_])"
# "rg40.bin", "api@example.org", "max_length", "9:30" and "1,200" are words; "end.Next" and "and/or" are two.
_WORD = re.compile(rf"{_LETTER}+(?:(?:[_@]+|\.(?=[a-z\d])|(?<=\d)[,:](?=\d)){_LETTER}+)*")
_BETWEEN = re.compile(re.escape(HEADING_SEPARATOR))
# Code within a line is one word, for half of its quotes would be left: `--host=0.0.0.0`.
_CODE = re.compile(r"`[^`\n]{1,60}`")
# Of a block of code: what a page does not show.
_FENCE = re.compile(r"^[ \t]*(?:```|~~~).*$", re.MULTILINE)
# Of ASCII alone: byte pairs write other letters as two bytes, which must not be mixed up.
_LOWER = {ord(upper): lower for upper, lower in zip(string.ascii_uppercase, string.ascii_lowercase, strict=True)}


@dataclass(frozen=True, slots=True)
class ReaderFacts:
    """What `openbook.json` says of a reader."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    normalisation: Normalisation = "passage"
    title_separator: Annotated[str, Field(min_length=1)] = TITLE_SEPARATOR
    longest_span: Annotated[int, Field(ge=1)] = 64
    longest_question: Annotated[int, Field(ge=1)] = 64
    longest_input: Annotated[int, Field(ge=1)] = 384


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of a context with the question before it, as the reader takes them. Its tokens from `start` on are
    those of the context from `first` on, `count` of them."""

    ids: tuple[int, ...]
    kinds: tuple[int, ...]
    start: int
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class AskedPassage:
    """A passage's context in tokens, each with its characters [start, end), and the windows that read it.

    The text begins at character `text_start`, behind heading and separator. ScoredPassage explains `firsts`, `keys` and
    `rooms`. `closes` says which tokens end a word, and so may end a span. `opens` and `shuts` number the quotes around
    pieces of code: each piece is one word.
    """

    context: str
    text_start: int
    ids: tuple[int, ...]
    offsets: tuple[tuple[int, int], ...]
    firsts: Tensor  # (T,)
    keys: Tensor  # (T,)
    rooms: Tensor  # (T,)
    closes: Tensor  # (T,)
    opens: Tensor  # (C,)
    shuts: Tensor  # (C',)
    windows: tuple[Window, ...]


@dataclass(frozen=True, slots=True)
class _Tokenised:
    text: str
    ids: tuple[int, ...]
    offsets: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _Frame:
    """The special tokens before, between and behind a question and its context; and the kind of each part's tokens."""

    before: tuple[int, ...]
    between: tuple[int, ...]
    behind: tuple[int, ...]
    kinds: tuple[tuple[int, ...], int, tuple[int, ...], int, tuple[int, ...]]

    @classmethod
    def of(cls, tokenizer: Any, name: str) -> "_Frame":
        encoded = tokenizer("a", "a", return_token_type_ids=True, verbose=False)
        ids, kinds, parts = encoded["input_ids"], encoded["token_type_ids"], encoded.sequence_ids()
        if 0 not in parts or 1 not in parts:
            raise CheckpointInvalid(checkpoint=name, reason="its tokenizer does not take a pair of texts.")
        question, context = parts.index(0), parts.index(1)
        ends = [len(parts) - 1 - parts[::-1].index(part) + 1 for part in (0, 1)]
        return cls(
            tuple(ids[:question]),
            tuple(ids[ends[0] : context]),
            tuple(ids[ends[1] :]),
            (
                tuple(kinds[:question]),
                kinds[question],
                tuple(kinds[ends[0] : context]),
                kinds[context],
                tuple(kinds[ends[1] :]),
            ),
        )

    def __len__(self) -> int:
        return len(self.before) + len(self.between) + len(self.behind)

    def window(self, question: Sequence[int], context: Sequence[int], first: int) -> Window:
        of_before, of_question, of_between, of_context, of_behind = self.kinds
        return Window(
            (*self.before, *question, *self.between, *context, *self.behind),
            (
                *of_before,
                *([of_question] * len(question)),
                *of_between,
                *([of_context] * len(context)),
                *of_behind,
            ),
            len(self.before) + len(question) + len(self.between),
            first,
            len(context),
        )


class ReaderWording:
    """A reader's tokenizer with the frame of its input, and which tokens read alike.

    Two tokens have one key where they differ by the case of ASCII letters; as the first of a span also where they
    differ by the space before them. Unknown tokens read as their text.
    """

    def __init__(self, name: str, tokenizer: Any, facts: ReaderFacts, positions: int | None) -> None:
        """`positions` is the longest input of the model, `name` the checkpoint's. Raises CheckpointInvalid for a
        tokenizer that cannot be used."""
        if not tokenizer.is_fast:
            raise CheckpointInvalid(checkpoint=name, reason="its reader's tokenizer does not say where a token stands.")
        self.tokenizer = tokenizer
        self.longest_span = facts.longest_span
        self._facts = facts
        self._frame = _Frame.of(tokenizer, name)
        self._longest = facts.longest_input if positions is None else min(facts.longest_input, positions)
        self._special = torch.tensor(tokenizer.all_special_ids)
        tokens = [token or "" for token in tokenizer.convert_ids_to_tokens(range(len(tokenizer)))]
        lower = [token.translate(_LOWER) for token in tokens]
        self._keys = _lowest(lower)  # (V,)
        self._firsts = _lowest([token[1:] if token[:1] in SPACES and token[1:] else token for token in lower])  # (V,)

    def ask(self, questions: Sequence[str], passages: Sequence[Sequence[Passage]]) -> list[AskedPassage]:
        """Each question with each of its passages. Raises InvalidRequest for a question that leaves no room for one."""
        asked = []
        for question, of_question in zip(self._tokenise(questions), passages, strict=True):
            ids = question.ids[: self._facts.longest_question]
            room = self._longest - len(self._frame) - len(ids)
            if room < 1:
                raise InvalidRequest(
                    field="question",
                    reason=f"it takes {len(ids)} tokens, which leaves no room for a passage: this checkpoint's reader "
                    f"reads {self._longest} in all.",
                )
            headings = [one.heading for one in of_question]
            openings = [f"{heading}{self._facts.title_separator}" if heading else "" for heading in headings]
            contexts = self._tokenise([opening + one.text for opening, one in zip(openings, of_question, strict=True)])
            for heading, opening, context in zip(headings, openings, contexts, strict=True):
                windows = self._windows(ids, context.ids, room)
                asked.append(self._asked(context, len(heading), len(opening), windows))
        return asked

    def forms(self, target: str) -> list[tuple[int, ...]]:
        """The keys that say a target: as it stands behind a space, and at a beginning where that is written otherwise.

        None for the empty one.
        """
        spaced, bare = self._tokenise([f" {target.strip()}", target.strip()])
        return list(dict.fromkeys(self._said(one) for one in (spaced, bare) if one.ids))

    def _said(self, target: _Tokenised) -> tuple[int, ...]:
        firsts, keys = self._read_as(target)  # (n,) each
        return (*firsts[:1].tolist(), *keys[1:].tolist())

    def _read_as(self, context: _Tokenised) -> tuple[Tensor, Tensor]:
        """The key of each token as the first of a span, and as a later one: (T,) each."""
        ids = torch.tensor(context.ids, dtype=torch.long)  # (T,)
        firsts, keys = self._firsts[ids], self._keys[ids]
        for place in torch.isin(ids, self._special).nonzero()[:, 0].tolist():
            start, end = context.offsets[place]
            said = context.text[start:end].strip().translate(_LOWER)
            firsts[place] = keys[place] = len(self._keys) + zlib.crc32(said.encode())
        return firsts, keys

    def _windows(self, question: Sequence[int], context: Sequence[int], room: int) -> tuple[Window, ...]:
        """As many as the context needs, one where it is short."""
        step = room - min(self.longest_span, room // 2)
        firsts = range(0, max(1, len(context) - room + step), step)
        return tuple(self._frame.window(question, context[first : first + room], first) for first in firsts)

    def _asked(
        self, context: _Tokenised, heading_end: int, text_start: int, windows: tuple[Window, ...]
    ) -> AskedPassage:
        # some tokenizers give a word the space before it
        offsets = [(end - len(context.text[start:end].lstrip()), end) for start, end in context.offsets]
        codes = [found.span() for found in _CODE.finditer(context.text)]
        words = [*codes, *(word.span() for word in _WORD.finditer(context.text))]
        within = {place for start, end in words for place in range(start + 1, end)}
        within.update(at for fence in _FENCE.finditer(context.text) for at in range(fence.start(), fence.end() + 1))
        between = [found.span() for found in _BETWEEN.finditer(context.text, 0, heading_end)]
        between.append((heading_end, text_start))
        apart = {place for gap in between for place in range(*gap)}
        breaks = [*chain(*between), *_breaks(context.text, text_start)]
        parts = [bisect_right(breaks, start) for start, _ in offsets]
        left, rooms = 0, [0] * len(offsets)
        for place in reversed(range(len(offsets))):
            left = left + 1 if parts[place : place + 1] == parts[place + 1 : place + 2] else 1
            if offsets[place][0] not in apart and offsets[place][0] not in within:
                rooms[place] = min(left, self.longest_span)
        closes = [end not in within for _, end in offsets]
        opening, closing = {(start, start + 1) for start, _ in codes}, {(end - 1, end) for _, end in codes}
        firsts, keys = self._read_as(context)
        return AskedPassage(
            context.text,
            text_start,
            context.ids,
            tuple(offsets),
            firsts,
            keys,
            torch.tensor(rooms, dtype=torch.long),
            torch.tensor(closes, dtype=torch.bool),
            torch.tensor([place for place, one in enumerate(offsets) if one in opening], dtype=torch.long),
            torch.tensor([place for place, one in enumerate(offsets) if one in closing], dtype=torch.long),
            windows,
        )

    def _tokenise(self, texts: Sequence[str]) -> list[_Tokenised]:
        # without a limit: one that changed from call to call would be changed under another thread's hands
        encoded = self.tokenizer(list(texts), add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        return [
            _Tokenised(text, tuple(ids), tuple(offsets))
            for text, ids, offsets in zip(texts, encoded["input_ids"], encoded["offset_mapping"], strict=True)
        ]


def _breaks(text: str, start: int) -> list[int]:
    """Where a paragraph, row of a table or block of code begins, from `start` on; lines of a list or of code go on."""
    places = []
    lines = text[start:].split("\n")
    for pair in pairwise(lines):
        start += len(pair[0]) + 1
        if any(not line.strip() or " | " in line or _FENCE.fullmatch(line) for line in pair):
            places.append(start)
    return places


def _lowest(names: Sequence[str]) -> Tensor:
    """Of each name the place where it stands first."""
    places: dict[str, int] = {}
    return torch.tensor([places.setdefault(name, place) for place, name in enumerate(names)])
