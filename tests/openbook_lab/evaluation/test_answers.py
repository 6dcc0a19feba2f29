"""What a person reads of an evaluation: verdicts, the file of answers, and two runs side by side."""

from pathlib import Path

import pytest

from openbook.errors import SourceInvalid
from openbook_lab.evaluation.answers import read_answers, verdict_of
from tests.fixtures.command_line import Run
from tests.fixtures.evaluation import write_lines
from tests.openbook_lab.evaluation.conftest import Measured

HOTEL = "up to 160 euros; in Zurich up to 220 euros"


@pytest.mark.parametrize(
    ("golds", "answer", "evidence", "refused", "verdict"),
    [
        (("220 euros",), "Up to 220 euros", "", False, "right"),
        (("220 euros",), "160", HOTEL, False, "in evidence"),
        (("call Mr Haddow at once",), "call Mr Haddow", "", False, "half"),
        (("220 euros",), "90 euros", "up to 90 pounds", False, "wrong"),
        (("220 euros",), "220 euros", HOTEL, True, "refused"),
        (("caddy and admin",), "`caddy` and `admin`", "", False, "right"),
        (("run `sync-all`",), "sync-all", "Run sync-all.", False, "in evidence"),
        ((), "160", HOTEL, False, "answered"),
        ((), "160", HOTEL, True, "refused"),
    ],
)
def test_a_verdict_looks_at_the_answer_and_then_at_its_evidence(
    golds: tuple[str, ...], answer: str, evidence: str, refused: bool, verdict: str
) -> None:
    assert verdict_of(golds, answer, evidence, refused=refused) == verdict


def test_answers_are_written_and_two_runs_are_compared(
    measured: Measured, run: Run, tiny_checkpoint: Path, indexes_folder: Path
) -> None:
    texts = ["who is king", "where is peru", "who is queen"]
    asked = [{"question": text, "answers": ["no"] if at < 2 else [], "kind": "fact"} for at, text in enumerate(texts)]
    here = ("--checkpoint", tiny_checkpoint, "--indexes", indexes_folder, "--index", "tiny-2016", "--n-docs", 2)
    questions = write_lines(Path("mine.jsonl"), asked)
    report = measured("answers", questions, *here, "--answers", "first.csv")
    assert report["facts"]["K"] == 2
    assert measured("answers", questions, *here[:-2])["facts"]["K"] == "the service's"
    [table] = report["tables"]
    assert [(row["questions"], row["number"]) for row in table["rows"]] == [
        ("with an answer", 2),
        ("fact", 2),
        ("without an answer", 1),
    ]
    first, _, third = read_answers(Path("first.csv"))
    assert (first.question, first.expected, first.verdict) == ("who is king", "no", "wrong")
    assert third.verdict == "answered"
    # what was answered then is expected now
    write_lines(questions, [{**asked[0], "answers": [first.answer]}, asked[1], asked[2]])
    report = measured("answers", questions, *here, "--answers", "second.md", "--against", "first.csv")
    _, shares, changed = report["tables"]
    assert [(row["questions"], row["changed"], row["right, points"]["mean"]) for row in shares["rows"]] == [
        ("with an answer", 1, 50),
        ("without an answer", 0, 0),
    ]
    assert [row["question"] for row in changed["rows"]] == ["who is king"]
    assert "| who is king |" in Path("second.md").read_text()
    with pytest.raises(SourceInvalid, match="that --answers wrote"):
        read_answers(Path("second.md"))


def test_a_file_without_a_question_is_refused(run: Run) -> None:
    Path("mine.jsonl").touch()
    refused = run("eval", "answers", "mine.jsonl")
    assert (refused.code, refused.err) == (1, "error [source_invalid]: mine.jsonl: holds no question\n")
