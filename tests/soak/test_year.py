"""A year of daily updates: each day one passage in a hundred changes, and a service swaps to what was made of it."""

import dataclasses
import datetime
import itertools
import json
import os
import random
import statistics
import time
from pathlib import Path

import numpy as np
import pytest
from pydantic import SecretStr

from openbook.cli.index_follow import Follower, RunningService
from openbook.cli.swap import Administration
from openbook.indexing.index_builder import BuildOptions, build_index
from openbook.indexing.passage_encoder import PassageEncoder
from openbook.indexing.sources import open_source
from openbook.settings import Settings
from openbook.storage.index_store import IndexStore
from openbook.storage.placing import prune
from openbook.storage.snapshot import IndexSnapshot
from tests.fixtures.command_line import TOKEN
from tests.fixtures.indexes import ENCODER
from tests.fixtures.summary import Summary

N_PASSAGES, REWORDED, REPLACED, KEEP, K, N_QUERIES = 1000, 6, 2, 7, 5, 50
WORDS = ("king", "river", "president", "peru", "kenya", "north", "island", "currency", "parliament", "mountain")


class Book:
    """Passages by their ids, in a file of JSON lines that is written again each day."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._random = random.Random(0)
        self._count = 0
        self.texts = {f"p{self._count}": self._new() for _ in range(N_PASSAGES)}
        self.write()

    def change(self) -> None:
        for passage_id in self._random.sample(sorted(self.texts), REWORDED):
            self.texts[passage_id] = self._new()
        for passage_id in self._random.sample(sorted(self.texts), REPLACED):
            del self.texts[passage_id]
            text = self._new()
            self.texts[f"p{self._count}"] = text
        self.write()

    def write(self) -> None:
        rows = ({"id": name, "title": "t", "text": text} for name, text in self.texts.items())
        aside = self._path.with_name("aside.jsonl")
        aside.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        aside.replace(self._path)

    def _new(self) -> str:
        self._count += 1
        return f"{' '.join(self._random.choices(WORDS, k=20))} {self._count}"


def recall_and_seconds(snapshot: IndexSnapshot) -> tuple[float, float]:
    """The share of the K nearest that a search finds, and the processor's seconds for a search: the median."""
    vectors = snapshot.vectors(range(len(snapshot))).astype(np.float64)  # (N, d)
    chosen = np.random.default_rng(0)
    noise = chosen.standard_normal((N_QUERIES, vectors.shape[1])) * vectors.std()
    queries = vectors[chosen.integers(0, len(vectors), N_QUERIES)] + noise  # (Q, d)
    best = np.argsort(-(queries @ vectors.T), axis=1)[:, :K]  # (Q, K)
    found, seconds = [], []
    for query in queries.astype(np.float32):
        started = time.thread_time()
        found.append(snapshot.search(query[None], K)[0])
        seconds.append(time.thread_time() - started)
    hits = [len({*rows.tolist()} & {*exact.tolist()}) for rows, exact in zip(found, best, strict=True)]
    return sum(hits) / (K * N_QUERIES), statistics.median(seconds)


def bytes_of(folder: Path) -> int:
    return sum(os.lstat(Path(place, name)).st_size for place, _, names in os.walk(folder) for name in names)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_year_of_daily_updates_takes_no_more_space_or_time_than_its_versions(
    service: str,
    service_settings: Settings,
    tiny_encoder: Path,
    tmp_path: Path,
    summary: Summary,
) -> None:
    store = IndexStore(service_settings.indexes_folder)
    loaded = PassageEncoder.load(tiny_encoder)
    # the encoder that the service's checkpoint expects
    encoder = dataclasses.replace(loaded, source=dataclasses.replace(loaded.source, fingerprint=ENCODER))
    book = Book(tmp_path / "book.jsonl")
    options = BuildOptions(index="hnsw", numbers={"m": 8, "ef_search": 16})
    build_index(store, "book", open_source(str(tmp_path / "book.jsonl")), encoder, options)
    size = bytes_of(store.folder / "book")
    settings = service_settings.model_copy(update={"admin_token": SecretStr(TOKEN)})
    serving = RunningService(settings, Administration(url=service), "a year")
    serving.make_live("book")
    morning = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    clock = (morning + datetime.timedelta(days=day) for day in itertools.count()).__next__
    follower = Follower(store, str(tmp_path / "book.jsonl"), serving, encoder, keep=KEEP, clock=clock)
    assert not follower.look()
    before = bytes_of(store.folder) - size
    spaces, recalls, searches, updates, embedded = [], [], [], [], 0
    for _ in range(365):
        book.change()
        started = time.perf_counter()
        assert follower.look()
        updates.append(time.perf_counter() - started)
        # a day has passed
        prune(store, older_than_s=-1)
        version = serving.live()
        lineage = store.info(version).lineage
        assert lineage is not None
        embedded += lineage.embedded
        snapshot = store.open(version)
        recall, seconds = recall_and_seconds(snapshot)
        snapshot.close()
        spaces.append((bytes_of(store.folder) - before) / size)
        recalls.append(recall)
        searches.append(seconds)
    last = store.open(serving.live())
    passages = last.passages(range(len(last)))
    assert {one.passage_id: one.text for one in passages} == book.texts
    np.testing.assert_allclose(last.vectors(range(len(last))), encoder.encode(passages), atol=1e-5)
    summary(
        f"a year of daily updates, 1% each: {embedded:,} passages embedded, an update and its swap "
        f"{statistics.median(updates):.2f} s; space {max(spaces):.1f} times a version at most, {spaces[-1]:.1f} at the "
        f"end; recall@{K} {min(recalls):.3f} at least, {statistics.mean(recalls[:30]):.3f} in the first month, "
        f"{statistics.mean(recalls[-30:]):.3f} in the last; a search {1e6 * statistics.median(searches[:30]):.0f} µs "
        f"in the first month, {1e6 * statistics.median(searches[-30:]):.0f} µs in the last"
    )
    # each day's new text once, but for a passage that was reworded and went on the same day
    assert 365 * (REWORDED + REPLACED) - 20 <= embedded <= 365 * (REWORDED + REPLACED)
    # those that are kept, the one that it began with, and what the service has open
    assert max(spaces) < KEEP + 4
    assert statistics.mean(recalls[-30:]) > statistics.mean(recalls[:30]) - 0.02
