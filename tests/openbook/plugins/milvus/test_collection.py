"""Vectors in a database: what is found and scored is what a flat index finds, and a database that fails is said so."""

import json
import logging
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openbook.entities import Filter
from openbook.errors import (
    FilterMatchesNothing,
    IndexCorrupt,
    IndexExists,
    IndexNotResident,
    IndexUnreachable,
    InvalidRequest,
    SettingInvalid,
)
from openbook.plugins.milvus import collection as milvus
from openbook.plugins.milvus import snapshot as milvus_snapshot
from openbook.plugins.milvus.collection import Address, Collection, Databases
from openbook.plugins.milvus.push import push_vectors
from openbook.storage.filters import parse_filter
from openbook.storage.index_store import IndexStore
from openbook.storage.manifest import open_manifest, sealed
from openbook.storage.snapshot import IndexSnapshot
from tests.fixtures.databases import allowing, listing
from tests.fixtures.indexes import publish_tiny, tiny_passages
from tests.fixtures.publishing import publish
from tests.openbook.storage.test_filters import FIELDS, filters_drawn
from tests.waiting import until

N_ROWS, D = 120, 8


@pytest.fixture(scope="module")
def lite() -> None:
    pytest.importorskip("pymilvus")
    pytest.importorskip("milvus_lite")


