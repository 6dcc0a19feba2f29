"""Question files. A file's content says which it is.

    JSON lines     {"question", "answers", "title"?, "context"?, "kind"?}; answers as in SQuAD's data sets,
                   {"text": [...]}, too
    NQ-open        JSON lines of {"question", "answer": [...]}
    SQuAD          one JSON object, {"data": [{"title", "paragraphs": [{"context", "qas": [...]}]}]}, 1.1 and 2.0

Each may be compressed with gzip.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openbook.errors import SourceInvalid
from openbook_lab.datasets.text_files import TextFile, Wrong, get_list, get_object, get_text

# Articles of SQuAD that are held out by default.
HELD_OUT_ARTICLES = ("Apollo program", "Kenya", "Normans", "Pharmacy")


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its answers and, if known, its paragraph. Without answers, the paragraph does not answer it."""

    text: str
    answers: tuple[str, ...]
    title: str = ""
    context: str = ""
    kind: str = ""


def read_questions(path: Path) -> list[Question]:
    """The questions of a file, in its order.

    Raises SourceInvalid with the line, or the path of the entry in a SQuAD file, that is no question.
    """
    return list(questions_of(TextFile(path)))


def questions_of(file: TextFile) -> Iterator[Question]:
    """As read_questions, from a file that is already in memory."""
    whole = _squad(file)
    return file.objects(_question_of_line) if whole is None else _of_squad(file.path, whole)


def _squad(file: TextFile) -> dict[str, Any] | None:
    """The file as one JSON object with "data", on one line or on many; None for a file of lines."""
    for part in (file.first_line(), file.text):
        try:
            content = json.loads(part)
        except (ValueError, RecursionError):
            continue
        return content if isinstance(content, dict) and "data" in content else None
    return None


def _question_of_line(_: str, record: dict[str, Any]) -> Question:
    if "answers" not in record and "answer_pattern" in record:
        raise Wrong(
            "its answer is a pattern (CuratedTrec), which matches answers but gives none: nothing can be trained on it"
        )
    answers = record["answers"] if "answers" in record else record.get("answer")
    if isinstance(answers, dict):
        answers = answers.get("text")
    return Question(
        text=get_text(record, "question"),
        answers=_answers(get_list({"answers": answers}, "answers")),
        title=_title(record),
        context=_as_written(record, "context"),
        kind=_as_written(record, "kind"),
    )


def _of_squad(path: Path, content: dict[str, Any]) -> Iterator[Question]:
    place = ""
    try:
        for i, article in enumerate(get_list(content, "data")):
            place = f"data[{i}]"
            title = _title(get_object(article))
            for j, paragraph in enumerate(get_list(article, "paragraphs")):
                place = f"data[{i}].paragraphs[{j}]"
                context = get_text(get_object(paragraph), "context")
                for k, asked in enumerate(get_list(paragraph, "qas")):
                    place = f"data[{i}].paragraphs[{j}].qas[{k}]"
                    yield Question(get_text(get_object(asked), "question"), _squad_answers(asked), title, context)
    except Wrong as error:
        raise SourceInvalid(source=f"{path}: {place}".rstrip(": "), reason=str(error)) from error


def _squad_answers(asked: dict[str, Any]) -> tuple[str, ...]:
    # 2.0 lists wrong answers of unanswerable questions apart, under plausible_answers
    if asked.get("is_impossible") is True:
        return ()
    answers = _answers([get_text(get_object(answer), "text") for answer in get_list(asked, "answers")])
    if not answers:
        raise Wrong("no answers, and it does not say is_impossible")
    return answers


def _answers(given: list[Any]) -> tuple[str, ...]:
    if not all(isinstance(answer, str) for answer in given):
        raise Wrong("an answer is no string")
    return tuple(answer.strip() for answer in given if answer.strip())


def _title(record: dict[str, Any]) -> str:
    return _as_written(record, "title").replace("_", " ")


def _as_written(record: dict[str, Any], name: str) -> str:
    value = record.get(name, "")
    if value is not None and not isinstance(value, str):
        raise Wrong(f"{name} is no string")
    return value or ""
