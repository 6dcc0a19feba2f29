"""Invented records: what is asked stands in its text or has no answer, in every layout, the same for the same seed."""

import random
import re
from itertools import islice

from openbook_lab.training.examples import occurrences
from openbook_lab.training.records import Entry, Record, invent, layouts


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


def test_every_layout_says_every_value_once() -> None:
    records = [
        Record("Peru", [Entry("Capital", "Lima", "Lima"), Entry("Area", "9 km", "9 km")]),
        Record("Chad", [Entry("Capital", "Doba", "Doba"), Entry("Area", "7 km", "7 km")], ["it was hot"]),
    ]
    for layout in layouts():
        for seed in range(8):
            text = layout.write(records, random.Random(seed))
            for value in ("Lima", "9 km", "Doba", "7 km"):
                assert len(occurrences(value, text)) == 1, (layout.name, text)
            assert "{" not in text.replace("{{Infobox", "") or layout.table == "json"


def test_every_word_of_every_record_can_be_made() -> None:
    for seed in range(6):
        for question in invent(seed, 60):
            assert not re.search(r"(?<!\{)\{\w", question.context), question.context
            assert "{" not in question.text + question.title
