"""Questions that lean on the turns before them, against those that people would ask in their place."""

import json
import re
from random import Random

import pytest

from openbook.application.following import LONGEST, completed
from openbook.entities import EarlierTurn
from tests.places import ROOT

RECORDS = [json.loads(line) for line in (ROOT / "tests/data/follow_ups.jsonl").read_text(encoding="utf-8").splitlines()]
# questions to the mixed folder, which stand alone as well
MIXED = [json.loads(line) for line in (ROOT / "tests/data/mixed_folder.jsonl").read_text(encoding="utf-8").splitlines()]
ALONE = [record["question"] for record in RECORDS if record["kind"] == "alone"]
LEANING = [record for record in RECORDS if record["kind"] != "alone"]
WORDS = re.findall(
    r"\S+",
    "Who what When is does did the capital of Peru And and or what about it its she there that in 2018 RG40 A a _ 's "
    "how many people live country , ? . é President of Chile take cost since one ones the if when not raining",
)


def turns(*pairs: tuple[str, str | None]) -> list[EarlierTurn]:
    return [EarlierTurn(question, answer) for question, answer in pairs]


def history_of(record: dict[str, list[dict[str, str | None]]]) -> list[EarlierTurn]:
    return [EarlierTurn(**turn) for turn in record["history"]]  # type: ignore[arg-type]


def right(kind: str) -> float:
    some = [record for record in LEANING if record["kind"] == kind]
    return sum(completed(one["question"], history_of(one)) == one["full"] for one in some) / len(some)


def test_most_follow_ups_become_the_question_that_a_person_would_write() -> None:
    assert len(LEANING) >= 100
    assert right("development") >= 0.85
    assert right("held out") >= 0.85


def test_a_question_that_stands_alone_is_never_changed() -> None:
    asked = [*ALONE, *(record["question"] for record in MIXED)]
    assert len(asked) >= 120
    for question in asked:
        assert completed(question, []) == question
        for record in LEANING:
            assert completed(question, history_of(record)) == question, record["history"]


def test_a_completed_question_leans_on_nothing_any_more() -> None:
    for record in LEANING:
        history = history_of(record)
        once = completed(record["question"], history)
        assert completed(once, history) == once


@pytest.mark.parametrize("seed", range(100))
def test_whatever_is_said_the_question_stays_within_its_bound_and_settles(seed: int) -> None:
    random = Random(seed)

    def said(most: int) -> str:
        return " ".join(random.choices(WORDS, k=random.randint(1, most)))

    history = [
        EarlierTurn(said(random.choice((6, 12, 400)))[:LONGEST], random.choice((None, "", said(4))))
        for _ in range(seed % 5)
    ]
    question = said(random.choice((4, 8, 300)))[:LONGEST]
    once = completed(question, history)
    assert len(once) <= LONGEST
    assert completed(once, history) == once
    if not history:
        assert once == question


@pytest.mark.parametrize(
    ("history", "question", "expected"),
    [
        # what it is not sure of stays as it is
        ([("Who is the President of Peru?", None)], "Thanks!", "Thanks!"),
        ([("Who is the President of Peru?", None)], "  Is  it raining\tin Lima ?", "  Is  it raining\tin Lima ?"),
        # a refused question is leant on as any other
        ([("Who is the President of Peru?", None)], "And of Chile?", "Who is the President of Chile?"),
        # a turn that leans itself is completed first
        (
            [("Who is the President of Peru?", "A"), ("And of Chile?", "B"), ("And the capital?", "C")],
            "And of Bolivia?",
            "Who is the capital of Bolivia?",
        ),
        # a name of like shape gives way, and thanks is no question
        (
            [("What does E7 on the boiler mean?", None), ("Thanks.", None)],
            "And E12?",
            "What does E12 on the boiler mean?",
        ),
        # the question before the last one is not leant on
        ([("Who is the President of Peru?", "A"), ("How high is Mont Blanc?", "B")], "And K2?", "How high is K2?"),
        # a sentence is no name, and neither is a number
        (
            [("What is the highest point of Peru?", "6,768 m")],
            "How high is it?",
            "How high is the highest point of Peru?",
        ),
    ],
)
def test_what_is_put_in(history: list[tuple[str, str | None]], question: str, expected: str) -> None:
    assert completed(question, turns(*history)) == expected
