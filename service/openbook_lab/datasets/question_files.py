"""The public question files of open-domain question answering. A file's content says which it is.

    TriviaQA        one JSON object, {"Data": [{"Question", "Answer": {"Value", "Aliases": [...]}}]} (unfiltered)
    WebQuestions    one JSON list of {"utterance", "targetValue": '(list (description "...") ...)'}
    CuratedTrec     JSON lines of {"question", "answer_pattern"}; or of {"question", "answer": [...]}, as DrQA has it,
                    if the caller says that the answers are patterns
    DPR's .csv      lines of a question, a tab and a list of answers as Python writes it

and the files that training reads: NQ-open, WebQuestions as JSON lines, SQuAD. Any may be compressed with gzip.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openbook.errors import SourceInvalid
from openbook_lab.datasets.golds import AnswerPattern, Golds
from openbook_lab.datasets.questions import questions_of
from openbook_lab.datasets.text_files import TextFile, Wrong, get_text, get_texts

# a description in quotation marks, which a backslash escapes, or a single word without them
_DESCRIPTION = re.compile(r'\(description (?:"((?:[^"\\]|\\.)*)"|([^\s()"]+))\)')


@dataclass(frozen=True, slots=True)
class QaQuestion:
    """A question and its right answers."""

    text: str
    golds: Golds


def read_qa(path: Path, *, patterns: bool = False) -> list[QaQuestion]:
    """The questions of a file in its order; with `patterns`, all answers are regular expressions.

    Raises SourceInvalid with the place of a line or an entry that is no question with an answer.
    """
    questions = list(_read(TextFile(path), patterns))
    if not questions:
        raise SourceInvalid(source=path, reason="holds no question")
    return questions


def read_published(file: TextFile, *, patterns: bool = False) -> Iterator[QaQuestion] | None:
    """The questions of TriviaQA's, WebQuestions' or DPR's files; None for any other file."""
    content = file.value()
    first = file.first_line()
    if isinstance(content, dict) and "Data" in content:
        return file.entries(content["Data"], "Data", _of_trivia_qa)
    if isinstance(content, list):
        return file.entries(content, "", _of_web_questions)
    if "\t" in first and not first.lstrip().startswith("{"):
        return file.rows(lambda place, line: _of_dpr(place, line, patterns))
    return None


def _read(file: TextFile, patterns: bool) -> Iterator[QaQuestion]:
    published = read_published(file, patterns=patterns)
    if published is not None:
        yield from published
    elif patterns or '"answer_pattern"' in file.first_line():
        yield from file.objects(_of_curated_trec)
    else:
        for number, question in enumerate(questions_of(file), start=1):
            if not question.answers:
                raise SourceInvalid(
                    source=file.path, reason=f"question {number}, {question.text!r}, has no answer to be marked by"
                )
            yield QaQuestion(question.text, Golds(question.answers))


def _of_trivia_qa(entry: dict[str, Any]) -> QaQuestion:
    answer = entry.get("Answer")
    if not isinstance(answer, dict):
        raise Wrong("Answer is missing (TriviaQA's test questions come without)")
    aliases = get_texts(answer, "Aliases") if "Aliases" in answer else ()
    return QaQuestion(get_text(entry, "Question"), Golds(tuple(dict.fromkeys([get_text(answer, "Value"), *aliases]))))


def _of_web_questions(entry: dict[str, Any]) -> QaQuestion:
    target = get_text(entry, "targetValue")
    found = [re.sub(r"\\(.)", r"\1", quoted) or bare for quoted, bare in _DESCRIPTION.findall(target)]
    if not found:
        raise Wrong("targetValue lists no description")
    return QaQuestion(get_text(entry, "utterance"), Golds(tuple(found)))


def _of_curated_trec(place: str, record: dict[str, Any]) -> QaQuestion:
    answers = record.get("answer_pattern", record.get("answer", record.get("answers")))
    answers = [answers] if isinstance(answers, str) else answers
    return QaQuestion(get_text(record, "question"), _golds(place, answers, True))


def _of_dpr(place: str, line: str, patterns: bool) -> QaQuestion:
    question, _, answers = line.partition("\t")
    try:
        if not question.strip():
            raise Wrong("question is empty")
        return QaQuestion(question.strip(), _golds(place, ast.literal_eval(answers.strip()), patterns))
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise SourceInvalid(source=place, reason=f"not a question, a tab and a list of answers: {error}") from error


def _golds(place: str, answers: Any, patterns: bool) -> Golds:
    if not isinstance(answers, list) or not answers or not all(isinstance(one, str) and one for one in answers):
        raise Wrong("its answers are no list of strings, or an empty one")
    return Golds(patterns=tuple(AnswerPattern(one, place) for one in answers)) if patterns else Golds(tuple(answers))
