from pathlib import Path

from openbook_lab.evaluation.asked import choose_questions
from tests.fixtures.evaluation import write_lines


def test_a_held_out_title_may_be_written_as_its_file_writes_it(tmp_path: Path) -> None:
    question = {"question": "q", "answers": ["a"], "title": "Apollo_program", "context": "a"}
    path = write_lines(tmp_path / "questions.jsonl", [question, question | {"title": "Kenya"}])
    for title in ("Apollo_program", "Apollo program"):
        assert [one.title for one in choose_questions([path], held_out=[title]).chosen] == ["Apollo program"]
