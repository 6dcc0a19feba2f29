"""What a question may cost: the product of its numbers, and its time."""

from typing import Any

import pytest

from openbook.rag.engine import RagEngine
from tests.openbook.api.conftest import BODIES, PERU, MakeClient, ended_with, refused

ANSWER = {"question": PERU, "n_docs": 4, "num_beams": 2, "max_new_tokens": 5}
THOROUGH = ANSWER | {"model": "sequence"}
VERSIONS = {"versions": ["tiny-2016", "tiny-2018"]}
SCORE = {"question": PERU, "n_docs": 4, "targets": ["peru", "é"]}
# The call, its body, and the steps of work that it asks for.
COSTS = [
    ("/answer", ANSWER | {"model": "token"}, 4 * 2 * 5),
    ("/answer", THOROUGH | {"decoding": "fast"}, 4 * 2 * 5),
    ("/answer", THOROUGH, 4 * 2 * 5 * (1 + 4)),
    ("/answer", ANSWER | {"num_beams": None, "num_answers": 3, "model": "token"}, 4 * 3 * 5),
    ("/answer", {"question": PERU, "model": "token"}, 5 * 32),
    ("/compare", ANSWER | {"model": "token"} | VERSIONS, 4 * 2 * 5 * 2),
    ("/compare", THOROUGH | VERSIONS, 4 * 2 * 5 * (1 + 4) * 2),
    # four bytes and two, and the end of each target
    ("/score", SCORE, 4 * (4 + 1 + 2 + 1)),
]


@pytest.mark.parametrize(("path", "body", "work"), COSTS)
def test_a_question_may_ask_for_so_much_work_and_no_more(
    make_client: MakeClient, path: str, body: dict[str, Any], work: int
) -> None:
    assert make_client(max_work=work).post(path, json=body).status_code == 200
    status, code, errors = refused(make_client(max_work=work - 1).post(path, json=body))
    assert (status, code, [field for field, _ in errors]) == (422, "invalid_request", ["n_docs"])
    assert f"it makes {work:,} steps of work, and OPENBOOK_MAX_WORK allows {work - 1:,}." in errors[0][1]


def test_too_much_work_is_refused_before_any_is_done(make_client: MakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    client = make_client(max_work=39)

    def nothing(*given: object, **named: object) -> None:
        raise AssertionError(given, named)

    monkeypatch.setattr(RagEngine, "answer", nothing)
    (one,) = client.post("/answers", json={"questions": [ANSWER | {"model": "token"}]}).json()["results"]
    assert (one["error"]["status"], one["error"]["errors"][0]["field"]) == (422, "n_docs")
    assert ended_with(client.post("/answer", json=ANSWER | {"stream": True})) == (422, "invalid_request")


def test_clients_of_openais_api_hear_of_work_in_their_words(make_client: MakeClient) -> None:
    body = {"model": "openbook", "messages": [{"role": "user", "content": PERU}], "openbook": {"n_docs": 4}}
    response = make_client(max_work=4).post("/v1/chat/completions", json=body)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (400, "invalid_request", "openbook.n_docs")


def test_a_retrieval_generates_nothing(make_client: MakeClient) -> None:
    assert make_client(max_work=1).post("/retrieve", json={"question": PERU, "n_docs": 12}).status_code == 200


def test_the_usual_bounds_let_the_papers_questions_pass(make_client: MakeClient) -> None:
    # thorough RAG-Sequence over 50 passages with a beam of four; the tiny index is smaller, and says so
    body = {"question": PERU, "n_docs": 50, "num_beams": 4, "model": "sequence"}
    _, _, [(field, reason)] = refused(make_client().post("/answer", json=body))
    assert (field, "the index 'tiny-2016' holds 12" in reason) == ("n_docs", True)


def test_no_question_may_name_a_longer_time_than_the_operator(make_client: MakeClient) -> None:
    client = make_client(timeout_s=5.0)
    for path, body in BODIES.items():
        assert client.post(path, json=body | {"timeout_s": 20}).status_code == 200
        response = client.post(path, json=body | {"timeout_s": 20.5})
        assert refused(response) == (422, "invalid_request", [("timeout_s", "must be at most 20, not 20.5")])


@pytest.mark.parametrize(("each_s", "all_s"), [(0.000001, "2e-06"), (0.000004, "4e-06")])
def test_a_comparison_has_the_time_of_each_version_and_no_more_than_a_call_may(
    make_client: MakeClient, each_s: float, all_s: str
) -> None:
    client = make_client(timeout_s=0.000001)
    response = client.post("/compare", json=BODIES["/compare"] | {"timeout_s": each_s})
    assert ended_with(response) == (504, "deadline_exceeded")
    assert response.json()["detail"].startswith(f"No answer within {all_s} s.")


def test_a_question_that_names_no_length_has_the_operators_where_that_is_shorter(make_client: MakeClient) -> None:
    body, usual = {"question": PERU, "abstain": "never"}, make_client()
    whole, short = (usual.post("/answer", json=body | more).json()["tokens"] for more in ({}, {"max_new_tokens": 3}))
    client = make_client(max_new_tokens=3)
    assert client.post("/answer", json=body).json()["tokens"] == short != whole
    properties = client.get("/openapi.json").json()["components"]["schemas"]["AnswerRequest"]["properties"]
    assert (properties["max_new_tokens"]["default"], properties["max_new_tokens"]["maximum"]) == (3, 3)
    refusal = refused(client.post("/answer", json={"question": PERU, "max_new_tokens": 32}))
    assert refusal == (422, "invalid_request", [("max_new_tokens", "must be at most 3, not 32")])
