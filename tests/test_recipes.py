"""The readers' recipes run from end to end, each stage in few steps over a tenth of the smallest of ours."""

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from openbook.rag.checkpoint import load_checkpoint, read_facts
from tests.fixtures.mixed_folder import write_mixed_folder
from tests.fixtures.readers import write_reader
from tests.places import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

QUESTIONS = ROOT / "tests/data/mixed_folder.jsonl"
BOOKS = ("restic", "actual", "stroom", "squad")
STAGES = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh")
FEW_STEPS = {f"STEPS_{name.upper()}": "2" for name in (*STAGES, "later")}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the cards name, with the questions of a folder in place of ours, and an index for each book."""
    data = tmp_path_factory.mktemp("data")
    lines = [json.loads(line) for line in QUESTIONS.read_text(encoding="utf-8").splitlines()]
    asked = [{**line, "title": line["source"], "context": line.get("evidence", "")} for line in lines]
    answered = [line for line in asked if line["answers"]]
    # each beside the place of another's answer
    silent = [
        {**line, "answers": [], "context": other["context"]}
        for line, other in pairwise(answered)
        if not any(answer.lower() in other["context"].lower() for answer in line["answers"])
    ]
    for stage in STAGES:
        _write(data / f"{stage}.jsonl", answered)
        _write(data / f"{stage}.silent.jsonl", silent)
    _write(data / "dev.jsonl", answered[:8])
    folder = write_mixed_folder(data / "folder")
    for book in BOOKS:
        _write(data / f"{book}.dev.jsonl", lines[::3])
        _run(sys.executable, "-m", "openbook", "index", "build", folder, "--name", book, "--indexes", data / "indexes")
    return data


@pytest.mark.parametrize("name", ["openbook-mini", "openbook-base"])
def test_a_recipe_makes_a_calibrated_reader_and_goes_on_where_it_was_stopped(
    name: str, data: Path, tmp_path: Path
) -> None:
    base = [write_reader(tmp_path / "mpnet", "mpnet")] if name == "openbook-base" else []
    recipe = ["sh", ROOT / "checkpoints" / name / "recipe.sh", data, *base, tmp_path / "work"]

    _run(*recipe)

    made = tmp_path / "work" / name
    facts = read_facts(made)
    assert facts.no_answer is not None
    assert facts.prior is not None
    load_checkpoint(made, dtype="int8")
    last = max((tmp_path / "work").glob("*/reader"), key=lambda one: one.stat().st_mtime).parent
    before = {one: one.stat().st_mtime_ns for one in (tmp_path / "work").glob("*/reader/*.safetensors")}
    assert last.name == name

    _run(*recipe)

    assert before == {one: one.stat().st_mtime_ns for one in (tmp_path / "work").glob("*/reader/*.safetensors")}


def _write(path: Path, lines: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def _run(*command: object) -> None:
    environment = {**os.environ, **FEW_STEPS, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    ended = subprocess.run([str(one) for one in command], env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
