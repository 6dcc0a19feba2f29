"""kill -9 before every line of publish, of CURRENT and of a swap: what is left is one whole book or the other."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.summary import Summary
from tests.places import ROOT
from tests.soak.killing import OPERATIONS
from tests.soak.killing_copies import OPERATIONS as COPIES


def swept(module: str, tmp_path: Path, summary: Summary, *arguments: str) -> dict[str, dict[str, Any]]:
    """What a sweep of `module` found of each operation, none of which left anything wrong."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    kills, *operations = arguments
    command = [sys.executable, "-m", f"tests.soak.{module}", kills, str(tmp_path), *operations]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    of_each: dict[str, dict[str, Any]] = json.loads(ended.stdout)
    for operation, found in of_each.items():
        summary(
            f"kill -9 in {operation} ({module}): {found['killed']} kills over {found['lines']} lines, "
            f"{len(found['failures'])} failures, {found['seconds']:.0f} s"
        )
    assert {operation: found["failures"] for operation, found in of_each.items() if found["failures"]} == {}
    return of_each


@pytest.mark.parametrize(
    ("kills", "operations"),
    [
        pytest.param(1, ["publish again", "guarded swap"], id="1 line"),
        pytest.param(0, [], id="any line", marks=[pytest.mark.slow]),
    ],
)
@pytest.mark.timeout(7200)
def test_a_killed_process_leaves_whole_versions_and_the_next_one_serves(
    kills: int, operations: list[str], tmp_path: Path, summary: Summary
) -> None:
    of_each = swept("killing", tmp_path, summary, str(kills), *operations)
    assert list(of_each) == (operations or list(OPERATIONS))
    # how many lines a thread takes to wake differs from run to run
    assert all(found["killed"] >= (kills or 0.95 * found["lines"]) for found in of_each.values())


@pytest.mark.parametrize(
    ("kills", "operations"),
    [
        pytest.param(1, ["pull over a copy"], id="1 line of a pull"),
        pytest.param(150, [], id="150 lines", marks=[pytest.mark.slow]),
    ],
)
@pytest.mark.timeout(7200)
def test_a_killed_pull_push_or_swap_of_a_store_leaves_nothing_half(
    kills: int, operations: list[str], tmp_path: Path, summary: Summary
) -> None:
    of_each = swept("killing_copies", tmp_path, summary, str(kills), *operations)
    assert list(of_each) == (operations or list(COPIES))
    assert all(found["killed"] >= 0.9 * kills for found in of_each.values())
