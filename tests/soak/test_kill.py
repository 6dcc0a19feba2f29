"""kill -9 before every line of a publish, a pull or a swap: what is left is one whole book or the other."""

from pathlib import Path

import pytest

from tests.fixtures.killing import written_by
from tests.fixtures.summary import Summary
from tests.soak.killing import OPERATIONS
from tests.soak.killing_copies import OPERATIONS as COPIES


@pytest.mark.parametrize(
    ("kills", "operations"),
    [
        pytest.param(1, ["publish again", "guarded swap", "pull over a copy"], id="1 line"),
        pytest.param(0, [one for one in OPERATIONS if one not in COPIES], id="any line", marks=[pytest.mark.slow]),
        pytest.param(150, [*COPIES], id="150 lines of a store's", marks=[pytest.mark.slow]),
    ],
)
@pytest.mark.timeout(7200)
def test_a_killed_process_leaves_whole_versions_and_the_next_one_goes_on(
    kills: int, operations: list[str], tmp_path: Path, summary: Summary
) -> None:
    swept = written_by("tests.soak.killing", kills, tmp_path, *operations)
    for operation, found in swept.items():
        summary(
            f"kill -9 in {operation}: {found['killed']} kills over {found['lines']} lines, "
            f"{len(found['failures'])} failures, {found['seconds']:.0f} s"
        )
    assert {operation: found["failures"] for operation, found in swept.items() if found["failures"]} == {}
    assert list(swept) == operations
    # how many lines a thread takes to wake differs from run to run
    assert all(found["killed"] >= 0.9 * (kills or found["lines"]) for found in swept.values())
