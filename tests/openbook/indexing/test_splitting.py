"""Passages are disjoint pieces of an article: no word lost, none said twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openbook.indexing.splitting import PASSAGE_WORDS, SHORTEST_TAIL, passages, split_words
from openbook_lab.encyclopedia import Article

WORDS = st.lists(st.text(alphabet="abcdefg.,'", min_size=1, max_size=5), max_size=450)
SPACES = st.sampled_from([" ", "  ", "\n", "\t \n"])


@given(tokens=WORDS, space=SPACES, words=st.integers(1, 120), shortest_tail=st.integers(0, 130))
def test_every_word_stands_in_exactly_one_passage_in_its_order(
    tokens: list[str], space: str, words: int, shortest_tail: int
) -> None:
    pieces = split_words(space.join(tokens), words, shortest_tail)
    assert " ".join(pieces).split() == tokens


@given(tokens=WORDS, words=st.integers(1, 120), shortest_tail=st.integers(0, 130))
def test_every_passage_has_its_documented_length(tokens: list[str], words: int, shortest_tail: int) -> None:
    lengths = [len(piece.split()) for piece in split_words(" ".join(tokens), words, shortest_tail)]
    assert all(length == words for length in lengths[:-1])
    if len(lengths) > 1:
        assert min(shortest_tail, words) <= lengths[-1] <= words + max(min(shortest_tail, words) - 1, 0)
    assert (lengths == []) is (tokens == [])


@pytest.mark.parametrize(
    ("count", "lengths"),
    [
        (0, []),
        (1, [1]),
        (PASSAGE_WORDS, [PASSAGE_WORDS]),
        (PASSAGE_WORDS + SHORTEST_TAIL - 1, [PASSAGE_WORDS + SHORTEST_TAIL - 1]),
        (PASSAGE_WORDS + SHORTEST_TAIL, [PASSAGE_WORDS, SHORTEST_TAIL]),
        (2 * PASSAGE_WORDS, [PASSAGE_WORDS, PASSAGE_WORDS]),
        (2 * PASSAGE_WORDS + 1, [PASSAGE_WORDS, PASSAGE_WORDS + 1]),
    ],
)
def test_a_tail_is_its_own_passage_only_when_it_is_long_enough(count: int, lengths: list[int]) -> None:
    pieces = split_words(" ".join(f"w{position}" for position in range(count)))
    assert [len(piece.split()) for piece in pieces] == lengths


def test_a_passage_of_no_words_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        split_words("some words", words=0)


def test_passages_are_numbered_within_their_article_and_keep_its_title() -> None:
    long = Article("a-long-one", "A long one", " ".join(["word"] * 250))
    short = Article("a-short-one", "A short one", "Just this.")
    found = list(passages([long, short]))
    ids = [f"a-long-one#{position}" for position in range(3)]
    assert [passage.passage_id for passage in found] == [*ids, "a-short-one#0"]
    assert [passage.title for passage in found] == ["A long one"] * 3 + ["A short one"]
    assert list(passages([Article("empty", "Empty", " \n ")])) == []
