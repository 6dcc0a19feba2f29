"""Prompts for free text and what people wrote for them: abstractive answers, and Jeopardy clues to an entity.

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
    """The model's input, and the texts that people wrote for it."""

    text: str
    references: tuple[str, ...]


def read_prompts(path: Path) -> list[Prompt]:
    """The prompts of a file. Raises SourceInvalid with the place of a line or an entry that is no prompt."""
    prompts = [prompt for prompt in _read(TextFile(path)) if prompt is not None]
    if not prompts:
        raise SourceInvalid(source=path, reason="holds nothing to generate")
    return prompts


def _read(file: TextFile) -> Iterator[Prompt | None]:
    content = file.value()
    first = file.first_line()
    if isinstance(content, dict) and isinstance(content.get("query"), dict):
        queries, answers = content["query"], content.get("wellFormedAnswers")
        if not isinstance(answers, dict):
            raise SourceInvalid(source=file.path, reason="wellFormedAnswers is missing, or no object")
        records = {key: {"query": query, "wellFormedAnswers": answers.get(key)} for key, query in queries.items()}
        return file.members(records.items(), "query", _of_object)
    if isinstance(content, list):
        return file.entries(content, "", _of_object)
    if SEPARATOR in first and not first.lstrip().startswith("{"):
        return file.rows(_of_search_qa)
    if isinstance(content, dict) and first.strip() == "{":
        # SearchQA's raw data: a file for each clue
        return file.entries([content], "", _of_object)
    return file.objects(lambda _, record: _of_object(record))


def _of_object(record: dict[str, Any]) -> Prompt | None:
    if "wellFormedAnswers" in record:
        # an empty list is written as text
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


def _of_search_qa(_place: str, line: str) -> Prompt:
    parts = line.split(SEPARATOR)
    if len(parts) != 3:
        raise Wrong(f"not snippets {SEPARATOR} clue {SEPARATOR} entity")
    return _of_clue(parts[1], parts[2])


def _of_clue(clue: str, entity: str) -> Prompt:
    # the archive has clues in quotation marks, with links and line breaks as HTML
    written = " ".join(_TAG.sub(" ", clue).split())
    if len(written) > 1 and written[0] == written[-1] == "'":
        written = written[1:-1].strip()
    if not written or not entity.strip():
        raise Wrong("its clue or its entity is empty")
    return Prompt(entity.strip(), (written,))
