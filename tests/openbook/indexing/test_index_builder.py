import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from openbook.entities import MetadataValue, Passage
from openbook.errors import IndexExists, IndexIncompatible, SourceInvalid
from openbook.indexing.building import embedding, reading
from openbook.indexing.index_builder import BuildOptions, build_index
from openbook.indexing.passage_encoder import PassageEncoder
from openbook.indexing.sources import PassageSource, open_source
from openbook.storage.index_store import IndexStore
from tests.openbook.indexing.builds import Given, Seen, interrupt

ARTICLES = [
    {"title": "Peru", "text": " ".join(f"the president of peru {number} and the people ." for number in range(40))},
    {"title": "The river", "text": "the long river of the north"},
    {"id": "x-1", "title": "Kenya", "text": "kenya is a country in the east"},
]


@pytest.fixture
def articles(tmp_path: Path) -> PassageSource:
    path = tmp_path / "articles.jsonl"
    path.write_text("".join(json.dumps(article) + "\n" for article in ARTICLES))
    return open_source(str(path), snapshot_date="2020-02-02", licence="CC0")


def test_a_build_is_a_version_that_its_encoder_alone_can_ask(
    store: IndexStore, articles: PassageSource, encoder: PassageEncoder
) -> None:
    built = build_index(store, "mine", articles, encoder)
    info = store.verify("mine")
    assert built.info == info
    assert (info.n_passages, info.dimension, info.index_type) == (6, 32, "flat")
    assert (info.source, info.snapshot_date, info.licence) == ("articles.jsonl", "2020-02-02", "CC0")
    assert (info.encoder_name, info.encoder_fingerprint) == (encoder.name, encoder.fingerprint)
    assert built.n_articles == 3
    assert built.seconds == built.read_seconds + built.embed_seconds + built.publish_seconds > 0
    assert build_index(store, "other", articles, encoder).info.files == info.files

    snapshot = store.open("mine", encoder_fingerprint=encoder.fingerprint, dimension=encoder.dimension)
    passages = snapshot.passages(range(6))
    assert [p.passage_id for p in passages] == ["Peru#0", "Peru#1", "Peru#2", "Peru#3", "The river#0", "x-1"]
    np.testing.assert_allclose(snapshot.vectors(range(6)), encoder.encode(passages), atol=1e-5)
    snapshot.warm()
    with pytest.raises(IndexIncompatible, match=encoder.fingerprint):
        store.open("mine", encoder_fingerprint="another")


