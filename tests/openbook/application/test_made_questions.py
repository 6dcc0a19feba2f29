"""Questions that are made of a book's own words."""

import pytest

from openbook.application.made_questions import candidates
from openbook.entities import Passage


@pytest.mark.parametrize(
    ("passage", "question", "told"),
    [
        (Passage("a#0", "Lease", "A lease is the right to read."), "What is a lease?", "the right to read."),
        (Passage("a#0", "T", "Old. Delft was founded in 1246."), "When was Delft founded?", "1246."),
        (Passage("a#0", "Peru", "The capital is Lima."), "What is the capital of Peru?", "Lima"),
        (Passage("a#0", "T", "code: E4 | meaning: no water"), "What is the meaning of E4?", "no water"),
        (Passage("a#0", "T", "Pull.", section="Help > How to stop it"), "How do I stop it?", "Pull."),
        (Passage("a#0", "T", "Pull.", section="Who may?"), "Who may?", "Pull."),
    ],
)
def test_a_question_is_made_of_what_stands_there(passage: Passage, question: str, told: str) -> None:
    assert [(one.question, one.told, one.passage) for one in candidates([passage])] == [(question, told, passage)]


@pytest.mark.parametrize(
    "text",
    ["It is a river.", "This is the end.", "In May the king is an old man.", "The capital is Lima.", "", "a | b"],
)
def test_what_points_back_names_nothing(text: str) -> None:
    assert candidates([Passage("a#0", "Geography of Peru", text)]) == []


def test_the_first_questions_are_of_several_kinds() -> None:
    defined = [Passage(f"{n}#0", "T", f"Term{n} is a word.") for n in range(3)]
    found = candidates([*defined, Passage("x#0", "T", "Rome is a city. Rome was founded in 753 or 1753.")])
    assert [one.question for one in found[:2]] == ["When was Rome founded?", "What is Term0?"]
