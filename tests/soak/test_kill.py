"""kill -9 before every line of publish, of CURRENT and of a swap: what is left is one whole book or the other."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.places import ROOT
from tests.soak.conftest import Summary
from tests.soak.killing import OPERATIONS

# Kills that the short form spreads over an operation.
SHORT_KILLS = 12


def sweep(operation: str, kills: int, folder: Path, summary: Summary) -> dict[str, Any]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.soak.killing", operation, str(kills), str(folder)]
    started = time.monotonic()
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    summary(
        f"kill -9 in {operation}: {found['killed']} kills over {found['lines']} lines, "
        f"{len(found['failures'])} failures, {time.monotonic() - started:.0f} s"
    )
    return found


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_process_killed_on_its_way_leaves_whole_versions_and_the_next_one_serves(
    operation: str, tmp_path: Path, summary: Summary
) -> None:
    found = sweep(operation, SHORT_KILLS, tmp_path, summary)
    assert found["failures"] == []
    assert found["killed"] >= SHORT_KILLS


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_process_killed_before_any_line_leaves_whole_versions_and_the_next_one_serves(
    operation: str, tmp_path: Path, summary: Summary
) -> None:
    found = sweep(operation, 0, tmp_path, summary)
    assert found["failures"] == []
    # how many lines a thread takes to wake differs from run to run
    assert found["killed"] >= 0.95 * found["lines"]
