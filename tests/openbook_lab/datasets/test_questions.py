"""Question files: each kind is known by its content, and what is wrong is named with its place."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from openbook.errors import SourceInvalid
from openbook_lab.datasets.questions import Question, read_questions

LIMA = Question("What is the capital of Peru?", ("Lima", "lima"), "Peru and Lima", "Lima is the capital of Peru.")
SQUAD: dict[str, Any] = {
    "version": "v2.0",
    "data": [
        {
            "title": "Peru_and_Lima",
            "paragraphs": [
                {
                    "context": "Lima is the capital of Peru.",
                    "qas": [
                        {
                            "id": "1",
                            "question": "What is the capital of Peru?",
                            "answers": [{"text": "Lima", "answer_start": 0}, {"text": "lima", "answer_start": 0}],
                            "is_impossible": False,
                        },
                        {
                            "id": "2",
                            "question": "Who is its king?",
                            "answers": [],
                            "plausible_answers": [{"text": "Lima", "answer_start": 0}],
                            "is_impossible": True,
                        },
                    ],
                }
            ],
        }
    ],
}


def written(folder: Path, content: str | bytes, name: str = "file") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_json_lines_are_read_with_blank_lines_between(tmp_path: Path) -> None:
    line = {"question": " Who? ", "answers": ["I ", ""], "title": "A_b", "context": "x\u2028y"}
    path = written(tmp_path, f'{json.dumps(line, ensure_ascii=False)}\n\n{{"question": "What?", "answers": []}}\n')
    assert read_questions(path) == [Question("Who?", ("I",), "A b", "x\u2028y"), Question("What?", ())]


@pytest.mark.parametrize("indent", [None, 2])
def test_squad_is_read_on_one_line_or_many_and_impossible_ones_lack_answers(tmp_path: Path, indent: int | None) -> None:
    path = written(tmp_path, json.dumps(SQUAD, indent=indent), "train.jsonl")
    assert read_questions(path) == [LIMA, Question("Who is its king?", (), LIMA.title, LIMA.context)]


def test_squad_of_the_first_version_says_nothing_of_impossible_questions(tmp_path: Path) -> None:
    content = json.loads(json.dumps(SQUAD))
    asked = content["data"][0]["paragraphs"][0]["qas"]
    del asked[1], asked[0]["is_impossible"]
    assert read_questions(written(tmp_path, json.dumps(content))) == [LIMA]


def test_nq_open_and_the_nested_answers_of_data_sets_are_read(tmp_path: Path) -> None:
    lines = [
        {"question": "who was it", "answer": ["Ana", "Ana Torres"]},
        {"question": "where", "context": "In Lima.", "answers": {"text": ["Lima"], "answer_start": [3]}},
    ]
    assert read_questions(written(tmp_path, "\n".join(map(json.dumps, lines)))) == [
        Question("who was it", ("Ana", "Ana Torres")),
        Question("where", ("Lima",), "", "In Lima."),
    ]


def test_a_compressed_file_is_known_by_its_first_bytes(tmp_path: Path) -> None:
    path = written(tmp_path, gzip.compress(json.dumps(SQUAD).encode()), "train.json")
    assert read_questions(path)[0] == LIMA
    broken = written(tmp_path, path.read_bytes()[:-20], "broken.gz")
    with pytest.raises(SourceInvalid, match=r"broken\.gz: cannot be read"):
        read_questions(broken)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"question": "What?"}', "answers is missing"),
        ('{"question": "What?", "answers": "Lima"}', "answers is no list"),
        ('{"question": "What?", "answers": [3]}', "an answer is no string"),
        ('{"answers": ["Lima"]}', "question is missing"),
        ('{"question": " ", "answers": []}', "question is empty"),
        ('["What?"]', "not a JSON object"),
        ("What?", "not JSON"),
        ('{"question": "When?", "answer_pattern": "Sept?(ember)?"}', "its answer is a pattern"),
    ],
)
def test_a_line_that_is_no_question_is_named_with_its_number(tmp_path: Path, line: str, reason: str) -> None:
    path = written(tmp_path, f'{{"question": "Who?", "answers": ["I"]}}\n{line}\n', "questions.jsonl")
    with pytest.raises(SourceInvalid) as caught:
        read_questions(path)
    assert str(caught.value).startswith(f"{path}:2: not a question: ")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda data: data[0]["paragraphs"][0]["qas"][1].pop("is_impossible"), "data[0].paragraphs[0].qas[1]: no answ"),
        (lambda data: data[0]["paragraphs"][0]["qas"][0].pop("question"), "data[0].paragraphs[0].qas[0]: question is"),
        (lambda data: data[0]["paragraphs"][0].pop("context"), "data[0].paragraphs[0]: context is missing"),
        (lambda data: data[0].update(paragraphs={}), "data[0]: paragraphs is no list"),
        (lambda data: data.append("x"), "data[1]: not a JSON object"),
    ],
)
def test_an_entry_of_squad_that_is_no_question_is_named_with_its_path(tmp_path: Path, change: Any, place: str) -> None:
    content = json.loads(json.dumps(SQUAD))
    change(content["data"])
    path = written(tmp_path, json.dumps(content), "squad.json")
    with pytest.raises(SourceInvalid) as caught:
        read_questions(path)
    assert str(caught.value).startswith(f"{path}: {place}")


def test_a_file_that_is_not_utf_8_is_named_with_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, b'{"question": "Who?", "answers": []}\n\xff\n', "latin.jsonl")
    with pytest.raises(SourceInvalid, match=r"latin\.jsonl:2: not UTF-8"):
        read_questions(path)
