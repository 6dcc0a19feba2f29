import errno
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from openbook.application.live_index import LiveIndex
from openbook.application.swap_index import SwapIndex
from openbook.application.telemetry import Telemetry
from openbook.entities import IndexVersion, Passage
from openbook.errors import (
    CanaryFailed,
    DimensionIncompatible,
    IndexChecksumWrong,
    IndexFileMissing,
    IndexFileSizeWrong,
    IndexIncompatible,
    IndexTooLarge,
    InvalidVersionName,
    ManifestInvalid,
    NoLiveIndex,
    OpenbookError,
    SwapInProgress,
    UnknownIndex,
)
from openbook.rag.engine import RagEngine
from openbook.storage.index_store import IndexStore
from tests.fixtures.indexes import publish_tiny, tiny_passages, tiny_vectors
from tests.openbook.storage.test_snapshot import cut_links

OLD = IndexVersion("tiny-2016", 0, "2016-12-21")
NEW = IndexVersion("tiny-2018", 1, "2018-12-20")
TIMEOUT = 30


def swaps_counted(telemetry: Telemetry) -> dict[str, float]:
    lines = telemetry.render().decode().splitlines()
    prefix = 'openbook_swaps_total{outcome="'
    return {
        line.removeprefix(prefix).partition('"')[0]: float(line.split()[-1])
        for line in lines
        if line.startswith(prefix)
    }


def test_a_swap_makes_the_new_version_live_and_current(
    swap_index: SwapIndex, live: LiveIndex, store: IndexStore, telemetry: Telemetry
) -> None:
    report = swap_index.begin("tiny-2018").result(TIMEOUT)
    assert (report.version, report.previous, report.generation, report.durable) == ("tiny-2018", "tiny-2016", 1, True)
    assert list(report.seconds) == ["verify", "open", "warm", "flip", "current", "total"]
    assert report.seconds["total"] == pytest.approx(sum(report.seconds.values()) / 2)
    assert live.now() == NEW
    assert store.current() == "tiny-2018"
    assert [resident.index for resident in live.residents()] == [NEW]
    assert swaps_counted(telemetry) == {"ok": 1}


def test_a_swap_to_the_version_that_is_live_opens_it_again(swap_index: SwapIndex, live: LiveIndex) -> None:
    assert swap_index.begin("tiny-2016").result(TIMEOUT).generation == 1
    assert live.now() == IndexVersion("tiny-2016", 1, "2016-12-21")


def break_size(folder: Path) -> None:
    (folder / "index.faiss").write_bytes((folder / "index.faiss").read_bytes()[:-1])


def break_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text("{", encoding="utf-8")


def remove_passages(folder: Path) -> None:
    (folder / "passages.arrow").unlink()


@pytest.mark.parametrize(
    ("damage", "error"),
    [(break_size, IndexFileSizeWrong), (break_manifest, ManifestInvalid), (remove_passages, IndexFileMissing)],
)
@pytest.mark.parametrize("policy", ["availability", "resource"])
def test_a_swap_to_a_broken_version_changes_nothing(
    swap_index: SwapIndex,
    live: LiveIndex,
    store: IndexStore,
    telemetry: Telemetry,
    damage: object,
    error: type[OpenbookError],
    policy: str,
) -> None:
    damage(store.folder / "tiny-2018")  # type: ignore[operator]
    with pytest.raises(error):
        swap_index.begin("tiny-2018", policy=policy).result(TIMEOUT)  # type: ignore[arg-type]
    assert live.now() == OLD
    assert [resident.index for resident in live.residents()] == [OLD]
    assert store.current() == "tiny-2016"
    assert swaps_counted(telemetry) == {"index_corrupt": 1}


@pytest.mark.parametrize(("version", "error"), [("wiki-1999", UnknownIndex), ("../tiny-2018", InvalidVersionName)])
def test_a_swap_to_what_is_not_there_changes_nothing(
    swap_index: SwapIndex, live: LiveIndex, telemetry: Telemetry, version: str, error: type[OpenbookError]
) -> None:
    with pytest.raises(error):
        swap_index.begin(version).result(TIMEOUT)
    assert live.now() == OLD
    assert swaps_counted(telemetry) == {"unknown_index": 1}


def test_a_swap_to_another_encoders_index_changes_nothing(
    swap_index: SwapIndex, live: LiveIndex, store: IndexStore, telemetry: Telemetry
) -> None:
    publish_tiny(store, "tiny-2018", encoder_fingerprint="another", replace=True)
    with pytest.raises(IndexIncompatible):
        swap_index.begin("tiny-2018").result(TIMEOUT)
    vectors = tiny_vectors(tiny_passages("tiny-2018"), dimension=8)
    publish_tiny(store, "tiny-2018", vectors=vectors, replace=True)
    with pytest.raises(DimensionIncompatible):
        swap_index.begin("tiny-2018").result(TIMEOUT)
    assert live.now() == OLD
    assert swaps_counted(telemetry) == {"index_incompatible": 2}


def test_a_checksum_finds_what_sizes_do_not_show(swap_index: SwapIndex, live: LiveIndex, store: IndexStore) -> None:
    passages = store.folder / "tiny-2018" / "passages.arrow"
    passages.write_bytes(passages.read_bytes().replace(b"nepal", b"chile"))
    with pytest.raises(IndexChecksumWrong):
        swap_index.begin("tiny-2018", verify="checksum").result(TIMEOUT)
    assert live.now() == OLD


