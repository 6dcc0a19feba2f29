from pathlib import Path

import pytest

from openbook.errors import SourceInvalid
from openbook_lab.evaluation.asked import choose_questions
from tests.fixtures.evaluation import write_lines


def test_a_held_out_title_may_be_written_as_its_file_writes_it(tmp_path: Path) -> None:
    question = {"question": "q", "answers": ["a"], "title": "Apollo_program", "context": "a"}
    path = write_lines(tmp_path / "questions.jsonl", [question, question | {"title": "Kenya"}])
    for title in ("Apollo_program", "Apollo program"):
        assert [one.title for one in choose_questions([path], held_out=[title]).chosen] == ["Apollo program"]


def test_questions_about_no_article_are_not_asked_in_silence(question_file: Path) -> None:
    with pytest.raises(SourceInvalid, match="no question is about Ghana"):
        choose_questions([question_file], held_out=["Ghana"])


def test_a_question_without_an_answer_is_read_about_and_not_asked(question_file: Path) -> None:
    asked = choose_questions([question_file], held_out=["Kenya"])
    assert [question.text for question in asked.chosen] == ["what is the capital of kenya", "where is kenya"]
    assert len(asked.every) == 5
