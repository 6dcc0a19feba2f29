"""The use cases over a real tiny checkpoint and real tiny indexes."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from openbook.application.admission import WorkPool
from openbook.application.answer_question import AnswerQuestion
from openbook.application.live_index import LiveIndex
from openbook.application.swap_index import SwapIndex
from openbook.application.telemetry import Telemetry
from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.engine import RagEngine
from openbook.storage.index_store import IndexStore


@pytest.fixture(scope="session")
def engine(tiny_checkpoint: Path) -> RagEngine:
    return RagEngine(load_checkpoint(tiny_checkpoint))


@pytest.fixture
def store(indexes_folder: Path) -> IndexStore:
    return IndexStore(indexes_folder)


@pytest.fixture
def live(store: IndexStore) -> Iterator[LiveIndex]:
    live = LiveIndex(store.open("tiny-2016"))
    yield live
    live.close()


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry()


@pytest.fixture
def pool(telemetry: Telemetry) -> Iterator[WorkPool]:
    """Two threads, two places to wait."""
    pool = WorkPool(workers=2, max_queue=2, observe=telemetry.observe_batch)
    yield pool
    pool.stop()


@pytest.fixture
def answer_question(
    engine: RagEngine, live: LiveIndex, store: IndexStore, pool: WorkPool, telemetry: Telemetry
) -> AnswerQuestion:
    return AnswerQuestion(engine, live, store, pool, telemetry, max_batch=8)


@pytest.fixture
def swap_index(engine: RagEngine, live: LiveIndex, store: IndexStore, telemetry: Telemetry) -> Iterator[SwapIndex]:
    swap_index = SwapIndex(
        store,
        live,
        telemetry,
        encoder_fingerprint=engine.encoder_fingerprint,
        dimension=engine.dimension,
        free_memory=lambda: sys.maxsize,
    )
    yield swap_index
    swap_index.close()
