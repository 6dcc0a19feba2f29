"""A publishing that kills itself: `python -m tests.openbook.indexing.publishing_killed FOLDER FACTORY STAGE NUMBER`.

It ends at the NUMBER-th report of STAGE, as by kill -9; with NUMBER 0 it goes to its end.
"""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from openbook.entities import IndexInfo, Passage
from openbook.indexing import faiss_building
from openbook.indexing.index_spec import choose_index
from openbook.storage.index_store import IndexStore
from tests.fixtures.publishing import publish

N, DIMENSION = 1500, 16
# Small, so that there are several of each.
SLICE_ROWS = 250


def vectors() -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal((N, DIMENSION)).astype(np.float32)


def passages() -> Iterator[Passage]:
    for row in range(N):
        yield Passage(str(row), f"title {row}", f"text {row}")


def publish_reported(
    folder: Path, factory: str, stage: str = "", number: int = 0
) -> tuple[IndexInfo, list[tuple[int, str]]]:
    """What was published, and what was reported of it."""
    faiss_building.GRAPH_SLICE_ROWS = faiss_building.SLICE_ROWS = SLICE_ROWS
    faiss_building.SAVE_EVERY_S = 0.0
    told: list[tuple[int, str]] = []

    def report(done: int, total: int | None, what: str) -> None:
        told.append((done, what))
        if what == stage and sum(said == what for _, said in told) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    info = publish(
        IndexStore(folder),
        "v",
        vectors=vectors(),
        passages=passages(),
        spec=choose_index(factory, n_passages=N, dimension=DIMENSION, memory_bytes=None),
        encoder_name="e",
        encoder_fingerprint="f",
        work=folder / ".work-v",
        report=report,
        n_threads=1,
    )
    return info, told


if __name__ == "__main__":
    publish_reported(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
