"""Small versions whose every passage and vector says which text it is of. Imports neither torch nor pytest."""

import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from openbook.application.guarding import Guarding
from openbook.application.swap_progress import SwapPolicy
from openbook.entities import Passage
from openbook.storage.faiss_index import IndexType
from openbook.storage.index_store import IndexStore
from tests.fixtures.publishing import publish
from tests.fixtures.replicas import Replica

N_PASSAGES = 3
DIMENSION = 4
ENCODER = "encoder"


def book(content: str, n_passages: int = N_PASSAGES) -> list[Passage]:
    return [Passage(str(row), f"title {row}", f"{content} {row}") for row in range(n_passages)]


def book_vectors(content: str, n_passages: int = N_PASSAGES, dimension: int = DIMENSION) -> NDArray[np.float32]:
    """Of length 1, so that each passage is found by its own vector: (n_passages, dimension)."""
    random = np.random.default_rng(zlib.crc32(content.encode()))
    vectors = random.standard_normal((n_passages, dimension))  # (N, d)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)


def publish_book(
    store: IndexStore,
    version: str,
    content: str | None = None,
    *,
    n_passages: int = N_PASSAGES,
    index_type: IndexType = "flat",
    replace: bool = False,
) -> None:
    """A version of `content`, or of its own name."""
    publish(
        store,
        version,
        vectors=book_vectors(content or version, n_passages),
        passages=book(content or version, n_passages),
        index_type=index_type,
        encoder_name=ENCODER,
        encoder_fingerprint=ENCODER,
        replace=replace,
    )


def check_book(store: IndexStore, version: str, allowed: Sequence[str]) -> None:
    """The version is sound to the byte and wholly of one of the `allowed` contents; AssertionError if it is not."""
    store.verify(version)
    snapshot = store.open(version, encoder_fingerprint=ENCODER, dimension=DIMENSION)
    try:
        snapshot.warm()
        rows = range(len(snapshot))
        passages, vectors = list(snapshot.passages(rows)), snapshot.vectors(rows)
    finally:
        snapshot.close()
    for content in allowed:
        if passages == book(content) and np.array_equal(vectors, book_vectors(content)):
            return
    raise AssertionError(f"{version} holds {passages}, which is none of {allowed}")


def swap_to(
    folder: Path, live_version: str, version: str, *, policy: SwapPolicy, guarding: Guarding | None = None
) -> None:
    """Serve `live_version` and swap to `version`, as a service does; raises where the new one is not served then."""
    replica = Replica.start(folder, live_version, guarding=guarding)
    try:
        report = replica.swap_index.begin(version, policy=policy).result()
        if not report.durable or replica.store.current() != version:
            raise AssertionError(f"CURRENT names {replica.store.current()} after a swap to {version}")
        with replica.live.lease() as lease:
            row = int(lease.snapshot.search(lease.snapshot.vectors([1]), 1)[0, 0])
            if (lease.index.version, lease.snapshot.passages([row])[0].title) != (version, "title 1"):
                raise AssertionError(f"{lease.index.version} answers with row {row}")
    finally:
        replica.close()
