"""A build and an update that are killed, and the same command after it."""

from pathlib import Path
from typing import Any

import pytest

from openbook.storage.index_store import IndexStore
from tests.fixtures.killing import written_by
from tests.openbook.indexing.building.killing import CHANGED, N_PASSAGES, PLACES, SHARD

# what is in the folder in the end
LEFT = {"build": ["v"], "update": ["v", "w"], "update of a graph": ["v", "w"]}


def kill(folder: Path, encoder: Path, kills: int, *works: str) -> dict[str, dict[str, dict[str, Any]]]:
    """What came of each kill of each work: no version is ever half there, and the next attempt ends with the same
    bytes."""
    found: dict[str, Any] = written_by("tests.openbook.indexing.building.killing", folder, encoder, kills, *works)
    for work, of_work in found.items():
        expected = of_work["whole"]
        whole = of_work["before"] | expected["files"]
        for place, again in of_work["kills"].items():
            assert again["after_kill"].items() <= whole.items(), (work, place, again)
            assert again["files"] == expected["files"], (work, place, again)
            assert again["was_there"] or again["articles"] == expected["articles"], (work, place)
            assert again["left"] == LEFT[work], (work, place)
    return {work: of_work["kills"] for work, of_work in found.items()}


def test_a_build_killed_while_it_embeds_is_finished_by_the_next_with_the_same_bytes(
    tmp_path: Path, tiny_encoder: Path
) -> None:
    again = kill(tmp_path, tiny_encoder, 1, "build")["build"]["embed"]
    assert again["killed"]
    assert again["embed_before"] > dict(PLACES["build"])["embed"] - SHARD
    assert again["read_before"] == N_PASSAGES


@pytest.mark.slow
def test_a_build_killed_anywhere_is_finished_by_the_next_with_the_same_bytes(
    tmp_path: Path, tiny_encoder: Path
) -> None:
    kills = kill(tmp_path, tiny_encoder, 0, "build")["build"]
    assert not any(again["was_there"] for again in kills.values())
    assert [place for place, again in kills.items() if again["killed"]] == [place for place, _ in PLACES["build"]]
    # of what was done when the process ended, less than a shard was done again
    assert kills["read"]["read_before"] > dict(PLACES["build"])["read"] - SHARD
    assert kills["embed"]["embed_before"] > dict(PLACES["build"])["embed"] - SHARD
    assert kills["embed"]["read_before"] == N_PASSAGES
    for late in ("add", "checksum", "cleared"):
        assert kills[late]["embed_before"] == N_PASSAGES, late


@pytest.mark.slow
@pytest.mark.parametrize("work", ["update", "update of a graph"])
def test_an_update_killed_anywhere_is_finished_by_the_next_with_the_same_bytes(
    work: str, tmp_path: Path, tiny_encoder: Path
) -> None:
    kills = kill(tmp_path, tiny_encoder, 0, work)[work]
    assert not any(again["was_there"] for again in kills.values())
    assert [place for place, again in kills.items() if again["killed"]] == [place for place, _ in PLACES[work]]
    n_passages = N_PASSAGES - 1
    assert kills["read"]["read_before"] > dict(PLACES[work])["read"] - SHARD
    if work == "update":
        # the last of the changed passages are embedded when it is killed: their shards need not be embedded again
        assert n_passages - SHARD > kills["embed"]["embed_before"] > n_passages - len(CHANGED[work])
    else:
        # the graph of the base was carried over: with what came and went
        lineage = IndexStore(tmp_path / work / "whole").info("w").lineage
        assert lineage is not None
        assert lineage.relinked == 2 * len(CHANGED[work]) + 1
    for late in ("add", "checksum", "cleared"):
        assert kills[late]["embed_before"] >= n_passages, late


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("work", ["build", "update", "update of a graph"])
def test_what_is_killed_before_any_line_is_finished_by_the_next(work: str, tmp_path: Path, tiny_encoder: Path) -> None:
    kills = kill(tmp_path, tiny_encoder, 200, work)[work]
    assert sum(again["killed"] for again in kills.values()) > 190
    # the lines behind the last removal are few
    assert sum(again["was_there"] for again in kills.values()) < 10