@pytest.fixture(scope="module")
def drawn(lite: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `flat`, random rows with every kind of field, many of them null, and `there`, in a database."""
    dice = np.random.default_rng(3)
    passages = []
    for row in range(N_ROWS):
        metadata = []
        for name, kind in sorted(FIELDS.metadata.items()):
            if dice.random() < 0.7:
                metadata.append((name, _value(kind, dice)))
        published = None if dice.random() < 0.3 else str(dice.choice(["2018-12-20", "2016-12-21"]))
        passages.append(
            replace(tiny_passages("tiny-2016")[0], passage_id=str(row), published=published, metadata=tuple(metadata))
        )
    store = IndexStore(tmp_path_factory.mktemp("drawn") / "indexes")
    publish(
        store,
        "flat",
        vectors=dice.standard_normal((N_ROWS, D)).astype(np.float32),
        passages=iter(passages),
        fields=FIELDS,
        encoder_name="e",
        encoder_fingerprint="e",
    )
    push_vectors(store, "flat", Address.parse(f"milvus+file://{store.folder}.db/drawn"), "there", lambda share: None)
    return store.folder


def _value(kind: str, dice: np.random.Generator) -> Any:
    choices: dict[str, list[Any]] = {
        "string": ["red", "blue", ""],
        "integer": [-1, 0, 3, 2**53 + 1],
        "number": [-1.5, 0.0, 2.0],
        "boolean": [True, False],
        "date": ["2018-12-20", "2018-12-20T10:00:00Z", "2016-12-21"],
        "strings": [("red",), ("red", "blue"), ("green",)],
    }
    return choices[kind][dice.integers(len(choices[kind]))]


@pytest.fixture(scope="module")
def both(drawn: Path) -> Iterator[tuple[IndexSnapshot, IndexSnapshot]]:
    store = IndexStore(drawn, listing(drawn))
    with closing(store.open("flat")) as flat, closing(store.open("there")) as there:
        there.warm()
        yield flat, there


def assert_same(both: tuple[IndexSnapshot, IndexSnapshot], k: int, allowed: Any = None) -> None:
    queries = np.random.default_rng(k).standard_normal((3, D)).astype(np.float32)
    flat, there = (one.nearest(queries, k, allowed=allowed) for one in both)
    for expected, found in zip(flat, there, strict=True):
        np.testing.assert_array_equal(found.rows, expected.rows)
        np.testing.assert_allclose(found.products, expected.products, rtol=1e-13)
    np.testing.assert_array_equal(both[1].search(queries, k, allowed=allowed), [one.rows for one in flat])


@pytest.mark.parametrize("k", [1, 5, N_ROWS])
def test_a_search_finds_and_scores_what_a_flat_index_does(both: tuple[IndexSnapshot, IndexSnapshot], k: int) -> None:
    assert_same(both, k)
    flat, there = both
    assert (there.info.index_type, len(there), there.info.search) == ("milvus", N_ROWS, {"candidates": 64})
    assert there.passages(range(N_ROWS)) == flat.passages(range(N_ROWS))
    rows = [7, 0, 7, 119]
    np.testing.assert_array_equal(there.vectors(rows), flat.vectors(rows))
    np.testing.assert_array_equal(np.concatenate(list(there.vector_slices(50))), flat.vectors(range(N_ROWS)))


# the numbers beyond which a filter is asked in another way: as many more rows, as a list, in several lists
@pytest.mark.parametrize(
    ("most_widened", "listed"),
    [
        pytest.param(4096, 1 << 15, marks=pytest.mark.slow),
        pytest.param(0, 1 << 15, marks=pytest.mark.slow),
        (100, 7),
    ],
)
def test_a_filter_passes_the_rows_that_it_passes_over_files(
    both: tuple[IndexSnapshot, IndexSnapshot], monkeypatch: pytest.MonkeyPatch, most_widened: int, listed: int
) -> None:
    monkeypatch.setattr(milvus_snapshot, "MOST_WIDENED", most_widened)
    monkeypatch.setattr(milvus_snapshot, "LISTED_ROWS", listed)

    @settings(max_examples=8, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(filters_drawn, st.integers(1, 70))
    def check(chosen: dict[str, Any], k: int) -> None:
        one: Filter = parse_filter(chosen)
        masks = []
        for snapshot in both:
            try:
                masks.append(snapshot.allowed(one))
            except FilterMatchesNothing:
                masks.append(None)
        assert (masks[0] is None) == (masks[1] is None)
        if masks[0] is not None:
            np.testing.assert_array_equal(*masks)
            assert_same(both, k, masks[1])

    check()
    for share in (0.05, 0.5, 0.95, 1.0):
        assert_same(both, 5, np.random.default_rng(1).random(N_ROWS) < share)


def test_what_files_refuse_is_refused(both: tuple[IndexSnapshot, IndexSnapshot]) -> None:
    there, queries = both[1], np.zeros((1, D), dtype=np.float32)
    with pytest.raises(InvalidRequest, match="passages were asked for"):
        there.nearest(queries, N_ROWS + 1)
    with pytest.raises(InvalidRequest):
        there.nearest(queries, 0)
    with pytest.raises(InvalidRequest, match="has no such parameter"):
        there.nearest(queries, 1, parameters={"nprobe": 2})
    with pytest.raises(IndexError):
        there.vectors([N_ROWS])
    assert there.nearest(queries, 3, allowed=np.zeros(N_ROWS, dtype=bool))[0].rows.size == 0


def test_of_equal_scores_the_lower_row_comes_first(both: tuple[IndexSnapshot, IndexSnapshot]) -> None:
    (found,) = both[1].nearest(np.zeros((1, D), dtype=np.float32), N_ROWS)
    assert found.rows.tolist() == list(range(N_ROWS))


# --- a database that fails ---------------------------------------------------------------------------------


class Failing:
    """A client that fails while `set`."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.set = True
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            self.calls.append(name)
            if self.set:
                raise TimeoutError("http://secret-host:19530 does not answer")
            return getattr(self._client, name)(*given, **named)

        return call


def test_a_database_that_fails_is_not_asked_by_questions_until_it_answers(
    both: tuple[IndexSnapshot, IndexSnapshot], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(milvus, "PAUSE_S", 0.05)
    there = both[1]
    client = Failing(there._collection._client)  # type: ignore[attr-defined]
    monkeypatch.setattr(there._collection, "_client", client)  # type: ignore[attr-defined]
    queries = np.ones((1, D), dtype=np.float32)
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            with pytest.raises(IndexUnreachable, match="of index 'there' does not answer: TimeoutError"):
                there.nearest(queries, 2)
        assert client.calls.count("search") == 1
        with pytest.raises(IndexUnreachable):
            there.check_ready()
        # text is here
        there.passages([0])
        client.set = False
        until(lambda: not there._collection._reason)  # type: ignore[attr-defined]
    there.check_ready()
    assert_same(both, 3)
    assert [record.levelname for record in caplog.records if "database" in record.message] == ["ERROR", "INFO"]
    assert "secret-host" not in caplog.text


@pytest.mark.parametrize("defect", ["short", "absent", "not finite"])
def test_an_answer_that_is_none_is_refused(
    both: tuple[IndexSnapshot, IndexSnapshot], monkeypatch: pytest.MonkeyPatch, defect: str
) -> None:
    there = both[1]
    ask = Collection.ask

    def bad(self: Collection, call: str, **named: Any) -> Any:
        found = ask(self, call, **named)
        if call == "search" and defect == "short":
            found[0].ids.pop()
            found[0].pop()
        if call == "search" and defect == "not finite":
            found[0][0]["entity"]["vector"][0] = float("nan")
        return found[:-1] if call == "get" and defect == "absent" else found

    monkeypatch.setattr(Collection, "ask", bad)
    with pytest.raises(IndexCorrupt, match=r"'drawn_there_\w+' of index 'there' cannot be read"):
        there.vectors([1, 2]) if defect == "absent" else there.nearest(np.ones((1, D), np.float32), 2)


def test_after_close_nothing_is_read(drawn: Path) -> None:
    snapshot = IndexStore(drawn, listing(drawn)).open("there")
    snapshot.close()
    snapshot.close()
    for read in (lambda: snapshot.nearest(np.ones((1, D), np.float32), 1), lambda: snapshot.vectors([0])):
        with pytest.raises(IndexNotResident):
            read()


def test_without_pymilvus_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    with pytest.raises(IndexUnreachable, match=r"lacks pymilvus: pip install 'openbook\[milvus\]'"):
        Collection(Address.parse("milvus://127.0.0.1:9/x"), version="v", dimension=2)


# --- pushing -----------------------------------------------------------------------------------------------


@pytest.fixture
def pushed(drawn: Path, tmp_path: Path) -> IndexStore:
    """A copy of the folder; the database is the one of all."""
    return IndexStore(
        Path(shutil.copytree(drawn, tmp_path / "indexes")),
        allowing(",".join(f"milvus+file://{place}.db" for place in (drawn, tmp_path / "again", tmp_path / "changed"))),
    )


def test_a_collection_tells_what_it_is(drawn: Path) -> None:
    info = IndexStore(drawn, listing(drawn)).info("there")
    assert info.collection is not None
    address = Address.parse(info.collection.url)
    assert address.name.startswith("drawn_there_")
    with closing(Collection(address, version="there", dimension=D)) as collection:
        properties = collection.ask("describe_collection")["properties"]
        assert properties["openbook.encoder_fingerprint"] == "e"
        assert '"version": "there"' in properties["openbook.manifest"]
        assert collection.sealed(N_ROWS) == info.collection.vectors_sha256
        assert collection.sealed(N_ROWS - 1) is None
    lines: list[str] = []
    IndexStore(drawn, listing(drawn)).verify("there", lines.append)
    assert lines[-1].startswith(info.collection.url)


@pytest.mark.slow
def test_a_push_that_was_stopped_begins_again_and_a_whole_one_is_taken(
    pushed: IndexStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = Address.parse(f"milvus+file://{tmp_path}/again.db/x")
    ask = Collection.ask
    asked: list[str] = []

    def cut(self: Collection, call: str, **named: Any) -> Any:
        asked.append(call)
        if call == "flush":
            raise KeyboardInterrupt
        return ask(self, call, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Collection, "ask", cut)
        with pytest.raises(KeyboardInterrupt):
            push_vectors(pushed, "flat", address, "again", lambda share: None)
    assert pushed.versions() == ("flat", "there")
    shares: list[float] = []
    push_vectors(pushed, "flat", address, "again", shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    with closing(pushed.open("flat")) as flat, closing(pushed.open("again")) as again:
        assert_same((flat, again), 5)
    with pytest.raises(IndexExists):
        push_vectors(pushed, "flat", address, "again", lambda share: None)
    asked.clear()
    monkeypatch.setattr(Collection, "ask", lambda self, call, **named: asked.append(call) or ask(self, call, **named))
    push_vectors(pushed, "flat", address, "again", lambda share: None, replace_version=True)
    assert "insert" not in asked
    assert "drop_collection" not in asked


@pytest.mark.slow
def test_vectors_that_are_others_are_found_by_their_checksum(pushed: IndexStore, tmp_path: Path) -> None:
    address = Address.parse(f"milvus+file://{tmp_path}/changed.db/x")
    info = push_vectors(pushed, "flat", address, "changed", lambda share: None)
    assert info.collection is not None
    with closing(Collection(Address.parse(info.collection.url), version="changed", dimension=D)) as collection:
        collection.sealed(N_ROWS)
        collection.ask("upsert", data=[{"row": 3, "vector": np.ones(D, np.float32)}])
    pushed.check("changed")
    with pytest.raises(IndexCorrupt, match="does not match the sha256"):
        pushed.verify("changed")
    with closing(Collection(Address.parse(info.collection.url), version="changed", dimension=D)) as collection:
        collection.ask("drop_collection")
    with pytest.raises(IndexCorrupt, match="does not have the vectors of this version"):
        pushed.open("changed")


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("milvus://db:19530/books", "milvus://db:19530/books"),
        ("milvus://db:19530/", "milvus://db:19530/openbook"),
        ("milvus+https://db/books", "milvus+https://db/books"),
        ("milvus+file:///srv/v.db", "milvus+file:///srv/v.db/openbook"),
        ("milvus+file:///srv/v.db/books", "milvus+file:///srv/v.db/books"),
    ],
)
def test_an_address_is_read_back(url: str, name: str) -> None:
    assert Address.parse(url).url == name
    assert Address.parse(name) == Address.parse(url)


@pytest.mark.parametrize(
    "url",
    [
        *("milvus://", "milvus:///books", "milvus://user:secret@db/books", "milvus://db/a-b", "milvus://db/a/b"),
        *("http://db/books", "milvus+file://db/v.db", "milvus+file:///srv/vectors", "milvus://db/b?x=1"),
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(SettingInvalid) as refused:
        Address.parse(url)
    assert "secret" not in str(refused.value)


@pytest.fixture
def waiter() -> Iterator[socket.socket]:
    """A port that counts who comes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.05)
        yield listening


@pytest.mark.parametrize("listed", ["", "milvus://db:19530", "milvus+https://127.0.0.1:{port}", "milvus://127.0.0.1"])
@pytest.mark.parametrize("call", ["open", "verify", "check"])
def test_a_database_that_a_file_alone_names_gets_neither_call_nor_token(
    tmp_path: Path, waiter: socket.socket, listed: str, call: str
) -> None:
    port = waiter.getsockname()[1]
    store = IndexStore(tmp_path, allowing(listed.format(port=port), "user:secret"))
    _name_collection(store, f"milvus://127.0.0.1:{port}/x")
    with pytest.raises(IndexUnreachable, match=r"OPENBOOK_MILVUS_DATABASES does not list milvus://127\.0\.0\.1"):
        store.check("tiny-2016", verify="checksum") if call == "check" else getattr(store, call)("tiny-2016")
    with pytest.raises(TimeoutError):
        waiter.accept()


def test_a_file_that_a_manifest_names_is_not_made(tmp_path: Path) -> None:
    store = IndexStore(tmp_path / "indexes", allowing(f"milvus+file://{tmp_path}/mine.db"))
    for name in ("theirs.db", "deep/../mine.db"):
        _name_collection(store, f"milvus+file://{tmp_path}/{name}/x")
        with pytest.raises(IndexUnreachable, match="does not list"):
            store.open("tiny-2016")
    assert [path.name for path in tmp_path.iterdir()] == ["indexes"]


def test_a_list_of_databases_names_hosts_and_ports_or_is_refused() -> None:
    listed = Databases.listed("milvus://DB:19530, milvus+https://other:443/books", "secret")
    assert Address.parse("milvus://db/any").place in listed.places
    assert Address.parse("milvus+https://other:443/x").place in listed.places
    assert "secret" not in repr(listed)
    for wrong in ("db:19530", "milvus://db:port", "milvus://me:secret@db"):
        with pytest.raises(SettingInvalid, match="OPENBOOK_MILVUS_DATABASES"):
            Databases.listed(wrong)


def _name_collection(store: IndexStore, url: str) -> None:
    """A version that says of itself that its vectors lie there."""
    publish_tiny(store, "tiny-2016", replace=True)
    path = store.find("tiny-2016") / "manifest.json"
    fields = json.loads(path.read_text())
    fields |= {"index_type": "milvus", "collection": {"url": url, "vectors_sha256": "0" * 64}}
    del fields["files"]["index.faiss"]
    path.write_bytes(sealed(fields))


@pytest.mark.parametrize("defect", ["no collection", "a collection of files", "no sha256"])
def test_a_manifest_says_where_its_vectors_are_or_is_none(tmp_path: Path, defect: str) -> None:
    store = IndexStore(tmp_path)
    publish_tiny(store, "tiny-2016")
    path = tmp_path / "tiny-2016" / "manifest.json"
    fields = json.loads(path.read_text())
    if defect == "no collection":
        fields["index_type"] = "milvus"
    else:
        fields["collection"] = {"url": "milvus://db/x", "vectors_sha256": "" if defect == "no sha256" else "0" * 64}
        fields["index_type"] = "milvus" if defect == "no sha256" else "flat"
    path.write_bytes(sealed(fields))
    with pytest.raises(IndexCorrupt, match="collection"):
        open_manifest(tmp_path / "tiny-2016", "tiny-2016")
