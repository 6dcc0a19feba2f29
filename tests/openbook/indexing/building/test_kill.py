"""A build that is killed, and the one after it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.openbook.indexing.building.killing import N_PASSAGES, PLACES, SHARD
from tests.places import ROOT


def kill(folder: Path, encoder: Path, kills: int) -> dict[str, dict[str, Any]]:
    """What came of each kill, which the next build finished with the same bytes."""
    command = [sys.executable, "-m", "tests.openbook.indexing.building.killing", str(folder), str(encoder), str(kills)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    for place, again in found["kills"].items():
        assert again["files"] == found["whole"]["files"], (place, again)
        assert again["was_there"] or again["articles"] == found["whole"]["articles"], place
        assert again["left"] == ["v"], place
    return dict(found["kills"])


def test_a_build_killed_anywhere_is_finished_by_the_next_with_the_same_bytes(
    tmp_path: Path, tiny_encoder: Path
) -> None:
    kills = kill(tmp_path, tiny_encoder, 0)
    assert not any(again["was_there"] for again in kills.values())
    assert [place for place, again in kills.items() if again["killed"]] == [place for place, _ in PLACES]
    # of what was done when the process ended, less than a shard was done again
    assert kills["read"]["read_before"] > dict(PLACES)["read"] - SHARD
    assert kills["embed"]["embed_before"] > dict(PLACES)["embed"] - SHARD
    assert kills["embed"]["read_before"] == N_PASSAGES
    for late in ("add", "checksum", "cleared"):
        assert kills[late]["embed_before"] == N_PASSAGES, late


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_build_killed_before_any_line_is_finished_by_the_next(tmp_path: Path, tiny_encoder: Path) -> None:
    kills = kill(tmp_path, tiny_encoder, 200)
    assert sum(again["killed"] for again in kills.values()) > 190
    # the lines behind the last removal are few
    assert sum(again["was_there"] for again in kills.values()) < 10
