"""Where an answer stands in a passage, and the form that it has there."""

import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openbook.rag.provenance import answer_spans, as_written

KUCZYNSKI = "In 2016 Pedro Pablo Kuczynski was the President of Peru; Kuczynski took office in July."


def folded(text: str) -> str:
    """Without casing, accents and spaces: what two ways of writing one answer share."""
    parts = unicodedata.normalize("NFKD", text).casefold()
    return "".join(part for part in parts if not part.isspace() and not unicodedata.combining(part))


def said(answer: str, text: str) -> list[str]:
    return [text[start:end] for start, end in answer_spans(answer, text)]


@pytest.mark.parametrize(
    ("answer", "text", "found"),
    [
        # casing is the passage's
        ("pedro pablo kuczynski", KUCZYNSKI, ["Pedro Pablo Kuczynski"]),
        # every place, in order
        ("kuczynski", KUCZYNSKI, ["Kuczynski", "Kuczynski"]),
        # word pieces come with spaces that no one wrote
        ("$ 630 billion", "a GDP of $630 billion, more than before", ["$630 billion"]),
        ("41, 657, 488", "Its 41,657,488 people", ["41,657,488"]),
        ("76. 8 years", "lived 76.8 years", ["76.8 years"]),
        ("jean - claude juncker", "said Jean-Claude Juncker.", ["Jean-Claude Juncker"]),
        ("o ' brien", "Mr O'Brien spoke", ["O'Brien"]),
        # accents fold away in an uncased vocabulary
        ("sao tome", "São Tomé and Príncipe", ["São Tomé"]),
        ("cote d'ivoire", "in Côte d'Ivoire", ["Côte d'Ivoire"]),
        ("zurich", "Zu\u0308rich is a city", ["Zu\u0308rich"]),
        ("strasse", "die Straße", ["Straße"]),
        # whole words and numbers only
        ("niger", "Nigeria and Niger and nigerian", ["Niger"]),
        ("657", "41,657,488", []),
        ("41", "41,657,488 or 41", ["41"]),
        ("7", "7.5 and 7.", ["7"]),
        ("art", "party", []),
        # at the edges
        ("peru", "Peru", ["Peru"]),
        ("peru", "Peru.", ["Peru"]),
        # nothing to find
        ("", KUCZYNSKI, []),
        ("   ", KUCZYNSKI, []),
        ("humala", KUCZYNSKI, []),
        ("peru", "", []),
        # overlaps are told once
        ("a a", "a a a", ["a a"]),
    ],
)
def test_an_answer_is_found_as_the_passage_writes_it(answer: str, text: str, found: list[str]) -> None:
    assert said(answer, text) == found


def test_the_first_passage_that_holds_the_answer_gives_its_form() -> None:
    assert as_written("the queen", ["of the KINGS", "The Queen", "THE QUEEN"]) == "The Queen"


def test_an_answer_that_stands_nowhere_is_cased_as_its_longest_stretches() -> None:
    texts = [KUCZYNSKI, "The Republic of Peru is a republic. It borders on Ecuador, a republic too."]
    assert as_written("president kuczynski of the republic of peru", texts) == (
        "President Kuczynski of The Republic of Peru"
    )
    assert as_written("republic in ecuador", texts) == "republic in Ecuador", "most write it small"
    assert as_written("ecuador , zz ##x july", texts) == "Ecuador, zz ##x July"


@given(st.lists(st.text(max_size=8), max_size=6), st.lists(st.text(max_size=12), max_size=4))
@settings(max_examples=200)
def test_the_form_of_an_answer_is_never_another_answer(words: list[str], texts: list[str]) -> None:
    answer = " ".join(words)
    made = as_written(answer, [*texts, answer.upper()[:10]])
    assert folded(made) == folded(answer)


def test_an_answer_that_stands_in_no_passage_stays_as_it_is() -> None:
    assert as_written("ollanta humala", [KUCZYNSKI, ""]) == "ollanta humala"
    assert as_written("", [KUCZYNSKI]) == ""
    assert as_written("peru", []) == "peru"


STEADY = settings(derandomize=True, max_examples=200)
words = st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=6), min_size=1, max_size=8)


@STEADY
@given(answer=st.text(max_size=8), text=st.text(max_size=60))
def test_spans_lie_in_the_text_in_order_and_apart(answer: str, text: str) -> None:
    spans = answer_spans(answer, text)
    assert all(0 <= start < end <= len(text) for start, end in spans)
    assert all(one[1] <= other[0] for one, other in pairwise(spans))


@STEADY
@given(words=words, at=st.integers(0, 7))
def test_any_word_between_spaces_is_found_in_any_casing(words: list[str], at: int) -> None:
    """Letters and digits only: a word of punctuation alone may fold away."""
    plain = ["".join(c for c in word if c.isascii() and c.isalnum()) for word in words]
    kept = [word for word in plain if word]
    if not kept:
        return
    word = kept[at % len(kept)]
    text = " ".join(kept)
    for answer in (word, word.upper(), word.lower()):
        assert word.casefold() in [one.casefold() for one in said(answer, text)]


def test_a_space_between_two_words_is_a_boundary_that_both_must_have() -> None:
    assert answer_spans("12", "It has 1 2 parts") == ()
    assert as_written("nowhere", ["He is now here."]) == "nowhere"
    assert answer_spans("now here", "It is nowhere.") == ()
    assert answer_spans("$ 630 billion", "It made $630 billion.") == ((8, 20),)