@pytest.mark.parametrize("policy", ["availability", "resource"])
def test_an_index_that_does_not_find_its_own_passages_is_not_served(
    swap_index: SwapIndex, live: LiveIndex, store: IndexStore, policy: str
) -> None:
    # enough vectors that a walk without links misses nearly all of them
    vectors = np.random.default_rng(0).standard_normal((300, 32)).astype(np.float32)
    passages = [Passage(str(row), "title", "text") for row in range(300)]
    publish_tiny(store, "tiny-2018", vectors=vectors, passages=passages, index_type="hnsw", replace=True)
    cut_links(store.file("tiny-2018", "index.faiss"))
    with pytest.raises(CanaryFailed):
        swap_index.begin("tiny-2018", policy=policy).result(TIMEOUT)  # type: ignore[arg-type]
    assert live.now() == OLD
    assert [resident.index for resident in live.residents()] == [OLD]
    with live.lease() as lease:
        assert lease.snapshot.passages([0])[0].title == "The long river"
    assert store.current() == "tiny-2016"


def test_one_swap_at_a_time(swap_index: SwapIndex, live: LiveIndex) -> None:
    with live.lease():
        first = swap_index.begin("tiny-2018", policy="resource")
        with pytest.raises(SwapInProgress) as raised:
            swap_index.begin("tiny-2016")
        assert raised.value.data == {"version": "tiny-2018"}
        assert not first.done()
    assert first.result(TIMEOUT).generation == 1
    assert swap_index.begin("tiny-2016").result(TIMEOUT).generation == 2


def test_policy_resource_lets_the_old_index_go_before_it_reads_the_new_one(
    swap_index: SwapIndex, live: LiveIndex
) -> None:
    with live.lease() as lease:
        swap = swap_index.begin("tiny-2018", policy="resource")
        while live.now() is not None:
            time.sleep(0.001)
        with pytest.raises(NoLiveIndex, match="being replaced by 'tiny-2018'"), live.lease():
            pass
        time.sleep(0.1)
        # it waits for the last reader
        assert live.now() is None
        assert lease.snapshot.passages([0])
    report = swap.result(TIMEOUT)
    assert list(report.seconds) == ["verify", "open", "drain", "warm", "flip", "current", "total"]
    assert live.now() == NEW


def test_two_indexes_that_do_not_fit_are_refused_unless_the_old_one_goes_first(
    engine: RagEngine, live: LiveIndex, store: IndexStore, telemetry: Telemetry
) -> None:
    needed = sum(file.bytes for file in store.info("tiny-2018").files.values())
    [old] = live.residents()
    # pages of mapped files count as free; those of the live index are needed all the same
    free = [old.bytes + needed - 1]
    swap_index = SwapIndex(
        store,
        live,
        telemetry,
        encoder_fingerprint=engine.encoder_fingerprint,
        dimension=engine.dimension,
        free_memory=lambda: free[0],
    )
    with pytest.raises(IndexTooLarge) as raised:
        swap_index.begin("tiny-2018").result(TIMEOUT)
    assert raised.value.data == {"version": "tiny-2018", "needed": needed, "available": needed - 1}
    assert live.now() == OLD
    assert swap_index.begin("tiny-2018", policy="resource").result(TIMEOUT).generation == 1
    free[0] = sys.maxsize
    assert swap_index.begin("tiny-2016").result(TIMEOUT).generation == 2
    swap_index.close()
    assert swaps_counted(telemetry) == {"index_too_large": 1, "ok": 2}


def test_a_current_that_cannot_be_written_does_not_undo_the_swap_and_is_reported(
    swap_index: SwapIndex,
    live: LiveIndex,
    store: IndexStore,
    telemetry: Telemetry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full_disk(self: IndexStore, version: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(IndexStore, "set_current", full_disk)
    report = swap_index.begin("tiny-2018").result(TIMEOUT)
    assert (report.generation, report.durable) == (1, False)
    assert live.now() == NEW
    assert store.current() == "tiny-2016"
    assert swaps_counted(telemetry) == {"not_durable": 1}
    monkeypatch.undo()
    assert swap_index.begin("tiny-2018").result(TIMEOUT).durable


def test_closing_waits_for_the_swap_that_is_under_way(swap_index: SwapIndex, live: LiveIndex) -> None:
    swap = swap_index.begin("tiny-2018")
    swap_index.close()
    assert swap.done()
    assert live.now() == NEW


def test_an_index_that_could_not_be_served_anyway_is_not_read_to_its_end(
    swap_index: SwapIndex, store: IndexStore
) -> None:
    publish_tiny(store, "tiny-2018", encoder_fingerprint="another", replace=True)
    passages = store.file("tiny-2018", "passages.arrow")
    passages.write_bytes(passages.read_bytes().replace(b"nepal", b"chile"))
    with pytest.raises(IndexIncompatible):
        swap_index.begin("tiny-2018", verify="checksum").result(TIMEOUT)


def test_a_failure_that_cannot_be_recorded_does_not_block_the_next_swap(
    swap_index: SwapIndex, live: LiveIndex, telemetry: Telemetry
) -> None:
    broken = [True]

    def listener(*_: object) -> None:
        if broken.pop() if broken else False:
            raise RuntimeError("no collector")

    telemetry.on_swap(listener)
    with pytest.raises(RuntimeError, match="no collector"):
        swap_index.begin("tiny-2020").result(TIMEOUT)
    assert swap_index.begin("tiny-2018").result(TIMEOUT).version == "tiny-2018"
    assert live.now() == NEW
