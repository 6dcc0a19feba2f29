"""The use cases over a real tiny checkpoint and real tiny indexes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from openbook.application.admission import WorkPool
from openbook.application.answer_question import AnswerQuestion
from openbook.application.live_index import LiveIndex
from openbook.application.swap_index import SwapIndex
from openbook.application.telemetry import Telemetry
from openbook.entities import IndexVersion
from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.engine import RagEngine
from openbook.storage.history import SwapHistory
from openbook.storage.index_store import IndexStore
from tests.fixtures.databases import listing
from tests.fixtures.replicas import Replica, Start

OLD = IndexVersion("tiny-2016", 0, "2016-12-21")
NEW = IndexVersion("tiny-2018", 1, "2018-12-20")


def samples(telemetry: Telemetry) -> dict[str, float]:
    """The value of each sample by its name and labels."""
    lines = telemetry.render().decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


@pytest.fixture(scope="session")
def engine(tiny_checkpoint: Path) -> RagEngine:
    return RagEngine(load_checkpoint(tiny_checkpoint))


@pytest.fixture
def indexes_folder(files_or_milvus: Path) -> Path:
    return files_or_milvus


@pytest.fixture
def start(indexes_folder: Path) -> Iterator[Start]:
    """Start a replica on the folder, as `Replica.start` does."""
    started: list[Replica] = []

    def start_one(version: str | None = None, **changed: object) -> Replica:
        name = f"replica-{len(started)}"
        given = {"name": name, "settings": listing(indexes_folder)} | changed
        started.append(Replica.start(indexes_folder, version, **given))  # type: ignore[arg-type]
        return started[-1]

    yield start_one
    for replica in started:
        replica.close(within_s=0)


@pytest.fixture
def residents() -> int:
    return 1


@pytest.fixture
def replica(start: Start, residents: int) -> Replica:
    return start(residents=residents)


@pytest.fixture
def store(replica: Replica) -> IndexStore:
    return replica.store


@pytest.fixture
def live(replica: Replica) -> LiveIndex:
    return replica.live


@pytest.fixture
def swap_index(replica: Replica) -> SwapIndex:
    return replica.swap_index


@pytest.fixture
def history(replica: Replica) -> SwapHistory:
    return replica.history


@pytest.fixture
def telemetry(replica: Replica) -> Telemetry:
    return replica.telemetry


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
