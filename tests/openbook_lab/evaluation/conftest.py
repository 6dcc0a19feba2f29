"""What every experiment is tried on: tests/fixtures/evaluation.py in real files, and its book in a real index."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from openbook.entities import Passage
from openbook.rag.checkpoint import Checkpoint, load_checkpoint
from openbook.storage.snapshot import IndexSnapshot
from openbook_lab.evaluation.asked import QuestionSet, choose_questions
from openbook_lab.evaluation.book import open_book, write_book
from tests.fixtures.command_line import Run
from tests.fixtures.evaluation import PASSAGES, QUESTIONS, write_lines

Measured = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def checkpoint(checkpoint_folder: Path) -> Checkpoint:
    return load_checkpoint(checkpoint_folder)


@pytest.fixture(scope="session")
def question_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_lines(tmp_path_factory.mktemp("questions") / "questions.jsonl", QUESTIONS)


@pytest.fixture(scope="session")
def passage_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_lines(tmp_path_factory.mktemp("passages") / "passages.jsonl", PASSAGES)


@pytest.fixture(scope="session")
def asked(question_file: Path) -> QuestionSet:
    return choose_questions([question_file], held_out=None)


@pytest.fixture(scope="session")
def book(asked: QuestionSet, passage_file: Path) -> tuple[Passage, ...]:
    return write_book(asked.every, [passage_file])


@pytest.fixture(scope="session")
def book_work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the index of the book is."""
    return tmp_path_factory.mktemp("book")


@pytest.fixture(scope="session")
def snapshot(
    book: tuple[Passage, ...], checkpoint: Checkpoint, tiny_encoder: Path, book_work: Path
) -> Iterator[IndexSnapshot]:
    with open_book(book, book_work, asked_by=[checkpoint], encoder_folder=tiny_encoder, bm25=True) as opened:
        yield opened


@pytest.fixture
def measured(run: Run) -> Measured:
    """The report of `openbook eval` with these arguments, from the JSON that it writes."""

    def measured(*arguments: object) -> dict[str, Any]:
        ended = run("eval", *arguments, "--json", "report.json")
        assert ended.code == 0, ended.err
        found: dict[str, Any] = json.loads(Path("report.json").read_text())
        return found

    return measured
