"""Vectors that are there already become a version, each with its own passage."""

import json
import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from openbook.entities import IndexInfo, Passage
from openbook.errors import IndexIncompatible, SourceInvalid
from openbook.indexing.building import reading
from openbook.indexing.building.embedding import NamedEncoder
from openbook.indexing.index_builder import BuildOptions, build_index
from openbook.indexing.sources import PassageSource, open_source
from openbook.indexing.sources.url_template import UrlTemplate
from openbook.plugins.ready.arrays import VectorFiles
from openbook.plugins.ready.dataset_folder import DatasetFolder, is_dataset
from openbook.plugins.ready.engine import Ready, ReadyVectors
from openbook.plugins.ready.merged import Merged
from openbook.storage.index_store import IndexStore
from tests.fixtures.publishing import publish

N, D = 30, 8
VECTORS = np.random.default_rng(0).standard_normal((N, D)).astype(np.float32)
PASSAGES = [Passage(str(row + 1), f"title {row // 4}", f"text {row}") for row in range(N)]


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SHARD_PASSAGES", 7)


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "psgs.tsv"
    rows = [f"{passage.passage_id}\t{passage.text}\t{passage.title}" for passage in PASSAGES]
    path.write_text("\n".join(["id\ttext\ttitle", *rows]) + "\n")
    return str(path)


def take_in(store: IndexStore, source: PassageSource, vectors: ReadyVectors) -> IndexInfo:
    encoder = NamedEncoder("facebook/dpr", "", vectors.dimension)
    return build_index(store, "v", source, encoder, BuildOptions(engine=Ready(vectors))).info


def check(store: IndexStore, expected: NDArray[np.float32] = VECTORS) -> None:
    store.verify("v")
    snapshot = store.open("v")
    assert snapshot.passages(range(N)) == tuple(PASSAGES)
    np.testing.assert_array_equal(snapshot.vectors(range(N)), expected)


def pickled(path: Path, rows: range) -> None:
    path.write_bytes(pickle.dumps([(PASSAGES[row].passage_id, VECTORS[row]) for row in rows], protocol=4))


def test_dprs_files_are_taken_in_the_order_of_their_numbers(store: IndexStore, table: str, tmp_path: Path) -> None:
    folder = tmp_path / "vectors"
    folder.mkdir()
    for number, start in ((2, 0), (10, 11), (11, 22)):
        pickled(folder / f"wikipedia_passages_{number}.pkl", range(start, min(N, start + 11)))
    info = take_in(store, open_source(table), VectorFiles([folder]))
    check(store)
    assert (info.encoder_name, info.encoder_fingerprint) == ("facebook/dpr", "")


def test_files_in_another_order_are_refused(store: IndexStore, table: str, tmp_path: Path) -> None:
    pickled(tmp_path / "a", range(15))
    pickled(tmp_path / "b", range(15, N))
    with pytest.raises(SourceInvalid, match="vector 0 is of passage '16', where the passages have '1'"):
        take_in(store, open_source(table), VectorFiles([tmp_path / "b", tmp_path / "a"]))
    assert list(store.folder.iterdir()) == []


def test_numpy_files_have_their_order_and_nothing_else(store: IndexStore, table: str, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", VECTORS[:20].astype(np.float16))
    np.save(tmp_path / "b.npy", VECTORS[20:].astype(np.float16))
    take_in(store, open_source(table), VectorFiles([tmp_path / "a.npy", tmp_path / "b.npy"]))
    check(store, VECTORS.astype(np.float16).astype(np.float32))


@pytest.mark.parametrize(("rows", "reason"), [(N - 1, "it ends after 29 vectors"), (N + 1, "goes on after the last")])
def test_too_few_or_too_many_vectors_are_refused(
    store: IndexStore, table: str, tmp_path: Path, rows: int, reason: str
) -> None:
    np.save(tmp_path / "a.npy", np.ones((rows, D), dtype=np.float32))
    with pytest.raises(SourceInvalid, match=reason):
        take_in(store, open_source(table), VectorFiles([tmp_path / "a.npy"]))


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.array([["a"]]), r"not \(N, d\) of floats"),
        (np.ones(3), r"not \(N, d\) of floats"),
        (np.ones((2, 2), dtype=np.int64), r"not \(N, d\) of floats"),
        (np.array([[{}]], dtype=object), "no array of NumPy's"),
    ],
)
def test_an_array_of_something_else_is_refused(tmp_path: Path, array: NDArray[np.generic], said: str) -> None:
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    with pytest.raises(SourceInvalid, match=said):
        VectorFiles([tmp_path / "a.npy"])


def rows_of(start: int, end: int) -> pa.Table:
    ids, titles, texts = zip(*((one.passage_id, one.title, one.text) for one in PASSAGES[start:end]), strict=True)
    vectors = pa.array(VECTORS[start:end].tolist(), pa.list_(pa.float32()))
    return pa.table({"id": ids, "text": texts, "title": titles, "embeddings": vectors})


