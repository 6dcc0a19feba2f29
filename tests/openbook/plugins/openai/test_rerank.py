"""POST /v1/rerank: texts of the client, by the probability that each of them answers."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from openbook.entities import Passage
from openbook.rag.engine import RagEngine
from tests.openbook.api.conftest import PERU, MakeClient

TEXTS = [f"the president of peru is {name} ." for name in ("chile", "nepal", "the king", "a", "b", "c", "d", "e", "f")]


def reranked(client: TestClient, **changed: Any) -> Any:
    return client.post("/v1/rerank", json={"model": "openbook", "query": PERU, "documents": TEXTS} | changed)


def test_each_text_has_its_own_score_and_the_most_probable_comes_first(reader: TestClient, engine: RagEngine) -> None:
    found = reranked(reader).json()["results"]
    assert sorted(one["index"] for one in found) == list(range(len(TEXTS)))
    scores = {one["index"]: one["relevance_score"] for one in found}
    assert list(scores.values()) == sorted(scores.values(), reverse=True)
    assert all(one["document"] is None for one in found)
    for number, text in enumerate(TEXTS):
        # alone as in company
        (alone,) = engine.relevance(PERU, [Passage("", "", text)])
        assert scores[number] == pytest.approx(alone, abs=1e-5)


def test_the_best_are_returned_with_their_texts_where_that_is_asked(reader: TestClient) -> None:
    documents = [{"text": TEXTS[0], "title": "peru"}, TEXTS[1]]
    response = reranked(reader, documents=documents, top_n=1, return_documents=True, max_chunks_per_doc=3)
    (best,) = response.json()["results"]
    assert best["document"] == {"text": TEXTS[best["index"]]}
    assert response.headers["x-openbook-ignored"] == "max_chunks_per_doc"


@pytest.mark.parametrize(
    ("changed", "status", "param"),
    [
        ({"model": "rerank-v3.5"}, 404, "model"),
        ({"model": "openbook:wiki-1999"}, 404, "model"),
        ({"query": " "}, 400, "query"),
        ({"documents": []}, 400, "documents"),
        ({"documents": ["x"] * 51}, 400, "documents"),
        ({"documents": ["x", 3]}, 400, "documents[1]"),
        ({"documents": [{"text": "x", "txt": "y"}]}, 400, "documents[0].txt"),
        ({"top_n": 0}, 400, "top_n"),
        ({"topn": 1}, 400, "topn"),
    ],
)
def test_what_is_no_request_is_refused(reader: TestClient, changed: Any, status: int, param: str) -> None:
    response = reranked(reader, **changed)
    assert (response.status_code, response.json()["error"]["param"]) == (status, param)


def test_it_takes_a_place_in_the_queue(make_client: MakeClient) -> None:
    response = reranked(make_client(timeout_s=1e-9))
    assert (response.status_code, response.json()["error"]["code"]) == (504, "deadline_exceeded")
