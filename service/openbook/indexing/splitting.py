"""Articles into passages: disjoint pieces of 100 words, as in DPR (Karpukhin et al. 2020, section 4.1).

White space separates words. An article is cut after every `words` words, and each word is in exactly one passage. DPR
seems to fill an article's last passage up by wrapping round to its beginning, which would put a word into two
passages. Here the last passage is left short instead, and a tail too short to be found by itself (under
`shortest_tail` words) joins the passage before it, which then has up to `words + shortest_tail - 1` words.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol

from openbook.entities import Passage

PASSAGE_WORDS = 100
SHORTEST_TAIL = 25


class HasText(Protocol):
    """What an article is to a splitter."""

    @property
    def article_id(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def text(self) -> str: ...


def split_words(text: str, words: int = PASSAGE_WORDS, shortest_tail: int = SHORTEST_TAIL) -> list[str]:
    """Disjoint passages of exactly `words` words, in order, white space normalised to single spaces.

    The last has from `shortest_tail` to `words + shortest_tail - 1` words, and any number up to that when it is the
    only one. `shortest_tail` counts for at most `words`. A text without words gives no passage.
    Raises ValueError when `words` is below 1.
    """
    if words < 1:
        raise ValueError(f"words must be at least 1, got {words}")
    tokens = text.split()
    starts = list(range(0, len(tokens), words))
    if len(starts) > 1 and len(tokens) - starts[-1] < min(shortest_tail, words):
        starts.pop()
    ends = [*starts[1:], len(tokens)]
    return [" ".join(tokens[start:end]) for start, end in zip(starts, ends, strict=False)]


def split_article(name: str, title: str, text: str, words: int = PASSAGE_WORDS) -> tuple[Passage, ...]:
    """The passages of one article, named `<name>#0`, `<name>#1`, ..."""
    return tuple(Passage(f"{name}#{position}", title, part) for position, part in enumerate(split_words(text, words)))


def passages(articles: Iterable[HasText], words: int = PASSAGE_WORDS) -> Iterator[Passage]:
    """The passages of each article in turn, named after its id."""
    for article in articles:
        yield from split_article(article.article_id, article.title, article.text, words)
