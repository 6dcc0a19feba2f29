"""What free text is written from, and what others wrote: abstractive answers, and Jeopardy clues to an entity.

MS-MARCO NLG    one JSON object, {"query": {id: ...}, "wellFormedAnswers": {id: [...] or "[]"}} (v2.1), or JSON
                lines of {"query", "wellFormedAnswers"}; queries without a well-formed answer are left out
Jeopardy        one JSON list, or JSON lines, of {"question": a clue, "answer": its entity}: SearchQA's own files
SearchQA        lines of snippets ||| clue ||| entity
JSON lines      {"input", "references": [...]}
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openbook.errors import SourceInvalid
from openbook_lab.datasets.text_files import TextFile, Wrong, get_text, get_texts

SEPARATOR = "|||"
_TAG = re.compile(r"<[^<>]*>")


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is given to the model, and the texts that people wrote for it."""

    text: str
    references: tuple[str, ...]


def read_prompts(path: Path) -> list[Prompt]:
    """The prompts of a file. Raises SourceInvalid that names the line, or the entry, that is none."""
    prompts = [prompt for prompt in _read(TextFile(path)) if prompt is not None]
    if not prompts:
        raise SourceInvalid(source=path, reason="holds nothing to generate")
    return prompts


def _read(file: TextFile) -> Iterator[Prompt | None]:
    content = file.value()
    first = file.first_line()
    if isinstance(content, dict) and isinstance(content.get("query"), dict):
        yield from _of_ms_marco(file.path, content)
    elif isinstance(content, list):
        yield from file.entries(content, "", _of_object)
    elif SEPARATOR in first and not first.lstrip().startswith("{"):
        for place, line in file.lines():
            yield _of_search_qa(place, line)
    elif isinstance(content, dict) and first.strip() == "{":
        # SearchQA's raw data: a file a clue
        yield from file.entries([content], "", _of_object)
    else:
        yield from file.objects(lambda _, record: _of_object(record))


def _of_ms_marco(path: Path, content: dict[str, Any]) -> Iterator[Prompt | None]:
    answers = content.get("wellFormedAnswers")
    if not isinstance(answers, dict):
        raise SourceInvalid(source=path, reason="wellFormedAnswers is missing, or no object")
    for number in content["query"]:
        try:
            yield _of_object({"query": content["query"][number], "wellFormedAnswers": answers.get(number)})
        except Wrong as error:
            raise SourceInvalid(source=f"{path}: query[{number}]", reason=f"not a question: {error}") from error


def _of_object(record: dict[str, Any]) -> Prompt | None:
    if "wellFormedAnswers" in record:
        # none is written as the text of an empty list
        if record["wellFormedAnswers"] == "[]":
            return None
        answers = get_texts(record, "wellFormedAnswers")
        return Prompt(get_text(record, "query"), answers) if answers else None
    if "input" in record:
        references = get_texts(record, "references")
        if not references:
            raise Wrong("references is empty")
        return Prompt(get_text(record, "input"), references)
    return _of_clue(get_text(record, "question"), get_text(record, "answer"))


def _of_search_qa(place: str, line: str) -> Prompt:
    parts = line.split(SEPARATOR)
    try:
        if len(parts) != 3:
            raise Wrong(f"not snippets {SEPARATOR} clue {SEPARATOR} entity")
        return _of_clue(parts[1], parts[2])
    except Wrong as error:
        raise SourceInvalid(source=place, reason=f"not a question: {error}") from error


def _of_clue(clue: str, entity: str) -> Prompt:
    # the archive writes clues in quotation marks, with links and line breaks as HTML
    written = " ".join(_TAG.sub(" ", clue).split())
    if len(written) > 1 and written[0] == written[-1] == "'":
        written = written[1:-1].strip()
    if not written or not entity.strip():
        raise Wrong("its clue or its entity is empty")
    return Prompt(entity.strip(), (written,))
