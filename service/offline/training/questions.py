"""Question files: what kind a file is, its content says and not its name.

    JSON lines     {"question", "answers", "title"?, "context"?}; answers as in SQuAD's data sets, {"text": [...]}, too
    NQ-open        JSON lines of {"question", "answer": [...]}
    SQuAD          one JSON object, {"data": [{"title", "paragraphs": [{"context", "qas": [...]}]}]}, 1.1 and 2.0

Each of them may be compressed with gzip.
"""

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.errors import SourceInvalid

GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its answers and, where known, the paragraph that holds them. No answers: unanswerable there."""

    text: str
    answers: tuple[str, ...]
    title: str = ""
    context: str = ""


class _Wrong(ValueError):
    """What is wrong with one entry; the reader adds where it stands."""


def read_questions(path: Path) -> list[Question]:
    """The questions of a file, in its order.

    Raises SourceInvalid that names the line, or the path of the entry in a SQuAD file, that is no question.
    """
    text = _text(path)
    whole = _squad(text)
    return list(_of_lines(path, text) if whole is None else _of_squad(path, whole))


def _text(path: Path) -> str:
    try:
        content = path.read_bytes()
        if content.startswith(GZIP_MAGIC):
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise SourceInvalid(source=path, reason=f"cannot be read ({error})") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SourceInvalid(source=f"{path}:{line}", reason=f"not UTF-8 ({error.reason})") from error


def _squad(text: str) -> dict[str, Any] | None:
    """The file as one JSON object with "data"; None for a file of lines. SQuAD comes on one line and on many."""
    first = next((line for line in text.split("\n") if line.strip()), "")
    for part in (first, text):
        try:
            content = json.loads(part)
        except (ValueError, RecursionError):
            continue
        return content if isinstance(content, dict) and "data" in content else None
    return None


def _of_lines(path: Path, text: str) -> Iterator[Question]:
    # by line feeds alone: other separators that Unicode knows stand in texts
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            yield _question_of_line(line)
        except _Wrong as error:
            raise SourceInvalid(source=f"{path}:{number}", reason=f"not a question: {error}") from error


def _question_of_line(line: str) -> Question:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _Wrong(f"not JSON ({error})") from error
    if not isinstance(record, dict):
        raise _Wrong("not a JSON object")
    if "answers" not in record and "answer_pattern" in record:
        raise _Wrong(
            "its answer is a pattern (CuratedTrec), which matches answers and tells none: nothing can be trained on it"
        )
    answers = record["answers"] if "answers" in record else record.get("answer")
    if isinstance(answers, dict):
        answers = answers.get("text")
    if not isinstance(answers, list):
        raise _Wrong("answers is missing" if answers is None else "answers is no list")
    return Question(
        text=_string(record, "question", needed=True),
        answers=_answers(answers),
        title=_string(record, "title").replace("_", " "),
        context=_string(record, "context"),
    )


def _of_squad(path: Path, content: dict[str, Any]) -> Iterator[Question]:
    place = ""
    try:
        for i, article in enumerate(_list(content, "data")):
            place = f"data[{i}]"
            title = _string(article, "title").replace("_", " ")
            for j, paragraph in enumerate(_list(article, "paragraphs")):
                place = f"data[{i}].paragraphs[{j}]"
                context = _string(paragraph, "context", needed=True)
                for k, asked in enumerate(_list(paragraph, "qas")):
                    place = f"data[{i}].paragraphs[{j}].qas[{k}]"
                    text = _string(asked, "question", needed=True)
                    yield Question(text, _squad_answers(asked), title, context)
    except _Wrong as error:
        raise SourceInvalid(source=f"{path}: {place}".rstrip(": "), reason=str(error)) from error


def _squad_answers(asked: dict[str, Any]) -> tuple[str, ...]:
    # an unanswerable question of 2.0 lists what looks like an answer elsewhere, under plausible_answers
    if asked.get("is_impossible") is True:
        return ()
    answers = _answers([_string(answer, "text", needed=True) for answer in _list(asked, "answers")])
    if not answers:
        raise _Wrong("no answers, and it does not say is_impossible")
    return answers


def _answers(given: list[Any]) -> tuple[str, ...]:
    if not all(isinstance(answer, str) for answer in given):
        raise _Wrong("an answer is no string")
    return tuple(answer.strip() for answer in given if answer.strip())


def _string(record: Any, name: str, *, needed: bool = False) -> str:
    if not isinstance(record, dict):
        raise _Wrong("not a JSON object")
    value = record.get(name)
    if value is None and not needed:
        return ""
    if not isinstance(value, str):
        raise _Wrong(f"{name} is {'missing' if value is None else 'no string'}")
    if needed and not value.strip():
        raise _Wrong(f"{name} is empty")
    return value.strip() if name in ("question", "text") else value


def _list(record: Any, name: str) -> list[Any]:
    if not isinstance(record, dict):
        raise _Wrong("not a JSON object")
    value = record.get(name)
    if not isinstance(value, list):
        raise _Wrong(f"{name} is {'missing' if value is None else 'no list'}")
    return value
