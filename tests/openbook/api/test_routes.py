"""The calls as clients see them: exact status, exact body."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import httpx
import pytest
from starlette.testclient import TestClient

import openbook
from openbook.api.app import create_app
from openbook.api.schemas import AnswerRequest
from openbook.entities import AnswerOptions
from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.engine import RagEngine
from openbook.settings import Settings
from openbook.storage.index_store import IndexStore
from tests.fixtures.indexes import publish_tiny, tiny_passages
from tests.openbook.api.conftest import ADMIN, BODIES, BOTH_KINDS, PERU, PINNED, MakeClient, client_of, ended_with

LIVE = {"version": "tiny-2016", "generation": 0, "snapshot_date": "2016-12-21"}
SWAPPED = {"version": "tiny-2018", "generation": 1, "snapshot_date": "2018-12-20"}


@BOTH_KINDS
@pytest.mark.parametrize("model", ["token", "sequence"])
def test_an_answer_has_the_documented_body(
    client: TestClient, engine: RagEngine, settings: Settings, model: str
) -> None:
    response = client.post("/answer", json={"question": PERU, "model": model, "n_docs": 3, "num_answers": 2})
    assert response.status_code == 200
    body = response.json()
    snapshot = IndexStore(Path(settings.indexes)).open("tiny-2016")
    options = AnswerOptions(n_docs=3, model=model, num_beams=2, num_answers=2)  # type: ignore[arg-type]
    (expected,) = engine.answer([PERU], snapshot, options)
    snapshot.close()
    seconds = body.pop("seconds")
    assert list(seconds) == ["queue", "encode", "retrieve", "generate", "total"]
    assert all(value > 0 for value in seconds.values())
    assert body == {
        "answer": expected.answers[0].text,
        "abstained": False,
        "understood_as": None,
        "log_prob": expected.answers[0].log_prob,
        "model": model,
        "retriever": "dense",
        "search": {},
        "answers": [{"text": one.text, "log_prob": one.log_prob} for one in expected.answers],
        "passages": [
            {
                "rank": found.rank,
                "passage_id": found.passage.passage_id,
                "title": found.passage.title,
                "text": found.passage.text,
                "url": None,
                "section": None,
                "published": None,
                "metadata": {},
                "doc_score": found.doc_score,
                "prior": found.prior,
                "posterior": found.posterior,
                "answer_spans": [list(span) for span in found.answer_spans],
            }
            for found in expected.passages
        ],
        "tokens": [
            {"text": token.text, "log_prob": token.log_prob, "posterior": list(token.posterior)}
            for token in expected.tokens
        ],
        "evidence": [asdict(one) for one in expected.evidence],
        "leave_one_out": None,
        "audit": None,
        "posterior_kind": "per_token" if model == "token" else "running",
        "no_answer": expected.no_answer,
        "index": LIVE,
        "attribution": "",
        "checkpoint": engine.facts.checkpoint,
    }
    for token in body["tokens"]:
        assert sum(token["posterior"]) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ({}, {"num_beams": 1}),
        ({"num_answers": 3}, {"num_beams": 3, "num_answers": 3}),
        ({"num_beams": None, "num_answers": 2}, {"num_beams": 2, "num_answers": 2}),
        ({"num_beams": 4}, {"num_beams": 4, "num_answers": 1}),
    ],
)
def test_a_question_is_decoded_greedily_unless_it_asks_for_beams_or_answers(
    reader: TestClient, engine: RagEngine, asked: dict[str, object], meant: dict[str, object]
) -> None:
    one, other = (reader.post("/answer", json={"question": PERU, **options}).json() for options in (asked, meant))
    assert one["answers"] == other["answers"]
    assert len(one["answers"]) == meant.get("num_answers", 1)
    assert (
        AnswerRequest.model_validate({"question": PERU, **asked}).options(Settings(), engine).num_beams
        == meant["num_beams"]
    )


@pytest.mark.parametrize("call", ["/answer", "/score", "/compare"])
def test_a_question_that_names_no_model_takes_the_checkpoints_own(settings: Settings, call: str) -> None:
    checkpoint = load_checkpoint(settings.checkpoint)
    facts = replace(checkpoint.facts, model="sequence")
    with client_of(create_app(settings, engine=RagEngine(replace(checkpoint, facts=facts)))) as client:
        assert client.get("/index").json()["model"] == "sequence"
        for asked, model in (({}, "sequence"), ({"model": None}, "sequence"), ({"model": "token"}, "token")):
            body = client.post(call, json=BODIES[call] | asked).json()
            assert {one["model"] for one in body.get("answers" if call == "/compare" else "", [body])} == {model}


@BOTH_KINDS
def test_scores_are_normalised_over_the_targets(reader: TestClient, engine: RagEngine) -> None:
    response = reader.post("/score", json={"question": PERU, "targets": ["chile", "nepal"], "n_docs": 2})
    assert response.status_code == 200
    body = response.json()
    named = ["retriever", "search", "index", "attribution", "checkpoint", "seconds"]
    assert list(body) == ["best", "targets", "passages", "model", *named]
    assert [one["target"] for one in body["targets"]] == ["chile", "nepal"]
    assert sum(one["probability"] for one in body["targets"]) == pytest.approx(1)
    assert body["best"] == max(body["targets"], key=lambda one: one["log_prob"])["target"]
    assert len(body["passages"]) == len(body["targets"][0]["posterior"]) == 2
    assert body["index"] == LIVE


def test_retrieval_gives_scores_and_prior_and_nothing_of_an_answer(reader: TestClient) -> None:
    body = reader.post("/retrieve", json={"question": PERU, "n_docs": 12}).json()
    assert list(body) == ["passages", "retriever", "search", "index", "attribution", "checkpoint", "seconds"]
    source = ["url", "section", "published", "metadata"]
    assert list(body["passages"][0]) == ["rank", "passage_id", "title", "text", *source, "doc_score", "prior"]
    assert {one["text"] for one in body["passages"]} == {passage.text for passage in tiny_passages("tiny-2016")}
    assert [one["rank"] for one in body["passages"]] == list(range(1, 13))
    scores = [one["doc_score"] for one in body["passages"]]
    assert scores == sorted(scores, reverse=True)
    assert sum(one["prior"] for one in body["passages"]) == pytest.approx(1, abs=1e-5)


def test_passages_say_where_they_are_from_in_every_answer(client: TestClient, settings: Settings) -> None:
    fields = {
        "url": "https://example.org/peru?a=1&b=2",
        "section": "Politics > President",
        "published": "2018-12-20T10:00:00Z",
        "metadata": {"n": 3, "ok": True, "share": 1.0, "tags": ["x", "y"]},
    }
    said = (("n", 3), ("ok", True), ("share", 1.0), ("tags", ("x", "y")))
    rich = [replace(one, **(fields | {"metadata": said})) for one in tiny_passages("tiny-2018")]
    publish_tiny(IndexStore(Path(settings.indexes)), "tiny-2018", passages=rich, replace=True)
    assert client.post("/index/swap", json={"version": "tiny-2018"}, headers=ADMIN).status_code in (200, 202)
    for call, body in (
        ("answer", {"question": PERU}),
        ("retrieve", {"question": PERU}),
        ("score", {"question": PERU, "targets": ["nepal"]}),
    ):
        found = client.post(f"/{call}", json={**body, "index": "tiny-2018"}).json()["passages"]
        assert [{name: one[name] for name in fields} for one in found] == [fields] * len(found)
        assert found[0]["metadata"]["n"] is not True
    asked = {"model": "openbook", "messages": [{"role": "user", "content": PERU}]}
    completion = client.post("/v1/chat/completions", json=asked).json()
    [first, *_] = completion["choices"][0]["message"]["annotations"]
    assert first["url_citation"]["url"] == fields["url"]


def test_the_index_route_tells_what_is_live_open_and_on_disk(
    client: TestClient, settings: Settings, engine: RagEngine
) -> None:
    store = IndexStore(Path(settings.indexes))
    sizes = [sum(file.bytes for file in store.info(version).files.values()) for version in store.versions()]
    response = client.get("/index")
    assert response.status_code == 200
    assert response.json() == {
        "live": LIVE,
        "resident": [
            {**LIVE, "bytes": sizes[0], "live": True, "retiring": False, "leases": 0},
            {**SWAPPED, "generation": 0, "bytes": sizes[1], "live": False, "retiring": False, "leases": 0},
        ],
        "versions": ["tiny-2016", "tiny-2018"],
        "checkpoint": engine.facts.checkpoint,
        "model": "token",
        "max_no_answer": None,
        "prior": None,
        "reranker": None,
        "generator": None,
        "last_check": None,
        "feedback": False,
        "offers": [],
    }


def test_a_version_tells_its_manifest(client: TestClient, settings: Settings) -> None:
    manifest = json.loads((Path(settings.indexes) / "tiny-2018" / "manifest.json").read_text(encoding="utf-8"))
    body = client.get("/index/tiny-2018").json()
    # what a version has none of is not in its manifest
    absent = {name: body.pop(name) for name in ("passages_format", "metadata", "lineage", "bm25")}
    assert absent == {"passages_format": 1, "metadata": {}, "lineage": None, "bm25": None}
    assert body == {name: manifest[name] for name in body}
    assert (body["factory"], body["search"], body["index_reason"]) == ("Flat", {}, "flat was asked for")
    assert body["n_passages"] == 12
    assert body["snapshot_date"] == "2018-12-20"


def test_every_answer_carries_the_attribution_of_its_own_version(indexes_folder: Path, make_client: MakeClient) -> None:
    text = "From an encyclopedia, by its contributors"
    publish_tiny(IndexStore(indexes_folder), "tiny-2016", attribution=text, replace=True)
    client = make_client()
    for call, body in PINNED.items():
        assert client.post(call, json=body).json()["attribution"] == text
        assert client.post(call, json={**body, "index": "tiny-2018"}).json()["attribution"] == ""
    answers = client.post("/compare", json=BODIES["/compare"]).json()["answers"]
    assert [one["attribution"] for one in answers] == [text, ""]
    assert client.get("/index/tiny-2016").json()["attribution"] == text


@BOTH_KINDS
def test_a_swap_changes_the_answers_and_nothing_else(client: TestClient, settings: Settings) -> None:
    asked = {"question": PERU, "n_docs": 12}
    before = client.post("/answer", json=asked).json()
    response = client.post("/index/swap", json={"version": "tiny-2018"}, headers=ADMIN)
    assert response.status_code == 200
    body = response.json()
    # open since the start
    assert list(body.pop("seconds")) == ["verify", "warm", "flip", "current", "total"]
    assert body == {"version": "tiny-2018", "previous": "tiny-2016", "generation": 1, "durable": True}
    after = client.post("/answer", json=asked).json()
    assert (before["index"], after["index"]) == (LIVE, SWAPPED)
    for answer, version in ((before, "tiny-2016"), (after, "tiny-2018")):
        assert {one["text"] for one in answer["passages"]} == {passage.text for passage in tiny_passages(version)}
    assert client.get("/readyz").json()["index"] == SWAPPED
    assert (Path(settings.indexes) / "CURRENT").read_text(encoding="utf-8") == "tiny-2018\n"


def test_the_version_to_start_with_can_be_named(make_client: MakeClient) -> None:
    assert make_client(index="tiny-2018").get("/index").json()["live"]["version"] == "tiny-2018"


def test_the_policy_of_the_settings_is_for_swaps_that_name_none(make_client: MakeClient) -> None:
    client = make_client(swap_policy="resource", residents=1)
    assert "drain" in client.post("/index/swap", json={"version": "tiny-2018"}, headers=ADMIN).json()["seconds"]
    body = {"version": "tiny-2016", "policy": "availability"}
    assert "drain" not in client.post("/index/swap", json=body, headers=ADMIN).json()["seconds"]


@BOTH_KINDS
@pytest.mark.parametrize("path", PINNED)
def test_a_question_is_pinned_to_an_open_version_or_refused(make_client: MakeClient, path: str) -> None:
    client = make_client(residents=1)

    def ask(index: str) -> httpx.Response:
        return client.post(path, json=PINNED[path] | {"index": index})

    assert ask("tiny-2016").json()["index"] == LIVE
    assert ended_with(ask("tiny-2018")) == (409, "index_not_resident")
    for unknown in ("wiki-1999", "a/b"):
        assert ended_with(ask(unknown)) == (404, "unknown_index")


def test_alive_and_ready(client: TestClient, engine: RagEngine) -> None:
    assert client.get("/healthz").json() == client.get("/health").json() == {"status": "alive"}
    assert client.get("/version").json() == {"version": openbook.__version__}
    response = client.get("/readyz")
    assert response.status_code == 200
    assert response.json() == {
        "status": "ready",
        "index": LIVE,
        "checkpoint": engine.facts.checkpoint,
        "following": {"ok": True, "wanted": None, "code": None, "detail": "", "since": None},
        "generator": None,
    }


def test_not_ready_without_an_index(client: TestClient) -> None:
    client.app.state.services.live.retire_all("It is being replaced.")  # type: ignore[attr-defined]
    for response in (client.get("/readyz"), client.post("/answer", json={"question": PERU})):
        assert (*ended_with(response), response.headers["retry-after"]) == (503, "not_ready", "5")
        assert response.json()["detail"] == "It is being replaced."
    assert client.get("/healthz").status_code == 200
    assert client.get("/index").json()["live"] is None
    assert client.post("/index/swap", json={"version": "tiny-2018"}, headers=ADMIN).status_code == 200
    assert client.get("/readyz").status_code == 200


def test_not_ready_when_no_thread_takes_up_work(client: TestClient) -> None:
    client.app.state.services.pool.stop()  # type: ignore[attr-defined]
    response = client.get("/readyz")
    assert (*ended_with(response), response.headers["retry-after"]) == (503, "not_ready", "5")
    assert response.json()["detail"] == "No thread takes up work."


def test_every_response_carries_a_request_id(reader: TestClient) -> None:
    for path in ("/healthz", "/nowhere", "/metrics", "/"):
        assert reader.get(path, headers={"x-request-id": "a.B-c_1"}).headers["x-request-id"] == "a.B-c_1"
    made = {reader.get("/healthz").headers["x-request-id"] for _ in range(3)}
    assert len(made) == 3


@pytest.mark.parametrize("given", ["", "with space", "x" * 65, "a;b", b"\xe9"])
def test_a_request_id_that_is_not_sane_is_replaced(reader: TestClient, given: str) -> None:
    response = reader.get("/healthz", headers={"x-request-id": given})
    assert len(response.headers["x-request-id"]) == 16


def test_an_unforeseen_error_is_logged_with_the_id_and_not_shown(
    reader: TestClient, settings: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a detail of ours")

    monkeypatch.setattr(RagEngine, "answer", fail)
    response = reader.post("/answer", json={"question": PERU}, headers={"x-request-id": "id-3"})
    assert response.headers["x-request-id"] == response.json()["request_id"] == "id-3"
    assert ended_with(response) == (500, "internal_error")
    assert response.json()["detail"] == "Something broke inside the service. This is a bug: please report it."
    [record] = [record for record in caplog.records if record.exc_info]
    assert vars(record)["facts"] == {"request_id": "id-3"}
    assert "a detail of ours" in caplog.text
    assert reader.get("/readyz").status_code == 200
