"""Invented records: what is asked stands in its text or has no answer, in every layout, the same for the same seed."""

import random
from itertools import islice

import pytest

from openbook_lab.training.examples import occurrences
from openbook_lab.training.records import LAYOUTS, Entry, Layout, Record, Value, invent


def test_an_answer_stands_in_its_text_and_now_and_then_there_is_none() -> None:
    asked = list(invent(3, 400))
    assert len(asked) == 400
    for question in asked:
        assert question.text
        assert question.context
        for answer in question.answers:
            assert answer in question.context
    assert 5 <= sum(not question.answers for question in asked) <= 60


def test_the_same_seed_invents_the_same_records() -> None:
    assert list(invent(3, 30)) == list(islice(invent(3, 60), 30))
    assert not {question.context for question in invent(3, 30)} & {question.context for question in invent(4, 30)}


@pytest.mark.parametrize("layout", [layout for layout, *_ in LAYOUTS], ids=lambda layout: layout.__name__)
def test_every_layout_says_every_value_once(layout: Layout) -> None:
    records = [
        Record(
            "Peru", [Entry("Capital", Value("Lima", "Lima"), ["?"]), Entry("Area", Value("9 km", "9 km"), ["?"])], []
        ),
        Record(
            "Chad", [Entry("Capital", Value("Doba", "Doba"), ["?"]), Entry("Area", Value("7 km", "7 km"), ["?"])], []
        ),
    ]
    for seed in range(8):
        text = layout(records, random.Random(seed))
        for value in ("Lima", "9 km", "Doba", "7 km"):
            assert len(occurrences(value, text)) == 1, text
