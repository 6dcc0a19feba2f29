"""How thoroughly the index is searched, as a question asks for it in place of the manifest."""

import shutil
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from openbook.indexing.bm25_publish import add_bm25
from openbook.indexing.index_spec import choose_index
from openbook.storage.index_store import IndexStore
from tests.fixtures.indexes import DIMENSION, publish_tiny
from tests.openbook.api.conftest import ADMIN, BODIES, PERU, MakeClient, refused

QUESTIONS = (PERU, "the long river", "gdp of ghana ?", "who is king ?", "what language ?", "is it an island ?")


@pytest.fixture(scope="module")
def lists_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both versions as four lists, of which a search looks at one."""
    store = IndexStore(tmp_path_factory.mktemp("lists"))
    spec = choose_index("IVF4,SQ8", n_passages=12, dimension=DIMENSION, memory_bytes=None, nprobe=1)
    for version in ("tiny-2016", "tiny-2018"):
        publish_tiny(store, version, spec=spec, index_type=None)
    store.set_current("tiny-2016")
    return store.folder


@pytest.fixture
def lists(lists_folder: Path, make_client: MakeClient, tmp_path: Path) -> TestClient:
    """A client of a service that serves them."""
    return make_client(indexes=shutil.copytree(lists_folder, tmp_path / "lists"))


def found(client: TestClient, question: str, search: dict[str, int] | None) -> list[str]:
    response = client.post("/retrieve", json={"question": question, "n_docs": 2, "search": search})
    assert response.status_code == 200, response.text
    return [one["passage_id"] for one in response.json()["passages"]]


def test_more_lists_find_what_all_comparisons_find(lists: TestClient, client: TestClient) -> None:
    few = [found(lists, one, None) for one in QUESTIONS]
    assert few == [found(lists, one, {"nprobe": 1}) for one in QUESTIONS]
    all_lists = [found(lists, one, {"nprobe": 4}) for one in QUESTIONS]
    assert few != all_lists
    assert all_lists == [found(client, one, None) for one in QUESTIONS]


@pytest.mark.parametrize("call", BODIES)
def test_what_was_asked_for_is_said_again_with_the_answer(lists: TestClient, call: str) -> None:
    for search, said in (
        ({"nprobe": 3, "candidates": 7}, {"nprobe": 3, "candidates": 7}),
        ({"nprobe": 2, "candidates": None}, {"nprobe": 2}),
        ({}, {}),
        (None, {}),
    ):
        response = lists.post(call, json=BODIES[call] | {"search": search})
        assert response.status_code == 200, response.text
        for one in response.json()["answers"] if call == "/compare" else [response.json()]:
            assert one["search"] == said


@pytest.mark.parametrize("call", BODIES)
def test_a_number_that_the_index_does_not_have_is_refused_with_what_to_do(reader: TestClient, call: str) -> None:
    response = reader.post(call, json=BODIES[call] | {"search": {"efSearch": 64}})
    reason = "the index 'tiny-2016' of type flat has no such parameter. It has: none."
    reason += " Leave it out."
    assert refused(response) == (422, "invalid_request", [("search.efSearch", reason)])


def test_bm25_has_no_such_number(indexes_folder: Path, client: TestClient) -> None:
    add_bm25(IndexStore(indexes_folder), "tiny-2016")
    assert client.post("/index/swap", json={"version": "tiny-2016"}, headers=ADMIN).status_code == 200
    body = BODIES["/retrieve"] | {"retriever": "bm25"}
    assert client.post("/retrieve", json=body | {"search": {}}).status_code == 200
    response = client.post("/retrieve", json=body | {"search": {"nprobe": 1}})
    assert (response.status_code, response.json()["errors"][0]["field"]) == (422, "search.nprobe")
    assert "retriever bm25 has no such parameter" in response.json()["detail"]


def test_more_lists_than_there_are_cannot_be_searched(lists: TestClient) -> None:
    response = lists.post("/retrieve", json=BODIES["/retrieve"] | {"search": {"nprobe": 5}})
    reason = "must be from 1 to 4 for 'tiny-2016', not 5"
    assert refused(response) == (422, "invalid_request", [("search.nprobe", reason)])
