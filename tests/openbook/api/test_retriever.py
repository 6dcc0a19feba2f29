"""The retriever of a question: named by the question, or by the service; refused where a version lacks it."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from starlette.testclient import TestClient

from openbook.api.app import create_app
from openbook.entities import Passage, PriorWeights
from openbook.errors import CheckpointInvalid, NotCalibrated, RetrieverUnavailable
from openbook.indexing.bm25_publish import add_bm25
from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.engine import RagEngine
from openbook.rag.reranker import load_reranker
from openbook.settings import Settings
from openbook.storage.index_store import IndexStore
from tests.openbook.api.conftest import ADMIN, BODIES, PERU, PINNED, MakeClient, client_of, ended_with


@pytest.fixture
def both(indexes_folder: Path) -> IndexStore:
    """The two versions, both with BM25."""
    store = IndexStore(indexes_folder)
    for version in store.versions():
        add_bm25(store, version)
    return store


@pytest.mark.parametrize("call", PINNED)
def test_a_question_names_its_retriever_and_the_answer_says_which_it_was(
    both: IndexStore, client: TestClient, call: str
) -> None:
    found = {}
    for retriever in ("dense", "bm25", None):
        response = client.post(call, json=BODIES[call] | {"retriever": retriever})
        assert response.status_code == 200, response.text
        assert response.json()["retriever"] == (retriever or "dense")
        found[retriever] = [(one["passage_id"], one["doc_score"]) for one in response.json()["passages"]]
    assert found[None] == found["dense"] != found["bm25"]
    with_scores = IndexStore(both.folder).open("tiny-2016")
    rows, scores = with_scores.bm25().search([PERU], 4)
    expected = [one.passage_id for one in with_scores.passages(rows[0].tolist())]
    with_scores.close()
    assert found["bm25"] == list(zip(expected, scores[0].tolist(), strict=True))
    assert found["bm25"][0][0] == "peru"


@pytest.mark.parametrize("call", BODIES)
def test_what_is_lacking_is_refused_and_dense_questions_are_answered(reader: TestClient, call: str) -> None:
    assert reader.get("/index").json()["reranker"] is None
    for retriever, code, said in (
        ("bm25", "retriever_unavailable", "openbook index bm25 tiny-2016"),
        ("reranked", "retriever_unavailable", "has no reranker"),
    ):
        refused = reader.post(call, json=BODIES[call] | {"retriever": retriever})
        assert ended_with(refused) == (409, code)
        assert said in refused.json()["detail"]
    assert reader.post(call, json=BODIES[call]).status_code == 200


@pytest.mark.parametrize("question", ["zzz", "the of and", "北京 ?", "é" * 2000])
def test_questions_without_a_known_word_have_an_answer_all_the_same(
    both: IndexStore, client: TestClient, question: str
) -> None:
    response = client.post("/retrieve", json={"question": question, "n_docs": 4, "retriever": "bm25"})
    assert response.status_code == 200
    assert [one["prior"] for one in response.json()["passages"]] == pytest.approx([0.25] * 4)


def test_a_service_that_is_set_to_bm25_asks_it_unless_a_question_says_otherwise(
    both: IndexStore, make_client: MakeClient
) -> None:
    client = make_client(retriever="bm25")
    for call, body in PINNED.items():
        assert client.post(call, json=body).json()["retriever"] == "bm25"
        assert client.post(call, json=body | {"retriever": "dense"}).json()["retriever"] == "dense"


@pytest.mark.parametrize("retriever", ["bm25", "hybrid"])
def test_a_service_does_not_start_on_a_version_without_its_retriever(make_client: MakeClient, retriever: str) -> None:
    with pytest.raises(RetrieverUnavailable, match="openbook index bm25 tiny-2016"):
        make_client(retriever=retriever)


def test_a_service_that_is_set_to_bm25_does_not_swap_to_a_version_without_it(
    indexes_folder: Path, make_client: MakeClient
) -> None:
    add_bm25(IndexStore(indexes_folder), "tiny-2016")
    client = make_client(retriever="bm25")
    refused = client.post("/index/swap", json={"version": "tiny-2018"}, headers=ADMIN)
    assert ended_with(refused) == (409, "retriever_unavailable")
    assert client.get("/index").json()["live"]["version"] == "tiny-2016"


@pytest.fixture
def weighing(settings: Settings) -> Iterator[TestClient]:
    """A client of a service whose checkpoint has a prior, and of whose versions one has BM25."""
    add_bm25(IndexStore(Path(settings.indexes)), "tiny-2018")
    checkpoint = load_checkpoint(settings.checkpoint)
    facts = replace(checkpoint.facts, prior=PriorWeights(dense=0.5, bm25=2.0))
    with client_of(create_app(settings, engine=RagEngine(replace(checkpoint, facts=facts)))) as client:
        yield client


@pytest.mark.parametrize("call", PINNED)
def test_a_question_is_hybrid_where_the_version_can_unless_it_says_otherwise(weighing: TestClient, call: str) -> None:
    def ask(index: str, retriever: str | None) -> dict[str, float]:
        body = weighing.post(call, json=PINNED[call] | {"n_docs": 12, "index": index, "retriever": retriever}).json()
        used.append(body["retriever"])
        return {one["passage_id"]: one["doc_score"] for one in body["passages"]}

    used: list[str] = []
    both, dense, bm25 = (ask("tiny-2018", retriever) for retriever in (None, "dense", "bm25"))
    assert both == pytest.approx({name: 0.5 * dense[name] + 2.0 * bm25[name] for name in dense})
    assert list(both) == sorted(both, key=lambda name: -both[name])
    assert ask("tiny-2018", "hybrid") == ask("tiny-2018", "auto") == both
    ask("tiny-2016", None)
    assert used == ["hybrid", "dense", "bm25", "hybrid", "hybrid", "dense"]


def test_the_retriever_of_a_comparison_is_each_versions_own(weighing: TestClient) -> None:
    answers = weighing.post("/compare", json=BODIES["/compare"]).json()["answers"]
    assert [one["retriever"] for one in answers] == ["dense", "hybrid"]
    refused = weighing.post("/compare", json=BODIES["/compare"] | {"retriever": "hybrid"})
    assert ended_with(refused) == (409, "retriever_unavailable")


def test_the_index_call_shows_the_weights_of_the_checkpoint(weighing: TestClient) -> None:
    assert weighing.get("/index").json()["prior"] == {"dense": 0.5, "bm25": 2.0}


def test_a_checkpoint_without_a_prior_refuses_hybrid_questions(both: IndexStore, client: TestClient) -> None:
    for call, body in BODIES.items():
        refused = client.post(call, json=body | {"retriever": "hybrid"})
        assert ended_with(refused) == (409, "not_calibrated")
        assert "has no 'prior'. Write it: openbook calibrate" in refused.json()["detail"]


def test_a_service_that_is_set_to_hybrid_does_not_start_without_a_prior(
    both: IndexStore, make_client: MakeClient
) -> None:
    with pytest.raises(NotCalibrated, match="'prior'"):
        make_client(retriever="hybrid")


def test_a_service_with_a_reranker_answers_with_it_where_it_is_asked_for(
    both: IndexStore, settings: Settings, tiny_reranker: Path
) -> None:
    """Composed as `openbook serve --reranker` does it; the two versions have BM25 here, and do not need it."""
    settings = settings.model_copy(update={"reranker": str(tiny_reranker)})
    reranker = load_reranker(str(tiny_reranker), device=torch.device("cpu"), dtype=torch.float32)
    with client_of(create_app(settings)) as client:
        name = client.get("/index").json()["reranker"]
        assert re.fullmatch(r"tiny-cross@[0-9a-f]{12}", name)
        for call, body in PINNED.items():
            assert client.post(call, json=body).json()["retriever"] == "dense"
            found = client.post(call, json=body | {"retriever": "reranked"}).json()
            assert found["retriever"] == "reranked"
            passages = [Passage(one["passage_id"], one["title"], one["text"]) for one in found["passages"]]
            scores = [one["doc_score"] for one in found["passages"]]
            assert scores == pytest.approx(reranker.logits(PERU, passages).tolist(), abs=1e-5)
            assert scores == sorted(scores, reverse=True)
    with client_of(create_app(settings.model_copy(update={"retriever": "reranked"}))) as client:
        answers = client.post("/compare", json=BODIES["/compare"]).json()["answers"]
        assert [one["retriever"] for one in answers] == ["reranked", "reranked"]


def test_a_service_does_not_start_without_the_reranker_of_its_settings(
    settings: Settings, make_client: MakeClient
) -> None:
    with pytest.raises(RetrieverUnavailable, match="OPENBOOK_RERANKER"):
        make_client(retriever="reranked")
    wrong = settings.model_copy(update={"reranker": settings.checkpoint})
    with pytest.raises(CheckpointInvalid, match=r"cannot be used.*one label"), client_of(create_app(wrong)):
        pass


def test_a_version_that_is_live_gets_bm25_by_a_swap_to_itself(indexes_folder: Path, client: TestClient) -> None:
    body = BODIES["/retrieve"] | {"retriever": "bm25"}
    assert client.post("/retrieve", json=body).status_code == 409
    add_bm25(IndexStore(indexes_folder), "tiny-2016")
    assert client.post("/retrieve", json=body).status_code == 409
    assert client.post("/index/swap", json={"version": "tiny-2016"}, headers=ADMIN).status_code == 200
    assert client.post("/retrieve", json=body).json()["index"]["generation"] == 1
