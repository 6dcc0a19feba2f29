"""Several processes, and a cluster, make the bytes that one process makes. Slow: each process loads torch."""

from pathlib import Path

import pytest

from openbook.errors import CheckpointInvalid
from openbook.indexing.building import reading
from openbook.indexing.building.embedding import load_same
from openbook.indexing.index_builder import BuildOptions, build_index
from openbook.indexing.passage_encoder import PassageEncoder
from openbook.storage.index_store import IndexStore
from tests.openbook.indexing.building.test_going_on import Pages


def test_an_encoder_that_is_another_by_now_is_refused(encoder: PassageEncoder) -> None:
    assert load_same(encoder.source, encoder.fingerprint).fingerprint == encoder.fingerprint
    with pytest.raises(CheckpointInvalid, match="its fingerprint is"):
        load_same(encoder.source, "another")


@pytest.mark.slow
def test_two_workers_make_the_same_bytes_as_one_process(
    tmp_path: Path, encoder: PassageEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SHARD_PASSAGES", 200)
    store = IndexStore(tmp_path)
    one, two = (
        build_index(store, f"by-{workers}", Pages(200), encoder, BuildOptions(workers=workers)).info
        for workers in (1, 2)
    )
    assert one.files == two.files


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_two_ray_workers_make_the_same_bytes_as_one_process(
    tmp_path: Path, encoder: PassageEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="needs the extra ray")
    from openbook.indexing.building.ray_engine import ray_engine

    monkeypatch.setattr(reading, "SHARD_PASSAGES", 200)
    store = IndexStore(tmp_path)
    one = build_index(store, "one", Pages(200), encoder, BuildOptions(workers=1)).info
    on_cluster = build_index(store, "ray", Pages(200), encoder, BuildOptions(engine=ray_engine(None, 2))).info
    assert one.files == on_cluster.files
