"""Questions that read only some of the passages."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient

from openbook.api.app import create_app
from openbook.indexing.bm25_publish import add_bm25
from openbook.rag.engine import RagEngine
from openbook.settings import settings_class
from openbook.storage.index_store import IndexStore
from tests.fixtures.databases import FILES_OR_MILVUS, addresses, push_all_vectors
from tests.fixtures.indexes import publish_tiny, tiny_passages
from tests.openbook.api.conftest import ADMIN, BODIES, PERU, PINNED, TOKEN, client_of, refused

# The first six passages are of 2016, the others of 2018; each third has no date.
LATE = {"field": "meta.published", "operator": ">=", "value": "2018-01-01"}
ROWS = {"field": "meta.row", "operator": "in", "value": [1, 4, 7]}
NOTHING = {"field": "id", "operator": "==", "value": "nobody"}
CHAT = {"model": "openbook", "messages": [{"role": "user", "content": PERU}]}


@pytest.fixture(scope="module", params=FILES_OR_MILVUS)
def dated_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tiny-2016 with dates and metadata and BM25; tiny-2018 has neither."""
    store = IndexStore(tmp_path_factory.mktemp("dated"))
    passages = [
        replace(
            passage,
            published=None if row % 3 == 2 else f"201{6 if row < 6 else 8}-0{1 + row % 9}-01",
            metadata=(("row", row), ("tags", ("even",) if row % 2 == 0 else ("odd", "late"))),
        )
        for row, passage in enumerate(tiny_passages("tiny-2016"))
    ]
    publish_tiny(store, "tiny-2016", passages=passages)
    add_bm25(store, "tiny-2016")
    publish_tiny(store, "tiny-2018")
    store.set_current("tiny-2016")
    return store.folder if request.param == "files" else push_all_vectors(store.folder, store.folder.parent / "milvus")


@pytest.fixture(scope="module")
def dated(dated_folder: Path, tiny_checkpoint: Path, engine: RagEngine) -> Iterator[TestClient]:
    """A client of a service that has both open."""
    settings = settings_class()(
        **{"indexes": dated_folder, "checkpoint": str(tiny_checkpoint), "admin_token": SecretStr(TOKEN)},
        **{"follow_s": 0.0, "residents": 2, "milvus_databases": addresses(dated_folder)},
    )
    with client_of(create_app(settings, engine=engine)) as client:
        assert client.post("/index/load", json={"version": "tiny-2018"}, headers=ADMIN).status_code == 200
        yield client


def ids(client: TestClient, chosen: Any, **options: Any) -> list[str]:
    response = client.post("/retrieve", json={"question": PERU, "n_docs": 12, "filter": chosen} | options)
    assert response.status_code == 200, response.text
    return [one["passage_id"] for one in response.json()["passages"]]


@pytest.mark.parametrize("retriever", ["dense", "bm25"])
def test_what_passes_is_found_in_the_order_of_all(dated: TestClient, retriever: str) -> None:
    names = [passage.passage_id for passage in tiny_passages("tiny-2016")]
    everything = ids(dated, None, retriever=retriever)
    assert sorted(everything) == sorted(names)
    for chosen, rows in (
        (LATE, {6, 7, 9, 10}),
        (ROWS, {1, 4, 7}),
        ({"operator": "NOT", "conditions": [ROWS]}, {*range(12)} - {1, 4, 7}),
        ({"operator": "AND", "conditions": [LATE, ROWS]}, {7}),
        ({"field": "published", "operator": "==", "value": None}, {2, 5, 8, 11}),
        ({"field": "meta.tags", "operator": "==", "value": "late"}, {1, 3, 5, 7, 9, 11}),
    ):
        wanted = {names[row] for row in rows}
        assert ids(dated, chosen, retriever=retriever) == [name for name in everything if name in wanted]
        assert ids(dated, chosen, retriever=retriever, n_docs=1) == [next(n for n in everything if n in wanted)]


@pytest.mark.parametrize("call", PINNED)
def test_the_prior_is_over_what_passed(dated: TestClient, call: str) -> None:
    """Fewer than n_docs pass: all of them are read."""
    response = dated.post(call, json=PINNED[call] | {"filter": ROWS})
    assert response.status_code == 200, response.text
    passages = response.json()["passages"]
    assert len(passages) == 3
    assert sum(one["prior"] for one in passages) == pytest.approx(1)


def test_answers_takes_a_filter_for_each_question(dated: TestClient) -> None:
    one = PINNED["/answer"]
    asked = [one | {"filter": ROWS}, one | {"filter": {}}, one | {"filter": NOTHING}, one]
    results = dated.post("/answers", json={"questions": asked}).json()["results"]
    assert [len(end["answer"]["passages"]) if "answer" in end else end["error"]["code"] for end in results] == [
        *(3, "filter_invalid", "filter_matches_nothing"),
        4,
    ]


