"""Text to words as Lucene's English analyser makes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openbook.storage.bm25_analysis import MAX_WORD, STOP_WORDS, Analyser


@pytest.fixture
def analyser() -> Analyser:
    return Analyser()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The Presidents of Peru", ["presid", "peru"]),
        ("who was running", ["who", "run"]),
        ("O'Neil's King’s IT'S", ["o'neil", "king"]),
        ("U.S.A. 3.14 1,200 a.b 5th", ["u.s.a", "3.14", "1,200", "a.b", "5th"]),
        ("well-known foo_bar x/y", ["well", "known", "foo_bar", "x", "y"]),
        ("relational ponies caresses", ["relat", "poni", "caress"]),
        ("Kuczyński is in São Paulo", ["kuczyński", "são", "paulo"]),
        ("北京 カタカナ 한국어 नमस्ते ภาษา", ["北", "京", "カタカナ", "한국어", "नमस्ते", "ภาษา"]),
        ("a US s is as sky", ["us", "s", "sky"]),
        ("... !? '' — €", []),
        ("", []),
    ],
)
def test_words_are_those_of_lucenes_english_analyser(analyser: Analyser, text: str, words: list[str]) -> None:
    assert analyser.words(text) == words


def test_a_word_is_one_however_its_accents_are_written(analyser: Analyser) -> None:
    assert analyser.words("e\u0301te\u0301") == analyser.words("\u00e9t\u00e9") == ["été"]


def test_a_word_of_any_length_comes_in_pieces(analyser: Analyser) -> None:
    assert [len(word) for word in analyser.words("x" * (2 * MAX_WORD + 1))] == [MAX_WORD, MAX_WORD, 1]


def test_there_are_the_33_stop_words_of_lucene(analyser: Analyser) -> None:
    assert len(set(STOP_WORDS.split())) == 33
    assert analyser.words(STOP_WORDS.upper()) == []


@given(text=st.text(max_size=200))
def test_any_text_has_words_and_parts_of_a_text_the_same_words_as_the_whole(text: str) -> None:
    analyser = Analyser()
    words = analyser.words(text)
    assert all(words)
    assert analyser.words(f"{text}\nand\n{text}") == words + words