def test_shards_change_only_when_progress_is_reported(
    store: IndexStore, articles: PassageSource, encoder: PassageEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_index(store, "whole", articles, encoder)
    monkeypatch.setattr(reading, "SHARD_PASSAGES", 4)
    monkeypatch.setattr(embedding, "BATCH_PASSAGES", 3)
    monkeypatch.setattr(reading, "READ_REPORT_EVERY", 4)
    seen = Seen()
    build_index(store, "sharded", articles, encoder, report=seen)
    whole, sharded = store.open("whole"), store.open("sharded")
    assert whole.passages(range(6)) == sharded.passages(range(6))
    np.testing.assert_allclose(whole.vectors(range(6)), sharded.vectors(range(6)), atol=1e-5)
    assert [step for step in seen.steps if step[2] == "embed"] == [(0, 6, "embed"), (4, 6, "embed"), (6, 6, "embed")]
    assert seen.done("read") == [0, 4, 6]
    assert seen.steps[-1][0] == seen.steps[-1][1]


def test_a_taken_name_is_refused_before_reading_and_replaced_when_asked_for(
    store: IndexStore, articles: PassageSource, encoder: PassageEncoder
) -> None:
    build_index(store, "mine", articles, encoder)
    newer, seen = Given([Passage("1", "t", "the new king")]), Seen()
    with pytest.raises(IndexExists):
        build_index(store, "mine", newer, encoder, report=seen)
    assert seen.steps == []
    assert build_index(store, "mine", newer, encoder, BuildOptions(replace=True)).info.n_passages == 1
    assert store.open("mine").passages([0]) == (Passage("1", "t", "the new king"),)


@pytest.mark.parametrize(
    ("number", "index"), [(np.nan, "flat"), (-np.inf, "flat"), (70_000.0, "SQ8")], ids=["nan", "inf", "beyond float16"]
)
def test_a_vector_that_is_not_finite_ends_a_build_at_its_shard(
    store: IndexStore, encoder: PassageEncoder, monkeypatch: pytest.MonkeyPatch, number: float, index: str
) -> None:
    made: list[Passage] = []

    def encode(_: PassageEncoder, passages: list[Passage], **__: object) -> NDArray[np.float32]:
        made.extend(passages)
        vectors = np.ones((len(passages), encoder.dimension), dtype=np.float32)
        vectors[[one.passage_id == "5" for one in passages], 3] = number
        return vectors

    monkeypatch.setattr(reading, "SHARD_PASSAGES", 4)
    monkeypatch.setattr(PassageEncoder, "encode", encode)
    rows = [Passage(str(row), "t", "a") for row in range(12)]
    with pytest.raises(SourceInvalid, match="vectors: that of row 5 is not finite"):
        build_index(store, "mine", Given(rows), encoder, BuildOptions(index=index, workers=1))
    assert len(made) == 8
    assert not list(store.folder.iterdir())


@pytest.mark.parametrize("long", [Passage("1", "t" * 1025, "a"), Passage("1", "t", "a" * 32_769)])
def test_a_passage_that_is_too_long_ends_a_build_before_anything_is_embedded(
    store: IndexStore, encoder: PassageEncoder, monkeypatch: pytest.MonkeyPatch, long: Passage
) -> None:
    monkeypatch.setattr(PassageEncoder, "encode", lambda *_, **__: interrupt())
    with pytest.raises(SourceInvalid, match=r"passage '1': (title|text) has .* characters, more than"):
        build_index(store, "mine", Given([long]), encoder)
    assert not list(store.folder.iterdir())


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "given: there is no passage to index"),
        ([Passage("1", "t", "a")] * 2, "'1' comes again in row 1"),
        ([Passage("1\ud800", "t", "a")], "UTF-8 cannot hold"),
    ],
)
def test_passages_that_are_no_version_are_refused(
    store: IndexStore, encoder: PassageEncoder, rows: list[Passage], said: str
) -> None:
    with pytest.raises(SourceInvalid, match=said):
        build_index(store, "mine", Given(rows), encoder)
    assert not list(store.folder.iterdir())


def test_a_folder_of_nothing_that_can_be_read_is_refused_with_the_names(
    store: IndexStore, encoder: PassageEncoder, tmp_path: Path
) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.heic").write_bytes(b"PK")
    (folder / "b.txt").write_text("")
    with pytest.raises(SourceInvalid) as refused:
        build_index(store, "mine", open_source(str(folder)), encoder)
    said = "'a.heic' (no reader for .heic), 'b.txt' (empty)"
    assert str(refused.value).endswith(f"there is no passage to index; left out: {said}")


def test_a_build_in_shards_declares_the_types_of_all_of_them(
    store: IndexStore, encoder: PassageEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No shard has all fields, and a build that is continued knows those of the shards before."""
    monkeypatch.setattr(reading, "SHARD_PASSAGES", 2)
    values: list[MetadataValue | None] = [None, None, 1, 2, 0.5, None, 3]
    rows = [
        Passage(f"p{row}", "t", f"text {row}", metadata=(("n", value),) if value is not None else ())
        for row, value in enumerate(values)
    ]
    rows[6] = replace(rows[6], section="S", published="2020-02-02")
    with pytest.raises(KeyboardInterrupt):
        build_index(store, "v", Given(rows), encoder, report=Seen("embed", interrupt))
    info = build_index(store, "v", Given(rows), encoder).info
    assert (info.passages_format, info.metadata) == (2, {"n": "number"})
    assert store.open("v").passages(range(7)) == tuple(rows)
    more = [Passage("x", "t", "text"), Passage("y", "t", "text", metadata=(("n", "?"),))]
    with pytest.raises(SourceInvalid, match="metadata field 'n' has values of type number and of type string"):
        build_index(store, "w", Given([*rows, *more]), encoder)
