"""What a guard grows by: readers' words, and questions that the text answers by itself."""

import json
from pathlib import Path

from openbook.application.made_questions import MadeQuestion
from openbook.entities import Passage
from openbook.plugins.review.guards import Guard
from openbook.plugins.review.learning import MOST_ASKED, more_guards, readers_said
from openbook.storage.feedback import FeedbackFile, FeedbackRecord
from openbook_client import Answer
from openbook_client.results import Evidence

LIMIT = 0.8


def answer(said: str | None, stands_in: str = "a#0", no_answer: float = 0.1) -> Answer:
    evidence = Evidence(rank=1, passage_id=stands_in, text=f"It is {said}.", start=0, end=9, share=1.0)
    return Answer.model_construct(answer=said, evidence=(evidence,) if said else (), no_answer=no_answer)


def word(question: str, said: str | None, rating: str = "up", correction: str | None = None) -> FeedbackRecord:
    return FeedbackRecord("2026-01-01T00:00:00+00:00", "id", rating, correction, question, said, "v", "c")  # type: ignore[arg-type]


def made(question: str, told: str, stands_in: str) -> MadeQuestion:
    return MadeQuestion(question, Passage(stands_in, "T", told), told)


def grown(
    answers: dict[str, Answer], *, said: tuple[FeedbackRecord, ...] = (), made: tuple[MadeQuestion, ...] = ()
) -> list[Guard]:
    known = Guard(question="Known?", must_contain=("here",))
    return list(more_guards([known], [answer("here", "known#0")], said, made, answers.__getitem__, LIMIT))


def test_what_readers_liked_is_expected_where_it_is_the_answer_still() -> None:
    said = (
        word("known? ", "here"),
        word("Open?", "8:30"),
        word("Closed?", "19:00"),
        word("Queen?", None),
        word("King?", None),
        word("Tests?", "Maria", "down", " John "),
    )
    answers = {"Open?": answer("8:30", "a#0"), "Closed?": answer("20:00", "b#0")}
    # refusals have no evidence that could be the same
    answers |= {"Queen?": answer(None), "King?": answer(None)}
    assert grown(answers, said=said) == [
        Guard(question="Open?", must_contain=("8:30",)),
        Guard(question="Queen?", must_refuse=True),
        Guard(question="King?", must_refuse=True),
        # by anyone
        Guard(question="Tests?", must_contain=("John",), warn=True),
    ]


def test_of_questions_with_the_same_evidence_the_first_is_taken() -> None:
    said = (word("Again?", "here"), word("Open?", "8:30"), word("When open?", "8:30"))
    asked = (made("known?", "It is here.", "other#0"), made("At what time?", "It is 8:30.", "a#0"))
    answers = {"Again?": answer("here", "known#0"), "known?": answer("here", "other#0")}
    answers |= dict.fromkeys(("Open?", "When open?", "At what time?"), answer("8:30"))
    assert [one.question for one in grown(answers, said=said, made=asked)] == ["Open?"]


def test_what_the_text_asks_needs_a_sure_answer_from_where_it_was_asked() -> None:
    asked = (
        made("Sure?", "It is so.", "a#0"),
        made("Unsure?", "It is red.", "b#0"),
        made("Elsewhere?", "It is blue.", "c#0"),
        made("Other words?", "It is green.", "d#0"),
        made("Withheld?", "It is old.", "e#0"),
    )
    answers = {
        "Sure?": answer("so", "a#0"),
        "Unsure?": answer("red", "b#0", no_answer=0.9 * LIMIT),
        "Elsewhere?": answer("blue", "z#0"),
        "Other words?": answer("brown", "d#0"),
        "Withheld?": answer(None),
    }
    assert grown(answers, made=asked) == [Guard(question="Sure?", must_contain=("so",))]
    uncalibrated = more_guards([], [], (), asked, answers.__getitem__, None)
    assert list(uncalibrated) == []


def test_of_each_question_the_last_word_counts_and_the_newest_come_first(tmp_path: Path) -> None:
    file = FeedbackFile(tmp_path / "feedback.jsonl")
    for record in (word("A?", "1"), word("B?", "2"), word("a? ", "3", "down"), word("C?", "4"), word("B?", "5")):
        file.append(record)
    assert [(one.question, one.answer) for one in readers_said(tmp_path / "feedback.jsonl")] == [
        ("B?", "5"),
        ("C?", "4"),
    ]
    assert readers_said(None) == []
    for number in range(2 * MOST_ASKED):
        file.append(word(f"{number}?", json.dumps(number)))
    assert len(readers_said(tmp_path / "feedback.jsonl")) == MOST_ASKED
