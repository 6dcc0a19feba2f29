"""What is guessed stands in a passage behind the answer's last token, and ends nowhere too late."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openbook.rag.guessing import LONGEST_MATCH, MOST_GUESSED, guess

END = 0
tokens = st.integers(0, 5)
texts_of_passages = st.lists(st.lists(tokens, max_size=25), min_size=1, max_size=5)


def even(texts: list[list[int]]) -> list[float]:
    return [1 / len(texts)] * len(texts)


def behind(said: list[int], length: int, guessed: list[int], text: list[int]) -> bool:
    """Whether the last `length` tokens that were said, and then the guess, stand in the text."""
    wanted = [*said[len(said) - length :], *guessed]
    return any(text[place : place + len(wanted)] == wanted for place in range(len(text)))


@given(said=st.lists(tokens, min_size=1, max_size=6), texts=texts_of_passages, most=st.integers(0, 6), data=st.data())
@settings(deadline=None, derandomize=True)
def test_a_guess_stands_in_a_passage_behind_what_was_said(
    said: list[int], texts: list[list[int]], most: int, data: st.DataObject
) -> None:
    numbers = data.draw(st.lists(st.floats(0.01, 1), min_size=len(texts), max_size=len(texts)))
    guessed = guess(said, texts, [number / sum(numbers) for number in numbers], {END}, most)
    assert len(guessed) <= most
    assert END not in guessed
    if guessed:
        found = [length for length in range(1, len(said) + 1) if any(behind(said, length, [], text) for text in texts)]
        assert any(behind(said, min(LONGEST_MATCH, max(found)), guessed, text) for text in texts)


@given(before=st.lists(tokens, max_size=9), behind_it=st.lists(tokens, max_size=9), others=texts_of_passages)
@settings(deadline=None, derandomize=True)
def test_a_passage_that_accounts_for_everything_is_copied(
    before: list[int], behind_it: list[int], others: list[list[int]]
) -> None:
    texts = [*others, [*before, 8, *behind_it], *others]
    weights = [float(8 in text) for text in texts]
    guessed = guess([7, 8], texts, weights, {END})
    rest = behind_it[:MOST_GUESSED]
    assert guessed == (rest[: rest.index(END)] if END in rest else rest)


@given(texts=texts_of_passages, said=st.lists(st.integers(6, 9), min_size=1, max_size=4))
@settings(deadline=None, derandomize=True)
def test_nothing_is_guessed_where_the_last_token_stands_nowhere(texts: list[list[int]], said: list[int]) -> None:
    assert guess(said, texts, even(texts), {END}) == []


def test_passages_vote_with_their_share_and_half_is_not_enough() -> None:
    texts = [[1, 2, 3, 4], [1, 2, 5, 5], [7, 7, 7, 7]]
    assert guess([1], texts, [0.6, 0.4, 0.0], {END}) == [2, 3, 4]
    assert guess([1], texts, [0.4, 0.6, 0.0], {END}) == [2, 5, 5]
    assert guess([1], texts, [0.5, 0.5, 0.0], {END}) == [2]
    assert guess([1], texts, [0.3, 0.2, 0.5], {END}) == []


def test_a_passage_divides_its_vote_among_its_places() -> None:
    assert guess([1], [[1, 2, 1, 3, 1, 2, 9]], [1.0], {END}) == [2]
    assert guess([1], [[1, 2, 1, 3]], [1.0], {END}) == []


@pytest.mark.parametrize(("said", "expected"), [([1], []), ([8, 1], [4]), ([9, 8, 1], [3]), ([6, 9, 8, 1], [3])])
def test_the_places_of_the_longest_match_count_alone(said: list[int], expected: list[int]) -> None:
    texts = [[1, 2, END, 5, 9, 8, 1, 3, END], [7, 8, 1, 4, END, 1, 5]]
    weights = [0.6, 0.4] if 9 in said else [0.4, 0.6]
    assert guess(said, texts, weights, {END}) == expected