def dataset(folder: Path, kind: str) -> Path:
    """As `datasets` saves one in two files, in batches of five rows."""
    folder.mkdir()
    for number, (start, end) in enumerate(((0, 16), (16, N))):
        rows = rows_of(start, end)
        if kind == "parquet":
            pq.write_table(rows, folder / f"train-{number}.parquet")
            continue
        new = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
        with new(str(folder / f"data-{number:05}-of-00002.arrow"), rows.schema) as writer:
            writer.write_table(rows, max_chunksize=5)
    return folder


@pytest.mark.parametrize("kind", ["stream", "file", "parquet"])
def test_a_dataset_folder_brings_passages_and_vectors(store: IndexStore, tmp_path: Path, kind: str) -> None:
    folder = dataset(tmp_path / "wiki_dpr", kind)
    assert is_dataset(folder)
    source = DatasetFolder(folder, licence="CC BY-SA 3.0")
    assert (source.dimension, source.total_bytes) == (D, N)
    assert [batch.passages[0].passage_id for batch in source.batches(after="16")][:1] == ["17"]
    assert take_in(store, source, source).licence == "CC BY-SA 3.0"
    check(store)


def test_the_addresses_of_a_dataset_are_made_of_its_titles_only_when_asked_for(tmp_path: Path) -> None:
    folder = dataset(tmp_path / "d", "parquet")
    assert {one.url for one in DatasetFolder(folder).passages()} == {None}
    template = UrlTemplate("https://en.wikipedia.org/wiki/{title}")
    found = list(DatasetFolder(folder, url_template=template).passages())
    assert found[5].url == "https://en.wikipedia.org/wiki/title%201"


def test_the_files_that_state_json_lists_are_the_dataset(tmp_path: Path) -> None:
    folder = dataset(tmp_path / "wiki_dpr", "stream")
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00002.arrow"}]}))
    assert DatasetFolder(folder).total_bytes == 16


def test_a_dataset_without_vectors_is_refused(tmp_path: Path) -> None:
    several_lengths = pa.array([[1.0], [2.0, 3.0], []])
    for rows, said in (
        (rows_of(0, 3).drop_columns("embeddings"), "embeddings"),
        (rows_of(0, 3).set_column(3, "embeddings", several_lengths), "several lengths"),
    ):
        pq.write_table(rows, tmp_path / "a.parquet")
        with pytest.raises(SourceInvalid, match=said):
            DatasetFolder(tmp_path)


def merge(
    store: IndexStore, *parts: tuple[range, str], prefix: bool = False, given: Sequence[Passage] = PASSAGES
) -> IndexInfo:
    """Publish rows under the fingerprint of an encoder as "one", "two", and merge these versions."""
    for version, (rows, fingerprint) in zip(("one", "two"), parts, strict=True):
        publish(
            store,
            version,
            vectors=VECTORS[rows.start : rows.stop],
            passages=[given[row] for row in rows],
            encoder_name="e",
            encoder_fingerprint=fingerprint,
            snapshot_date=f"2018-12-{rows.start + 1:02}",
            licence="CC0",
            replace=True,
        )
    merged = Merged([store.open("one"), store.open("two")], prefix=prefix)
    return build_index(store, "v", merged, merged.encoder, BuildOptions(engine=Ready(merged))).info


def test_versions_are_merged_in_their_order(store: IndexStore) -> None:
    info = merge(store, (range(12), "f"), (range(12, N), "f"))
    check(store)
    assert (info.source, info.snapshot_date, info.licence) == ("one + two", "2018-12-13", "CC0")
    assert (info.encoder_name, info.encoder_fingerprint) == ("e", "f")


def test_a_merge_keeps_every_field_and_unites_the_declared_types(store: IndexStore) -> None:
    rich = [
        replace(one, url=f"https://example.org/{row}", metadata=(("n", row if row < 12 else row / 2),))
        for row, one in enumerate(PASSAGES)
    ]
    parts = (range(12), "f"), (range(12, N), "f")
    info = merge(store, *parts, given=rich)
    assert store.info("one").metadata == {"n": "integer"}
    assert (info.passages_format, info.metadata) == (2, {"n": "number"})
    assert store.open("v").passages(range(N)) == tuple(rich)
    words = [replace(one, metadata=(("n", 1 if row < 12 else "one"),)) for row, one in enumerate(PASSAGES)]
    with pytest.raises(SourceInvalid, match="two: metadata field 'n' has values of type integer and of type string"):
        merge(store, *parts, given=words)


def test_an_id_of_two_versions_is_named_or_kept_by_a_prefix(store: IndexStore) -> None:
    parts = (range(12), "f"), (range(11, N), "f")
    with pytest.raises(SourceInvalid, match="passage id '12' comes again in row 12"):
        merge(store, *parts)
    merge(store, *parts, prefix=True)
    assert [one.passage_id for one in store.open("v").passages([11, 12])] == ["one/12", "two/12"]


def test_versions_of_two_encoders_are_not_merged(store: IndexStore) -> None:
    with pytest.raises(IndexIncompatible, match="another"):
        merge(store, (range(12), "f"), (range(12, N), "another"))
