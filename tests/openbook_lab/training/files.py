"""Question files of a test, a training that is refused, and what a training logged."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from openbook.errors import OpenbookError
from openbook_lab.datasets.questions import Question
from openbook_lab.training.run import TrainingConfig, run


def lines(path: Path, records: Iterable[object]) -> Path:
    """A file of JSON lines."""
    path.write_text("\n".join(json.dumps(_record(record)) for record in records))
    return path


def _record(given: object) -> object:
    if not isinstance(given, Question):
        return given
    return {"question": given.text, "answers": given.answers, "title": given.title, "context": given.context}


def with_files(config: TrainingConfig, **records: Iterable[object]) -> TrainingConfig:
    """The recipe with a file of these records for each option."""
    files = {name: (lines(config.work.with_name(f"{name}.jsonl"), given),) for name, given in records.items()}
    return replace(config, **files)  # type: ignore[arg-type]


def refused(config: TrainingConfig, reason: str) -> None:
    """The training is refused before its work folder knows it."""
    with pytest.raises(OpenbookError, match=reason):
        run(config, lambda _: None)
    assert not (config.work / "recipe.json").exists()


def said_by(config: TrainingConfig) -> list[str]:
    """Train, and return the lines of the report."""
    said: list[str] = []
    assert run(config, said.append) == config.output
    return said


def logged(config: TrainingConfig, stage: str) -> list[dict[str, Any]]:
    entries = [json.loads(line) for line in (config.work / "log.jsonl").read_text().splitlines()]
    return [entry for entry in entries if entry["stage"] == stage]
