import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from openbook.entities import Passage
from openbook.errors import IndexExists, IndexIncompatible, SourceInvalid
from openbook.indexing.index_builder import BuildOptions, build_index
from openbook.indexing.passage_encoder import PassageEncoder
from openbook.indexing.sources import open_source
from openbook.storage.index_store import IndexStore

ARTICLES = [
    {"title": "Peru", "text": " ".join(f"the president of peru {number} and the people ." for number in range(40))},
    {"title": "The river", "text": "the long river of the north"},
    {"id": "x-1", "title": "Kenya", "text": "kenya is a country in the east"},
]


@pytest.fixture
def articles(tmp_path: Path) -> str:
    path = tmp_path / "articles.jsonl"
    path.write_text("".join(json.dumps(article) + "\n" for article in ARTICLES))
    return str(path)


@dataclass
class Seen:
    """Remembers what a build told."""

    steps: list[tuple[int, int | None, str]] = field(default_factory=list)

    def update(self, done: int, total: int | None, what: str) -> None:
        self.steps.append((done, total, what))


@dataclass
class Given:
    """A source of passages that the test holds in its hand."""

    rows: list[Passage]
    name: str = "given"
    snapshot_date: str | None = None
    licence: str = ""

    def passages(self) -> Iterator[Passage]:
        yield from self.rows


def test_a_build_is_a_version_that_the_encoder_can_ask(tmp_path: Path, articles: str, encoder: PassageEncoder) -> None:
    store = IndexStore(tmp_path / "indexes")
    source = open_source(articles, snapshot_date="2020-02-02", licence="CC0")
    built = build_index(store, "mine", source, encoder)
    info = store.verify("mine")
    assert built.info == info
    assert (info.n_passages, info.dimension, info.index_type) == (6, 32, "flat")
    assert (info.source, info.snapshot_date, info.licence) == ("articles.jsonl", "2020-02-02", "CC0")
    assert (info.encoder_name, info.encoder_fingerprint) == (encoder.name, encoder.fingerprint)
    assert built.n_articles == 3
    assert built.seconds == built.read_seconds + built.embed_seconds + built.publish_seconds > 0

    snapshot = store.open("mine", encoder_fingerprint=encoder.fingerprint, dimension=encoder.dimension)
    passages = snapshot.passages(range(6))
    assert [p.passage_id for p in passages] == ["Peru#0", "Peru#1", "Peru#2", "Peru#3", "The river#0", "x-1"]
    np.testing.assert_allclose(snapshot.vectors(range(6)), encoder.encode(passages), atol=1e-5)
    snapshot.warm()


def test_another_encoder_cannot_ask_it(tmp_path: Path, articles: str, encoder: PassageEncoder) -> None:
    store = IndexStore(tmp_path / "indexes")
    build_index(store, "mine", open_source(articles), encoder)
    with pytest.raises(IndexIncompatible, match=encoder.fingerprint):
        store.open("mine", encoder_fingerprint="another")


def test_shards_change_nothing_but_when_progress_is_told(
    tmp_path: Path, articles: str, encoder: PassageEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = IndexStore(tmp_path / "indexes")
    build_index(store, "whole", open_source(articles), encoder)
    monkeypatch.setattr("openbook.indexing.building.reading.SHARD_PASSAGES", 4)
    monkeypatch.setattr("openbook.indexing.building.embedding.BATCH_PASSAGES", 3)
    monkeypatch.setattr("openbook.indexing.building.reading.READ_REPORT_EVERY", 4)
    seen = Seen()
    build_index(store, "sharded", open_source(articles), encoder, report=seen)
    whole, sharded = store.open("whole"), store.open("sharded")
    assert whole.passages(range(6)) == sharded.passages(range(6))
    np.testing.assert_allclose(whole.vectors(range(6)), sharded.vectors(range(6)), atol=1e-5)
    assert [step for step in seen.steps if step[2] == "embed"] == [(0, 6, "embed"), (4, 6, "embed"), (6, 6, "embed")]
    assert [done for done, _, what in seen.steps if what == "read"] == [0, 4, 6]
    assert seen.steps[-1][0] == seen.steps[-1][1]


def test_two_builds_are_the_same_bytes(tmp_path: Path, articles: str, encoder: PassageEncoder) -> None:
    store = IndexStore(tmp_path / "indexes")
    one, other = (build_index(store, name, open_source(articles), encoder).info for name in ("one", "other"))
    assert one.files == other.files


def test_an_hnsw_index_is_built_when_asked_for(tmp_path: Path, articles: str, encoder: PassageEncoder) -> None:
    store = IndexStore(tmp_path / "indexes")
    assert (
        build_index(store, "mine", open_source(articles), encoder, BuildOptions(index="hnsw")).info.index_type == "hnsw"
    )
    assert len(store.open("mine").search(encoder.encode_texts(["peru"]), 6)[0]) == 6


def test_a_taken_name_is_refused_before_anything_is_read(
    tmp_path: Path, articles: str, encoder: PassageEncoder
) -> None:
    store = IndexStore(tmp_path / "indexes")
    build_index(store, "mine", open_source(articles), encoder)
    seen = Seen()
    with pytest.raises(IndexExists):
        build_index(store, "mine", open_source(articles), encoder, report=seen)
    assert seen.steps == []


def test_a_taken_name_is_replaced_when_asked_for(tmp_path: Path, articles: str, encoder: PassageEncoder) -> None:
    store = IndexStore(tmp_path / "indexes")
    build_index(store, "mine", open_source(articles), encoder)
    newer = Given([Passage("1", "t", "the new king")])
    assert build_index(store, "mine", newer, encoder, BuildOptions(replace=True)).info.n_passages == 1
    assert store.open("mine").passages([0]) == (Passage("1", "t", "the new king"),)


def test_a_source_without_passages_is_refused(tmp_path: Path, encoder: PassageEncoder) -> None:
    with pytest.raises(SourceInvalid, match="given: there is no passage to index"):
        build_index(IndexStore(tmp_path / "indexes"), "mine", Given([]), encoder)


def test_a_build_that_fails_leaves_nothing(tmp_path: Path, articles: str, encoder: PassageEncoder) -> None:
    with Path(articles).open("a") as file:
        file.write("not json\n")
    store = IndexStore(tmp_path / "indexes")
    with pytest.raises(SourceInvalid, match=r"articles\.jsonl:4"):
        build_index(store, "mine", open_source(articles), encoder)
    same = Given([Passage("1", "t", "a")] * 2)
    with pytest.raises(SourceInvalid, match="'1' comes again"):
        build_index(store, "mine", same, encoder)
    assert store.versions() == ()
    assert not list(tmp_path.glob("indexes/*"))
