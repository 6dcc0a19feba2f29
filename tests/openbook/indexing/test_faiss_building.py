"""A build that is stopped goes on, and what comes out is what would have come out."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openbook.indexing import faiss_building
from openbook.indexing.faiss_building import TRAINED, build_index, write_index
from openbook.indexing.index_spec import choose_index
from openbook.storage.index_store import IndexStore
from tests.openbook.indexing.publishing_killed import DIMENSION, SLICE_ROWS, N, publish_reported, vectors
from tests.places import ROOT

FACTORIES = ["HNSW8", "RR16,IVF16_HNSW4,SQ8", "HNSW8,SQ8", "OPQ2_8,IVF8,PQ2x4"]


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faiss_building, "SLICE_ROWS", SLICE_ROWS)
    monkeypatch.setattr(faiss_building, "GRAPH_SLICE_ROWS", SLICE_ROWS)
    monkeypatch.setattr(faiss_building, "SAVE_EVERY_S", 0.0)


class StoppedError(Exception):
    pass


@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize("factory", FACTORIES)
def test_a_build_that_is_stopped_at_every_step_ends_with_the_same_bytes(tmp_path: Path, factory: str) -> None:
    spec = choose_index(factory, n_passages=N, dimension=DIMENSION, memory_bytes=None)
    write_index(tmp_path / "whole", build_index(vectors(), spec, n_threads=1))
    reached: list[tuple[str, int]] = []

    def stop(done: int, total: int | None, what: str) -> None:
        if (what, done) not in reached and done:
            reached.append((what, done))
            raise StoppedError

    kept: dict[str, Any] = {"work": tmp_path / "work", "n_threads": 1}
    for _ in range(100):
        with suppress(StoppedError):
            write_index(tmp_path / "stopped", build_index(vectors(), spec, report=stop, **kept))
            break
    assert (tmp_path / "stopped").read_bytes() == (tmp_path / "whole").read_bytes()
    # each step was made once and never again
    assert [done for what, done in reached if what == "add"] == list(range(SLICE_ROWS, N + 1, SLICE_ROWS))
    assert reached == sorted(reached, key=lambda step: (step[0] != "train", step[1]))


@pytest.mark.parametrize("another", ["vectors", "spec", "damaged"])
def test_what_another_build_left_is_not_taken(tmp_path: Path, another: str) -> None:
    def build(path: Path, given: np.ndarray, factory: str, work: Path | None) -> bytes:
        spec = choose_index(factory, n_passages=N, dimension=DIMENSION, memory_bytes=None)
        write_index(path, build_index(given, spec, work=work, n_threads=1))
        return path.read_bytes()

    first = (vectors()[::-1].copy() if another == "vectors" else vectors(), "IVF8,SQ8")
    build(tmp_path / "first", *first, tmp_path / "work")
    assert (tmp_path / "work" / TRAINED).is_file()
    if another == "damaged":
        for path in (tmp_path / "work").glob("*.faiss"):
            path.write_bytes(path.read_bytes()[:100])
    factory = "IVF16,SQ8" if another == "spec" else "IVF8,SQ8"
    expected = build(tmp_path / "expected", vectors(), factory, None)
    assert build(tmp_path / "second", vectors(), factory, tmp_path / "work") == expected


# before the training and after it, a slice of the filling, the last look at what was written
KILLS = [("train", 1), ("train", 2), ("add", 3), ("vectors", 1), ("checksum", 2)]


def kill(folder: Path, factory: str, stage: str, number: int) -> int:
    module = "tests.openbook.indexing.publishing_killed"
    command = [sys.executable, "-m", module, str(folder), factory, stage, str(number)]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True).returncode


def check_goes_on(folder: Path, factory: str, kills: list[tuple[str, int]]) -> None:
    whole, _ = publish_reported(folder / "whole", factory)
    for stage, number in kills:
        assert kill(folder / "killed", factory, stage, number) == -signal.SIGKILL, (stage, number)
        assert IndexStore(folder / "killed").versions() == ()
    info, told = publish_reported(folder / "killed", factory)
    assert info.files == whole.files
    if kills[-1][0] == "checksum":
        # nothing is trained a second time, and at most one slice is filled again
        assert [done for done, what in told if what == "train"] == []
        assert min(done for done, what in told if what == "add") >= N - SLICE_ROWS
    IndexStore(folder / "killed").open("v").warm()
    assert [path.name for path in (folder / "killed").iterdir()] == ["v"]


@pytest.mark.usefixtures("small_slices")
def test_a_publishing_that_is_killed_goes_on(tmp_path: Path) -> None:
    check_goes_on(tmp_path, "RR16,IVF16,SQ8", [("train", 2), ("add", 3), ("checksum", 2)])


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize("factory", ["HNSW8", "OPQ8_16,IVF16_HNSW4,PQ8", "HNSW8,SQ8"])
def test_a_publishing_of_any_kind_that_is_killed_anywhere_goes_on(tmp_path: Path, factory: str) -> None:
    stages = {"HNSW8": [("add", 2), ("add", 3), ("checksum", 1)]}
    stages["HNSW8,SQ8"] = [("vectors", 1), ("train", 2), *stages["HNSW8"]]
    check_goes_on(tmp_path, factory, stages.get(factory, [*KILLS, ("checksum", 1)]))
