"""Follow-up questions: how many are completed word for word, and how often a passage with an answer is found."""

from pathlib import Path

from tests.fixtures.command_line import Run
from tests.fixtures.evaluation import write_lines
from tests.openbook_lab.evaluation.conftest import Measured

TURN = {"question": "Who is the President of Peru?", "answer": None}


def test_follow_ups_are_counted_by_kind_and_searched_in_their_own_index(
    measured: Measured, tiny_checkpoint: Path, indexes_folder: Path
) -> None:
    asked = [
        {"question": "And of Chile?", "full": "Who is the President of Chile?", "kind": "leaning"},
        {"question": "And his dog?", "full": "What is the name of the dog?", "kind": "leaning"},
        {"question": "Who is king?", "full": "Who is king?", "kind": "alone"},
    ]
    answered = [
        {"history": [TURN], "answers": ["of"], "folder": "tiny-2016"},
        {"history": [TURN], "answers": ["nowhere"]},
        {"history": [TURN], "answers": ["of"], "folder": "another"},
    ]
    file = write_lines(Path("mine.jsonl"), [one | other for one, other in zip(asked, answered, strict=True)])
    here = ("--checkpoint", tiny_checkpoint, "--indexes", indexes_folder, "--index", "tiny-2016", "--n-docs", 12)
    words, found = measured("following", file, *here, "--retriever", "dense")["tables"]
    assert [(row["kind"], row["number"], row["right"]["mean"]) for row in words["rows"]] == [
        ("leaning", 2, 50.0),
        ("alone", 1, 100.0),
    ]
    assert [(row["asked"], row["number"]) for row in found["rows"]] == [
        ("as it is", 2),
        ("completed", 2),
        ("the whole question", 2),
    ]
    assert [row["in the first 12"]["mean"] for row in found["rows"]] == [50.0] * 3


def test_a_line_that_is_no_follow_up_is_named(run: Run) -> None:
    file = write_lines(Path("mine.jsonl"), [{"question": "And of Chile?"}])
    assert "mine.jsonl" in run("eval", "following", file).err
