"""Articles into passages: pieces of 100 words, as in DPR (Karpukhin et al. 2020, section 4.1), or whole sentences.

White space separates words. "words" cuts an article after every `words` words, and each word is in exactly one passage.
DPR seems to fill an article's last passage up by wrapping round to its beginning, which would put a word into two
passages. Here the last passage is left short instead, and a tail too short to be found by itself (under
`shortest_tail` words) joins the passage before it, which then has up to `words + shortest_tail - 1` words.

"sentences" fills a passage with whole sentences of one section, up to `words` words; only a longer sentence is cut.
A section that has lines keeps them: its list items, table rows and code blocks are cut as sentences are. Its heading
stays with what comes first below, and a sentence that ends in a colon, or a word
such as "Note", with what it leads to.

Where an article is written without spaces, as Chinese, Japanese and Thai are, two characters count as a word.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import regex
import sentencex

from openbook.entities import Metadata, Passage
from openbook.indexing.passage_fields import MOST_TEXT, MOST_TITLE, MOST_URL
from openbook.rag.blocks import Stretch, blocks_of, sentences_of

Split = Literal["words", "sentences"]

PASSAGE_WORDS = 100
SHORTEST_TAIL = 25
# Scripts that put no space between words.
_SPACELESS = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}\p{Yi}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}\u3000-\u303f]"
)
# A letter with its marks, of which text made to harm has any number.
_CHARACTER = regex.compile(r"\P{M}\p{M}{0,15}|\p{M}{1,15}")
# An article with no longer word is not looked through for such scripts: that takes longer than cutting it.
_ORDINARY_WORD = 24
WORD_CHARACTERS = 2
# No language has such words: base64, a file of one line. It is cut too, into pieces of ten characters. So the longest
# passage has 124 words of 257 characters, less than MOST_TEXT.
_LONGEST_WORD = 256
_PIECE_CHARACTERS = 10
# Of a section that has lines, in characters; a longer one is cut as text without them.
MOST_LINES = 1 << 20
_EMPTY_LINE = regex.compile(r"\n\s*\n")
# The time of sentencex grows with the square of the quotation marks in a text: it is given parts, whole words each.
_AT_ONCE = regex.compile(r".{1,10000} |.{1,10000}")


@dataclass(frozen=True, slots=True)
class Section:
    """The text below a heading: the headings above it joined with " > ", and metadata of its own.

    `fragment` is what finds it behind the # of the article's url. Where it `has_lines`, the text has the lines of
    `openbook.rag.blocks`, a paragraph has one, and the first paragraph is the heading's own words, if it has any.
    """

    text: str
    heading: str | None = None
    metadata: Metadata = ()
    fragment: str | None = None
    has_lines: bool = False


@dataclass(frozen=True, slots=True)
class SourceArticle:
    """What is cut into passages named `<name>#0`, `<name>#1`, ...; each has its url, date and metadata."""

    name: str
    title: str
    sections: Sequence[Section]
    url: str | None = None
    published: str | None = None
    metadata: Metadata = ()


def split_words(text: str, words: int = PASSAGE_WORDS, shortest_tail: int = SHORTEST_TAIL) -> list[str]:
    """Disjoint passages of exactly `words` words, in order, white space normalised to single spaces.

    The last has from `shortest_tail` to `words + shortest_tail - 1` words, and any number up to that when it is the
    only one. `shortest_tail` counts for at most `words`. A text without words gives no passage.
    Raises ValueError when `words` is below 1.
    """
    units = _units(text, _is_spaceless([text]))
    return [_joined(units[start:end]) for start, end in _cuts(len(units), words, shortest_tail)]


def split_article(
    article: SourceArticle, split: Split = "words", *, words: int = PASSAGE_WORDS, language: str = "en"
) -> tuple[Passage, ...]:
    """The passages of one article, each with the section of most of its words. `language` is an ISO 639 code.

    Every passage repeats the title, which is cut after MOST_TITLE characters.
    """
    title = article.title[:MOST_TITLE].rstrip()
    found = _by_words(article, words) if split == "words" else _by_sentences(article, words, language)
    return tuple(
        Passage(
            f"{article.name}#{position}",
            title,
            text,
            _url(article.url, section.fragment),
            section.heading,
            article.published,
            tuple(sorted({**dict(article.metadata), **dict(section.metadata)}.items())),
        )
        for position, (text, section) in enumerate(found)
    )


def _url(url: str | None, fragment: str | None) -> str | None:
    if url is None or fragment is None or "#" in url or len(url) + len(fragment) >= MOST_URL:
        return url
    return f"{url}#{fragment}"


def _by_words(article: SourceArticle, words: int) -> Iterator[tuple[str, Section]]:
    spaceless = _is_spaceless([section.text for section in article.sections])
    parts = [_units(section.text, spaceless) for section in article.sections]
    units = [unit for part in parts for unit in part]
    of_section = [number for number, part in enumerate(parts) for _ in part]
    for start, end in _cuts(len(units), words, SHORTEST_TAIL):
        ((number, _),) = Counter(of_section[start:end]).most_common(1)
        yield _joined(units[start:end]), article.sections[number]


def _by_sentences(article: SourceArticle, words: int, language: str) -> Iterator[tuple[str, Section]]:
    spaceless = _is_spaceless([section.text for section in article.sections])
    for section in article.sections:
        if section.has_lines and len(section.text) <= MOST_LINES:
            yield from ((text, section) for text in _by_lines(section, words, language, spaceless))
            continue
        passage: list[str] = []
        for sentence in _sentences(section.text, language):
            units = _units(sentence, spaceless)
            if units and not sentence.endswith(" "):
                units[-1] = units[-1].rstrip(" ")
            if len(passage) + len(units) > words:
                if passage:
                    yield _joined(passage), section
                passage = []
                while len(units) > words:
                    yield _joined(units[:words]), section
                    units = units[words:]
            passage += units
        if passage:
            yield _joined(passage), section


def _by_lines(section: Section, words: int, language: str, spaceless: bool) -> Iterator[str]:
    """What a section says, as it stands, in passages of whole blocks and sentences."""
    text = section.text
    parts = [
        part
        for block in blocks_of(text)
        for stretch in sentences_of(text, block, language)
        for part in _parts(text, stretch, words, spaceless)
    ]
    begun = count = 0
    for number, (_, _, n_words) in enumerate(parts):
        # a heading stays with what it heads
        n_heading = int(begun == 0 and section.heading is not None)
        if number > begun + n_heading and count + n_words > words:
            cut, count = number, 0
            # and "Run this:" or "Note" with what it leads to
            while cut - 1 > begun + n_heading and _leads(text, parts[cut - 1]):
                n_before = count + parts[cut - 1][2]
                if n_before + n_words > words:
                    break
                cut, count = cut - 1, n_before
            yield _verbatim(text[parts[begun][0] : parts[cut - 1][1]])
            begun = cut
        count += n_words
    if parts:
        yield _verbatim(text[parts[begun][0] : parts[-1][1]])


def _leads(text: str, part: tuple[int, int, int]) -> bool:
    """Whether it ends in a colon, or is a paragraph of one word."""
    start, end, n_words = part
    return text[end - 1] in ":：" or (
        n_words == 1 and text[end - 1].isalnum() and text[start - 1 : start] in ("", "\n")
    )


def _parts(text: str, stretch: Stretch, words: int, spaceless: bool) -> Iterator[tuple[int, int, int]]:
    """A stretch [start, end) with its number of words; one that is too long by itself in lines, and these in words."""
    start, end = stretch
    units = _units(text[start:end], spaceless)
    if len(units) <= words:
        yield start, end, len(units)
    elif "\n" in text[start:end]:
        at = start
        for line in text[start:end].splitlines(keepends=True):
            if line.strip():
                yield from _parts(text, (at, at + len(line.rstrip())), words, spaceless)
            at += len(line)
    else:
        at, places = start, []
        for unit in units:
            at = text.index(unit.rstrip(" "), at)
            places.append((at, at + len(unit.rstrip(" "))))
            at = places[-1][1]
        for first, last in _cuts(len(units), words, SHORTEST_TAIL):
            yield places[first][0], places[last - 1][1], last - first


def _verbatim(text: str) -> str:
    """The text; without its white space where that makes it longer than a passage may be."""
    return text if len(text) <= MOST_TEXT else " ".join(text.split())


def _sentences(text: str, language: str) -> Iterator[str]:
    """Sentences with single spaces, in their order, each with the space after it; an empty line ends one, too."""
    for paragraph in _EMPTY_LINE.split(text):
        for part in _AT_ONCE.findall(" ".join(paragraph.split()) + " "):
            yield from sentencex.segment(language, part)


def _cuts(n_units: int, words: int, shortest_tail: int) -> list[tuple[int, int]]:
    """Where passages of `words` units begin and end."""
    if words < 1:
        raise ValueError(f"words must be at least 1, got {words}")
    starts = list(range(0, n_units, words))
    if len(starts) > 1 and n_units - starts[-1] < min(shortest_tail, words):
        starts.pop()
    return list(zip(starts, [*starts[1:], n_units], strict=False))


def _is_spaceless(texts: Sequence[str]) -> bool:
    """Whether half of the characters are of scripts that put no space between words."""
    tokens = [token for text in texts for token in text.split()]
    if max(map(len, tokens), default=0) <= _ORDINARY_WORD or all(map(str.isascii, texts)):
        return False
    return 2 * sum(len(_SPACELESS.findall(text)) for text in texts) > sum(map(len, tokens))


def _units(text: str, spaceless: bool) -> list[str]:
    """What counts as a word, each with a space after it; a piece of a cut word has none."""
    units: list[str] = []
    for token in text.split():
        if spaceless and len(token) > WORD_CHARACTERS and _SPACELESS.search(token):
            units += _pieces(token, WORD_CHARACTERS)
        elif len(token) > _LONGEST_WORD:
            units += _pieces(token, _PIECE_CHARACTERS)
        else:
            units.append(f"{token} ")
    return units


def _pieces(token: str, length: int) -> list[str]:
    """A word in pieces of `length` characters as people count them: no mark is parted from its letter."""
    characters = _CHARACTER.findall(token)
    pieces = ["".join(characters[start : start + length]) for start in range(0, len(characters), length)]
    return [*pieces[:-1], f"{pieces[-1]} "]


def _joined(units: Sequence[str]) -> str:
    return "".join(units).rstrip(" ")
