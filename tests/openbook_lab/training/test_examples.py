"""Reading examples: the answer stands where the example says, replaced or not, cut or packed."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openbook_lab.datasets.questions import Question
from openbook_lab.training.examples import (
    AnswerPool,
    ReadingExample,
    answer_kind,
    cloze_example,
    distractor_example,
    make_counterfactual,
    packed_example,
    reading_example,
    window_around,
)

LONG = " ".join(f"word{i}" for i in range(150)) + " The river is Rhine. " + " ".join(f"word{i}" for i in range(150))


def stands(example: ReadingExample) -> bool:
    assert example.start is not None
    return example.text[example.start : example.start + len(example.answer)] == example.answer


@given(st.integers(0, 10_000))
def test_a_window_holds_the_answer_where_it_says(seed: int) -> None:
    window = window_around("Which river is it?", "Rhine", LONG, random.Random(seed))
    assert window is not None
    text, start = window
    assert text[start:].startswith("Rhine")
    assert 60 <= len(text.split()) <= 201


def test_of_two_occurrences_the_one_that_the_question_speaks_of_is_taken() -> None:
    context = "Lima lies by the sea. " + "filler " * 60 + "The capital of Peru is Lima."
    window = window_around("What is the capital of Peru?", "Lima", context, random.Random(0))
    assert window is not None
    assert window[0][: window[1]].endswith("The capital of Peru is ")


def test_no_window_without_the_answer() -> None:
    assert window_around("Who?", "Bolivar", LONG, random.Random(0)) is None


@pytest.mark.parametrize("seed", range(20))
def test_examples_keep_their_answer_in_the_passage(questions: list[Question], seed: int) -> None:
    pool, random_state = AnswerPool.of(questions), random.Random(seed)
    for question in questions:
        example = reading_example(question, pool, random_state)
        assert example is not None
        assert stands(example)


def test_a_counterfactual_replaces_the_answer_in_passage_title_and_target(questions: list[Question]) -> None:
    pool = AnswerPool({"person": ("Ana Torres", "Juan Perez")})
    text = "Maria Lopez was president. Many praise Maria Lopez."
    example = ReadingExample("Who was president?", "Maria Lopez", text, "Maria Lopez", 0)
    changed = make_counterfactual(example, pool, random.Random(0), chance=1.0)
    assert changed.answer != "Maria Lopez"
    assert "Maria Lopez" not in changed.text + changed.title
    assert changed.text.count(changed.answer) == 2
    assert stands(changed)


def test_the_target_of_a_distractor_is_the_empty_answer(questions: list[Question]) -> None:
    text = questions[3].context
    example = distractor_example(questions[0].text, "Ecuador", text, random.Random(0))
    assert example == ReadingExample(questions[0].text, "Ecuador", text, "", None)


def test_packing_moves_the_answer_with_its_sentence() -> None:
    example = ReadingExample("Where?", "", "It lies in Peru.", "Peru", 11)
    for seed in range(6):
        packed = packed_example(example, ["One more.", "And another."], random.Random(seed))
        assert stands(packed)
        assert len(packed.text.split()) == 8


def test_a_cloze_question_hides_the_answer_that_it_asks_for() -> None:
    text = "In 1821 the old city of Lima became the seat of a new government. Later Quito followed in 1830 as well."
    for seed in range(30):
        example = cloze_example("", text, random.Random(seed))
        assert example is not None
        assert stands(example)
        assert example.answer not in example.question


@pytest.mark.parametrize(
    ("answer", "question", "kind"),
    [
        ("1821", "When?", "year"),
        ("5 July 1962", "When?", "date"),
        ("$630 billion", "How much?", "number"),
        ("Pedro Pablo Kuczynski", "Who leads Peru?", "person"),
        ("Lake Titicaca", "Where?", "name"),
        ("a long walk", "What?", "phrase"),
    ],
)
def test_kinds_of_answers(answer: str, question: str, kind: str) -> None:
    assert answer_kind(answer, question) == kind
