"""A version that holds fewer passages than a question reads by default."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from openbook.api.app import create_app
from openbook.indexing.bm25_publish import add_bm25
from openbook.rag.engine import RagEngine
from openbook.settings import Settings
from openbook.storage.index_store import IndexStore
from tests.fixtures.indexes import publish_tiny, tiny_passages, tiny_vectors
from tests.openbook.api.conftest import PERU, client_of, refused

CALLS: dict[str, dict[str, object]] = {
    "/answer": {"max_new_tokens": 2},
    "/retrieve": {},
    "/score": {"targets": ["peru", "chile"]},
}


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path, engine: RagEngine) -> Iterator[TestClient]:
    """Serves `two`, of two passages and BM25, and has `twelve` open."""
    store = IndexStore(tmp_path_factory.mktemp("few"))
    passages = tiny_passages("tiny-2016")[:2]
    publish_tiny(store, "tiny-2016", as_version="two", passages=passages, vectors=tiny_vectors(passages))
    add_bm25(store, "two")
    publish_tiny(store, "tiny-2016", as_version="twelve")
    store.set_current("two")
    settings = Settings(indexes=store.folder, checkpoint=str(tiny_checkpoint), follow_s=0.0)
    with client_of(create_app(settings, engine=engine)) as client:
        yield client


def n_passages(client: TestClient, call: str, **more: object) -> int:
    response = client.post(call, json={"question": PERU, **CALLS[call], **more})
    assert response.status_code == 200, response.text
    return len(response.json()["passages"])


@pytest.mark.parametrize("call", CALLS)
def test_a_question_that_names_no_number_reads_all_there_are(few: TestClient, call: str) -> None:
    assert n_passages(few, call) == n_passages(few, call, n_docs=None) == n_passages(few, call, n_docs=2) == 2
    assert n_passages(few, call, retriever="bm25") == 2
    assert n_passages(few, call, index="twelve") == 5


@pytest.mark.parametrize("retriever", ["dense", "bm25"])
def test_a_number_that_is_named_is_the_number_or_an_error(few: TestClient, retriever: str) -> None:
    response = few.post("/answer", json={"question": PERU, "n_docs": 3, "retriever": retriever})
    reason = "3 passages were asked for, the index 'two' holds 2. Ask for fewer."
    assert refused(response) == (422, "invalid_request", [("n_docs", reason)])


def test_a_comparison_reads_of_each_version_what_it_holds(few: TestClient) -> None:
    body = {"question": PERU, "versions": ["two", "twelve"], "max_new_tokens": 2}
    answers = few.post("/compare", json=body).raise_for_status().json()["answers"]
    assert [len(one["passages"]) for one in answers] == [2, 5]
