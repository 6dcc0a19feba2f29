"""openbook ask --file, against a real service: what is written, what is asked again, and how it goes on."""

import fcntl
import json
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.command_line import Run
from tests.openbook.api.conftest import post

QUESTIONS = [
    "who is the president of peru ?",
    "",
    "what is the currency ?",
    "where is the river ?",
    "who is the king ?",
]
FEW = ("--n-docs", 3, "--max-new-tokens", 2)


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    return write(
        tmp_path / "questions.jsonl", [{"question": text, "id": f"q{i}", "answers": []} for i, text in asked()]
    )


def asked() -> list[tuple[int, str]]:
    """An empty line stands among them, and they are counted from 1."""
    return [(line, text) for line, text in enumerate(QUESTIONS, start=1) if text]


def write(path: Path, lines: list[Any]) -> Path:
    content = [json.dumps(one) for one in lines]
    content.insert(1, "")
    path.write_text("\n".join(content), encoding="utf-8")
    return path


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_question_gets_its_answer_in_the_order_of_the_file(
    run: Run, service: str, questions: Path, tmp_path: Path
) -> None:
    out = tmp_path / "answers.jsonl"
    ended = run("ask", "--file", questions, "--out", out, "--url", service, *FEW)
    assert (ended.code, ended.out) == (0, ""), ended.err
    assert ended.err.endswith("4 of 4 questions have an answer\n")
    assert "ask: 4 of 4" in ended.err
    found = read(out)
    assert [(one["line"], one["id"], one["question"]) for one in found] == [
        (line, f"q{line}", text) for line, text in asked()
    ]
    for one in found:
        body = {"question": one["question"], "n_docs": 3, "max_new_tokens": 2}
        expected = post(f"{service}/answer", json=body).json()
        assert set(one["response"]) == set(expected)
        assert [one["response"][name] for name in ("answer", "index")] == [expected["answer"], expected["index"]]
        assert one["response"]["log_prob"] == pytest.approx(expected["log_prob"], abs=1e-4)


def test_a_withheld_answer_is_kept_and_counted(run: Run, service: str, questions: Path, tmp_path: Path) -> None:
    out = tmp_path / "answers.jsonl"
    ended = run("ask", "--file", questions, "--out", out, "--url", service, "--abstain", 0, *FEW)
    assert (ended.code, ended.err.splitlines()[-1]) == (0, '0 of 4 questions have an answer; "I do not know": 4')
    assert [one["response"]["answer"] for one in read(out)] == [None] * 4
    assert read(out)[0]["options"]["abstain"] == {"max_no_answer": 0.0}


def test_what_is_answered_is_not_asked_again_and_half_a_line_is(
    run: Run, service: str, questions: Path, tmp_path: Path
) -> None:
    out = tmp_path / "answers.jsonl"
    command = ("ask", "--file", questions, "--out", out, "--url", service, *FEW)
    run(*command)
    whole = out.read_text()
    lines = whole.splitlines(keepends=True)
    # as a process leaves it that dies in its third write
    out.write_text(lines[0] + lines[1] + lines[2][:40])
    assert run(*command).code == 0
    assert out.read_text().splitlines()[:2] == whole.splitlines()[:2]
    assert [one["line"] for one in read(out)] == [1, 3, 4, 5]
    kept = out.read_bytes()
    assert run(*command).code == 0
    assert out.read_bytes() == kept


def test_errors_are_said_and_asked_again_by_the_same_command(
    run: Run, service: str, questions: Path, tmp_path: Path
) -> None:
    out = tmp_path / "answers.jsonl"
    write(questions, [{"question": QUESTIONS[0]}, {"question": "x" * 100_000}])
    command = ("ask", "--file", questions, "--out", out, "--url", service, *FEW)
    first = run(*command)
    *_, counted, said = first.err.splitlines()
    assert counted == "1 of 2 questions have an answer; errors: invalid_request: 1. The same command asks these again."
    assert said.startswith("line 3 [invalid_request]: question: must have at most ")
    assert [one["line"] for one in read(out)] == [1]
    kept = out.read_bytes()
    again = run(*command)
    assert (first.code, again.code, again.err.splitlines()[-2:]) == (1, 1, [counted, said])
    assert out.read_bytes() == kept


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"question": "who ?"}\n{"quest": "who ?"}\n', "questions.jsonl, line 2: question: Field required"),
        (b'{"question": "who ?"}\nwho ?\n', "questions.jsonl, line 2: Invalid JSON"),
        (b'{"question": 3}\n', "questions.jsonl, line 1: question: Input should be a valid string"),
        (b"\xff\xfe", "questions.jsonl: cannot be read"),
    ],
)
def test_a_file_with_a_line_that_is_no_question_is_refused_before_any_is_asked(
    run: Run, tmp_path: Path, content: bytes, said: str
) -> None:
    (tmp_path / "questions.jsonl").write_bytes(content)
    out = tmp_path / "answers.jsonl"
    ended = run("ask", "--file", tmp_path / "questions.jsonl", "--out", out, "--url", "http://127.0.0.1:9")
    assert ended.code == 1
    assert ended.err.startswith("error [source_invalid]: ")
    assert said in ended.err
    assert not out.exists()


def test_answers_to_other_questions_or_with_other_options_are_not_mixed(
    run: Run, service: str, questions: Path, tmp_path: Path
) -> None:
    out = tmp_path / "answers.jsonl"
    command = ("ask", "--file", questions, "--out", out, "--url", service, *FEW)
    run(*command)
    kept = out.read_bytes()
    other = run(*command, "--model", "sequence")
    assert (other.code, "was written with other options (line 1)" in other.err) == (2, True)
    write(questions, [{"question": "another"}])
    assert "holds the answer to another question than line 1 of --file" in run(*command).err
    assert out.read_bytes() == kept
    (tmp_path / "notes").write_text("my notes\n")
    assert "line 1 is no answer of this command" in run("ask", "--file", questions, "--out", tmp_path / "notes").err
    assert (tmp_path / "notes").read_text() == "my notes\n"


def test_two_processes_do_not_write_one_file(run: Run, service: str, questions: Path, tmp_path: Path) -> None:
    out = tmp_path / "answers.jsonl"
    with out.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        ended = run("ask", "--file", questions, "--out", out, "--url", service)
    assert (ended.code, "another process is writing it" in ended.err) == (2, True)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("who ?", "--file", "questions.jsonl", "--out", "answers.jsonl"),
        ("--file", "questions.jsonl"),
        *(("--file", "questions.jsonl", "--out", "a.jsonl", *more) for more in (("--local",), ("--json",))),
        ("--file", "questions.jsonl", "--out", "a.jsonl", "--compare", "a", "--compare", "b"),
    ],
)
def test_options_that_do_not_go_together_are_wrong_use(run: Run, questions: Path, arguments: tuple[str, ...]) -> None:
    assert run("ask", *arguments).code == 2


def test_a_service_that_goes_away_ends_the_command_and_keeps_the_answers(
    run: Run, questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openbook.cli.ask_file.RETRIES", 0)
    out = tmp_path / "answers.jsonl"
    ended = run("ask", "--file", questions, "--out", out, "--url", "http://127.0.0.1:9")
    assert ended.code == 1
    assert "error [server_unreachable]: " in ended.err
    assert out.read_bytes() == b""
