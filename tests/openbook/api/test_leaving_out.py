"""What would be answered without a passage, over HTTP."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from openbook_client.results import Answer
from tests.openbook.api.conftest import BODIES, PINNED, MakeClient, ended_with, without_seconds
from tests.openbook.api.test_streaming import events_of

ASKED = PINNED["/answer"]


def answered(client: TestClient, **more: Any) -> Answer:
    return Answer.model_validate(client.post("/answer", json=ASKED | more).raise_for_status().json())


def test_it_is_withheld_where_the_answer_would_be(reader: TestClient) -> None:
    plain = answered(reader, leave_one_out=True)
    assert plain.leave_one_out is not None
    limit = sorted(one.no_answer for one in plain.leave_one_out)[1]
    doubted = answered(reader, leave_one_out=True, abstain={"max_no_answer": limit})
    assert [one.answer is None for one in doubted.leave_one_out or ()] == [
        one.no_answer > limit for one in plain.leave_one_out
    ]


def test_events_and_several_questions_leave_out_as_one_does(reader: TestClient) -> None:
    first = answered(reader).passages[0].passage_id
    asked = ASKED | {"without": [first, "no such passage"], "leave_one_out": True}
    expected = reader.post("/answer", json=asked).json()
    assert len(expected["passages"]) == len(expected["leave_one_out"]) == 3
    *_, (name, last) = events_of(reader.post("/answer", json=asked | {"stream": True}).text)
    assert (name, without_seconds(last)) == ("answer", without_seconds(expected))
    # each loses another number of passages
    both = reader.post("/answers", json={"questions": [asked, ASKED | {"without": ["no such passage"]}]}).json()
    assert [len(one["answer"]["passages"]) for one in both["results"]] == [3, 4]
    assert without_seconds(both["results"][0]["answer"]) == without_seconds(expected)


@pytest.mark.parametrize(
    "more", [{"without": "peru"}, {"without": [1]}, {"without": ["x"] * 1001}, {"leave_one_out": 1}]
)
def test_what_names_no_passages_is_refused(reader: TestClient, more: dict[str, Any]) -> None:
    response = reader.post("/answer", json=ASKED | more)
    assert ended_with(response) == (422, "invalid_request")
    assert response.json()["errors"][0]["field"].startswith(next(iter(more)))


def test_to_leave_out_all_passages_is_refused(reader: TestClient) -> None:
    every = [one.passage_id for one in answered(reader).passages]
    response = reader.post("/answer", json=ASKED | {"without": every})
    assert ended_with(response) == (422, "invalid_request")
    assert "leaves none to read" in response.json()["detail"]


def test_only_answers_leave_out(reader: TestClient) -> None:
    for path in ("/score", "/retrieve", "/compare"):
        assert ended_with(reader.post(path, json=BODIES[path] | {"without": ["x"]})) == (422, "invalid_request")


def test_searching_again_counts_as_work(make_client: MakeClient) -> None:
    client = make_client(max_work=4 * 4 * 4)
    assert client.post("/answer", json=ASKED | {"model": "sequence", "decoding": "fast"}).status_code == 200
    assert client.post("/answer", json=ASKED | {"model": "token"}).status_code == 200
    refused = client.post("/answer", json=ASKED | {"model": "token", "leave_one_out": True})
    assert ended_with(refused) == (422, "invalid_request")
    assert refused.json()["errors"][0]["field"] == "n_docs"