def test_a_filter_of_openai_s_calls_stands_with_the_other_options(dated: TestClient) -> None:
    response = dated.post("/v1/chat/completions", json=CHAT | {"openbook": {"filter": ROWS}})
    assert response.status_code == 200, response.text
    for chosen, param, code in (
        ({"field": "id"}, "openbook.filter.operator", "filter_invalid"),
        (ROWS | {"field": "meta.no"}, "openbook.filter.field", "filter_field_unknown"),
        (NOTHING, None, "filter_matches_nothing"),
    ):
        refusal = dated.post("/v1/chat/completions", json=CHAT | {"openbook": {"filter": chosen}})
        assert refusal.status_code == 400
        assert (refusal.json()["error"]["param"], refusal.json()["error"]["code"]) == (param, code)


@pytest.mark.parametrize("call", PINNED)
def test_where_nothing_passes_the_problem_names_the_version(dated: TestClient, call: str) -> None:
    response = dated.post(call, json=PINNED[call] | {"filter": NOTHING})
    assert (response.status_code, response.json()["code"]) == (422, "filter_matches_nothing")
    assert response.json()["detail"] == "No passage of the index 'tiny-2016' passes the filter."


@pytest.mark.parametrize("call", PINNED)
def test_a_version_without_the_field_says_which_fields_it_has(dated: TestClient, call: str) -> None:
    response = dated.post(call, json=PINNED[call] | {"filter": LATE, "index": "tiny-2018"})
    reason = "the passages of the index 'tiny-2018' have no field 'meta.published'. Fields: id, title."
    assert refused(response) == (422, "filter_field_unknown", [("filter.field", reason)])


def test_a_comparison_asks_no_version_where_the_filter_does_not_fit_another(
    dated: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = BODIES["/compare"]
    response = dated.post("/compare", json=both | {"filter": {"field": "id", "operator": "!=", "value": "peru"}})
    assert ["peru" in [one["passage_id"] for one in answer["passages"]] for answer in response.json()["answers"]] == [
        *(False, False)
    ]
    monkeypatch.setattr(RagEngine, "answer", lambda *_: pytest.fail("a version was asked"))
    response = dated.post("/compare", json=both | {"filter": LATE})
    assert (response.status_code, response.json()["code"]) == (422, "filter_field_unknown")
    assert "index 'tiny-2018'" in response.json()["detail"]


def test_a_value_of_another_type_is_refused_with_the_type(dated: TestClient) -> None:
    chosen = {"operator": "OR", "conditions": [LATE, {"field": "meta.row", "operator": ">", "value": "3"}]}
    response = dated.post("/retrieve", json={"question": PERU, "filter": chosen})
    reason = "the field 'meta.row' of the index 'tiny-2016' is of type integer: "
    reason += "it takes an integer of 64 bits, not '3'."
    assert refused(response) == (422, "filter_type_wrong", [("filter.conditions[1].value", reason)])


def deep(levels: int) -> str:
    return '{"operator":"NOT","conditions":[' * levels + '{"field":"id","operator":"==","value":1}' + "]}" * levels


@pytest.mark.parametrize(
    "chosen",
    [
        *("3", '"x"', "[]", "true", "{}", deep(8), deep(200), '{"field":"id","operator":"in","value":"x"}'),
        *('{"field":null,"operator":"==","value":1}', '{"field":"id","operator":{},"value":1}'),
        '{"field":"id","operator":"==","value":"\\ud800"}',
        '{"field":"\\ud800","operator":"==","value":"a"}',
        '{"field":"' + "x" * 3000 + '","operator":"==","value":"a"}',
        '{"field":"meta.row","operator":"==","value":' + "9" * 4000 + "}",
        '{"operator":"AND","conditions":[' + ",".join(['{"field":"id","operator":"==","value":"a"}'] * 65) + "]}",
        '{"field":"id","operator":"in","value":[' + ",".join(['"a"'] * 1001) + "]}",
        '{"field":"id","operator":"==","value":{"field":"id"}}',
        '{"\\ud800":1,"operator":"AND","conditions":[]}',
    ],
)
def test_hostile_filters_are_the_client_s_fault(dated: TestClient, chosen: str) -> None:
    for call in ("/retrieve", "/answer"):
        body = '{"question": "who", "filter": ' + chosen + "}"
        response = dated.post(call, content=body.encode(), headers={"content-type": "application/json"})
        assert response.status_code in (400, 422), response.text
        assert response.json()["code"] in (
            "malformed_body",
            "invalid_request",
            "filter_invalid",
            "filter_field_unknown",
        )
        assert len(response.text) < 2000
