"""A question that would rather have no answer than a doubtful one."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from starlette.testclient import TestClient

from openbook.api.app import create_app
from openbook.api.schemas import AnswerRequest
from openbook.plugins.openai.requests import NO_ANSWER
from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.engine import RagEngine
from openbook.settings import Settings
from tests.openbook.api.conftest import BODIES, BOTH_KINDS, PINNED, client_of, ended_with
from tests.openbook.api.test_streaming import events_of

ASKED = PINNED["/answer"]


@pytest.fixture
def doubting(settings: Settings, reader: TestClient) -> Iterator[TestClient]:
    """A client of a service whose checkpoint doubts what it answers."""
    checkpoint = load_checkpoint(settings.checkpoint)
    facts = replace(checkpoint.facts, max_no_answer=reader.post("/answer", json=ASKED).json()["no_answer"] / 2)
    with client_of(create_app(settings, engine=RagEngine(replace(checkpoint, facts=facts)))) as client:
        yield client


def n_abstained(client: TestClient) -> float:
    (line,) = (line for line in client.get("/metrics").text.splitlines() if line.startswith("openbook_abstained_total"))
    return float(line.rpartition(" ")[2])


@BOTH_KINDS
def test_an_answer_is_withheld_above_the_limit_and_all_else_is_kept(reader: TestClient) -> None:
    before = n_abstained(reader)
    plain = reader.post("/answer", json=ASKED).json()
    no_answer = plain["no_answer"]
    for limit, abstained in ((no_answer / 2, True), (no_answer, False), (0, True), (1, False)):
        response = reader.post("/answer", json=ASKED | {"abstain": {"max_no_answer": limit}})
        assert response.status_code == 200
        answer = None if abstained else plain["answer"]
        expected = plain | {"answer": answer, "abstained": abstained, "seconds": None}
        assert response.json() | {"seconds": None} == expected
    assert n_abstained(reader) - before == 2


def test_a_calibrated_checkpoint_withholds_what_it_doubts_unless_told_otherwise(
    doubting: TestClient, reader: TestClient
) -> None:
    threshold = doubting.get("/index").json()["max_no_answer"]
    assert threshold > 0
    for client, asked, abstained in (
        (doubting, {}, True),
        (doubting, {"abstain": None}, True),
        (doubting, {"abstain": "calibrated"}, True),
        (doubting, {"abstain": "never"}, False),
        (doubting, {"abstain": {"max_no_answer": 3 * threshold}}, False),
        (reader, {}, False),
        (reader, {"abstain": "never"}, False),
    ):
        body = ASKED | asked
        answer = client.post("/answer", json=body).json()
        assert answer["abstained"] == abstained
        assert (answer["answer"] is None) == abstained
        assert answer["answers"][0]["text"]
        (one,) = client.post("/answers", json={"questions": [body]}).json()["results"]
        compared = client.post("/compare", json=BODIES["/compare"] | asked).json()
        streamed = events_of(client.post("/answer", json=body | {"stream": True}).text)
        assert one["answer"]["abstained"] == streamed[-1][1]["abstained"] == abstained
        assert compared["answers"][0]["abstained"] == abstained
        assert ("token" in [name for name, _ in streamed]) != abstained


def test_more_is_read_before_an_answer_is_withheld_unless_n_docs_is_given(
    settings: Settings, reader: TestClient
) -> None:
    checkpoint = load_checkpoint(settings.checkpoint)
    facts = replace(checkpoint.facts, max_no_answer=reader.post("/answer", json=ASKED).json()["no_answer"] / 2)
    engine = RagEngine(replace(checkpoint, facts=replace(facts, most_docs=9)))
    asked = {name: value for name, value in ASKED.items() if name != "n_docs"}
    nine = {"n_docs": 9}
    with client_of(create_app(settings, engine=engine)) as client:
        for body, n_read in ((asked, 9), (asked | {"n_docs": None}, 9), (asked | {"n_docs": 5}, 5)):
            answer = client.post("/answer", json=body).json()
            assert len(answer["passages"]) == n_read
            assert answer["abstained"]
        further, exactly = (client.post("/answer", json=body).json() for body in (asked, asked | nine))
        assert further | {"seconds": None} == exactly | {"seconds": None}
        streamed = events_of(client.post("/answer", json=asked | {"stream": True}).text)
        assert [len(data["passages"]) for name, data in streamed if name == "passages"] == [5, 9]
    # as much work as an operator allows a call, which is enough for five
    request = AnswerRequest.model_validate(asked)
    bounded = settings.model_copy(update={"max_work": request.work(request.options(settings, engine))})
    with client_of(create_app(bounded, engine=engine)) as client:
        assert len(client.post("/answer", json=asked).json()["passages"]) == 5


@pytest.mark.parametrize("body", [{"messages": [{"role": "user", "content": ASKED["question"]}]}, {"input": "who ?"}])
def test_a_calibrated_checkpoint_says_in_a_chat_that_it_does_not_know(
    doubting: TestClient, reader: TestClient, body: dict[str, Any]
) -> None:
    call = "/v1/chat/completions" if "messages" in body else "/v1/responses"
    for client, asked, abstained in (
        (doubting, {}, True),
        (doubting, {"abstain": None}, True),
        (doubting, {"abstain": "never"}, False),
        (doubting, {"abstain": {"max_no_answer": 1}}, False),
        (reader, {}, False),
        (reader, None, False),
    ):
        said = client.post(call, json=body | {"model": "openbook", "openbook": asked}).json()
        assert said["openbook"]["abstained"] == abstained
        assert (NO_ANSWER in json.dumps(said)) == abstained
    with doubting.stream("POST", call, json=body | {"model": "openbook", "stream": True}) as stream:
        assert NO_ANSWER in stream.read().decode()


@pytest.mark.parametrize("call", ["/answer", "/compare"])
def test_a_checkpoint_without_a_threshold_refuses_calibrated_questions(reader: TestClient, call: str) -> None:
    refused = reader.post(call, json=BODIES[call] | {"abstain": "calibrated"})
    assert ended_with(refused) == (409, "not_calibrated")
    assert "has no 'no_answer'. Write it: openbook calibrate" in refused.json()["detail"]
