"""Several processes, and a cluster, make the bytes that one process makes. Slow: each process loads torch."""

import multiprocessing
import os
import signal
from dataclasses import replace

import pytest

from openbook.errors import CheckpointInvalid, SettingInvalid
from openbook.indexing.building import reading
from openbook.indexing.index_builder import BuildOptions, build_index
from openbook.indexing.passage_encoder import PassageEncoder
from openbook.plugins.ray.engine import RayCluster
from openbook.storage.index_store import IndexStore
from tests.openbook.indexing.building.test_going_on import Pages
from tests.openbook.indexing.builds import Seen


def test_an_encoder_that_is_another_by_now_is_refused(encoder: PassageEncoder) -> None:
    assert encoder.source.load().fingerprint == encoder.fingerprint
    with pytest.raises(CheckpointInvalid, match="its fingerprint is"):
        replace(encoder.source, fingerprint="another").load()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", ["workers", "ray"])
def test_two_workers_make_the_same_bytes_as_one_process(
    store: IndexStore, encoder: PassageEncoder, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    options = BuildOptions(workers=2)
    if engine == "ray":
        pytest.importorskip("ray", reason="needs the extra ray")
        options = BuildOptions(engine=RayCluster(encoder, None, 2))
    monkeypatch.setattr(reading, "SHARD_PASSAGES", 200)
    one = build_index(store, "one", Pages(200), encoder, BuildOptions(workers=1)).info
    assert build_index(store, "two", Pages(200), encoder, options).info.files == one.files


@pytest.mark.slow
def test_a_worker_that_the_system_ends_is_an_error_with_its_setting(store: IndexStore, encoder: PassageEncoder) -> None:
    def kill() -> None:
        os.kill(multiprocessing.active_children()[0].pid or 0, signal.SIGKILL)

    with pytest.raises(SettingInvalid, match="--workers: the system ended a worker"):
        build_index(store, "v", Pages(200), encoder, BuildOptions(workers=2), report=Seen("embed", kill, at=1))
    assert multiprocessing.active_children() == []
