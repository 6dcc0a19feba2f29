"""What every experiment is tried on: tests/fixtures/evaluation.py in real files."""

from pathlib import Path

import pytest

from openbook.rag.checkpoint import Checkpoint, load_checkpoint
from tests.fixtures.evaluation import PASSAGES, QUESTIONS, write_lines


@pytest.fixture
def checkpoint(checkpoint_folder: Path) -> Checkpoint:
    return load_checkpoint(checkpoint_folder)


@pytest.fixture
def question_file(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "questions.jsonl", QUESTIONS)


@pytest.fixture
def passage_file(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "passages.jsonl", PASSAGES)
