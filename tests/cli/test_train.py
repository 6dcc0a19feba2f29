from pathlib import Path

from tests.cli.conftest import Run


def test_training_without_a_question_file_is_wrong_use(run: Run) -> None:
    ended = run("train", "trained")
    assert ended.code == 2
    assert "--paragraphs" in ended.err


def test_a_question_file_that_is_not_there_ends_training_before_it_begins(run: Run, tmp_path: Path) -> None:
    ended = run("train", "trained", "--paragraphs", "squad.jsonl", "--work", "work")
    assert ended.code == 1
    assert ended.err == "error [source_invalid]: squad.jsonl: there is no such file\n"
    assert not (tmp_path / "trained").exists()
