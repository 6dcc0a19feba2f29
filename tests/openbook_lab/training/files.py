"""Question files of a test, and a training that is refused."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from openbook.errors import OpenbookError
from openbook_lab.datasets.questions import Question
from openbook_lab.training.run import TrainingConfig, run


def lines(path: Path, records: Iterable[object]) -> Path:
    """A file of JSON lines."""
    path.write_text("\n".join(json.dumps(record) for record in records))
    return path


def question_lines(path: Path, questions: Iterable[Question]) -> Path:
    return lines(
        path, ({"question": q.text, "answers": q.answers, "title": q.title, "context": q.context} for q in questions)
    )


def refused(config: TrainingConfig, reason: str) -> None:
    """The training is refused before its work folder knows it."""
    with pytest.raises(OpenbookError, match=reason):
        run(config, lambda _: None)
    assert not (config.work / "recipe.json").exists()
