"""A build that is killed, and the one after it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.openbook.indexing.building.killing import N_PASSAGES, PLACES, SHARD
from tests.places import ROOT


def killed(folder: Path, encoder: Path, kills: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.openbook.indexing.building.killing", str(folder), str(encoder), str(kills)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    content: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return content


def check(found: dict[str, Any]) -> None:
    for place, again in found["kills"].items():
        assert again.get("files") == found["whole"]["files"], (place, again)
        assert again.get("was_there") or again["articles"] == found["whole"]["articles"], place
        assert again["left"] == ["v"], place


def test_a_build_killed_anywhere_is_finished_by_the_next_with_the_same_bytes(
    tmp_path: Path, tiny_encoder: Path
) -> None:
    found = killed(tmp_path, tiny_encoder, 0)
    check(found)
    kills = found["kills"]
    assert not any(again.get("was_there") for again in kills.values())
    assert [place for place, again in kills.items() if again["killed"]] == [place for place, _ in PLACES]
    # of what was done when the process ended, less than a shard was done again
    assert kills["read"]["read_before"] > dict(PLACES)["read"] - SHARD
    assert kills["embed"]["embedded_before"] > dict(PLACES)["embed"] - SHARD
    assert kills["embed"]["read_before"] == N_PASSAGES
    for late in ("add", "checksum", "cleared"):
        assert kills[late]["embedded_before"] == N_PASSAGES, late


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_build_killed_before_any_line_is_finished_by_the_next(tmp_path: Path, tiny_encoder: Path) -> None:
    found = killed(tmp_path, tiny_encoder, 200)
    check(found)
    assert sum(again["killed"] for again in found["kills"].values()) > 190
    # the lines behind the last removal are few
    assert sum(again.get("was_there", False) for again in found["kills"].values()) < 10
