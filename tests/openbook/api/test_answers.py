"""POST /answers: several questions in one call, each with its own end."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from starlette.testclient import TestClient

from openbook.api.schemas import MAX_QUESTIONS
from openbook.rag.engine import RagEngine
from tests.fixtures.clock import Clock
from tests.openbook.api.conftest import PERU, MakeClient, Serve, SlowSearch, ended_with, get, post, refused
from tests.openbook.api.test_server import counted
from tests.waiting import until

SMALL: dict[str, Any] = {"n_docs": 4, "max_new_tokens": 4}
TEXTS = (PERU, "the long river", "gdp of ghana ?", "who is king ?", "what language ?")
QUESTIONS = [SMALL | {"question": text} for text in TEXTS]


def results(client: TestClient, questions: list[Any]) -> list[dict[str, Any]]:
    response = client.post("/answers", json={"questions": questions})
    assert response.status_code == 200
    found: list[dict[str, Any]] = response.json()["results"]
    return found


def test_each_question_is_answered_as_it_is_alone(reader: TestClient) -> None:
    different = [*QUESTIONS, QUESTIONS[0] | {"num_beams": 2, "num_answers": 2}, QUESTIONS[1] | {"model": "sequence"}]
    found = results(reader, different)
    for one, question in zip(found, different, strict=True):
        alone = reader.post("/answer", json=question).json()
        assert list(one) == ["answer"]
        assert one["answer"].keys() == alone.keys()
        assert [answer["text"] for answer in one["answer"]["answers"]] == [one["text"] for one in alone["answers"]]
        assert [passage["text"] for passage in one["answer"]["passages"]] == [one["text"] for one in alone["passages"]]
        assert one["answer"]["log_prob"] == pytest.approx(alone["log_prob"], abs=1e-4)


def test_a_bad_question_has_the_error_that_it_has_alone_and_fails_no_other(reader: TestClient) -> None:
    bad: list[dict[str, Any]] = [
        {"question": " "},
        {"question": PERU, "n_doc": 3},
        {"question": PERU, "n_docs": 51},
        {"question": PERU, "n_docs": 13},
        {"question": "long " * 400, **SMALL},
        {"question": PERU, "index": "tiny-1066"},
        {"question": PERU, "timeout_s": 0.000001},
        {"question": PERU, "retriever": "bm25"},
    ]
    found = results(reader, [QUESTIONS[0], *bad, QUESTIONS[1]])
    assert [list(one) for one in found] == [["answer"], *[["error"]] * len(bad), ["answer"]]
    for one, question in zip(found[1:-1], bad, strict=True):
        alone = reader.post("/answer", json=question).json()
        assert {**one["error"], "request_id": ""} == {**alone, "request_id": ""}


@pytest.mark.parametrize("entry", [5, None, "who ?", [], {"question": PERU, "stream": True}])
def test_an_entry_that_is_no_question_has_an_error(reader: TestClient, entry: object) -> None:
    (one,) = results(reader, [entry])
    assert one["error"]["code"] == "invalid_request"
    field = "stream" if isinstance(entry, dict) else "body"
    assert one["error"]["errors"] == [
        {"field": field, "reason": "there is no such field" if field == "stream" else "must be a JSON object"}
    ]


def test_a_call_holds_some_questions_and_no_more_than_allowed(reader: TestClient) -> None:
    for questions, reason in (([], "at least 1 entry"), ([QUESTIONS[0]] * (MAX_QUESTIONS + 1), "at most 64 entries")):
        response = reader.post("/answers", json={"questions": questions})
        assert refused(response) == (422, "invalid_request", [("questions", f"must have {reason}")])


def test_questions_of_a_call_are_computed_together(server: str) -> None:
    many = [SMALL | {"question": f"{text} {number}"} for number in range(8) for text in TEXTS]
    response = post(f"{server}/answers", json={"questions": many})
    assert [list(one) for one in response.json()["results"]] == [["answer"]] * 40
    assert counted(server, "openbook_batch_size_sum") == 40
    # two threads may each begin with fewer than all that come
    assert counted(server, "openbook_batch_size_count") <= 12
    assert counted(server, 'openbook_requests_total{outcome="ok",route="/answers"}') == 1
    assert counted(server, "openbook_answer_log_prob_count") == 40


def test_a_call_leaves_half_of_the_places_to_others(serve: Serve, slow_search: SlowSearch) -> None:
    server = serve(workers=1, max_queue=7, max_batch=8)
    with slow_search:
        ends: list[Any] = []
        body = {"questions": QUESTIONS * 4}
        thread = threading.Thread(target=lambda: ends.append(post(f"{server}/answers", json=body)))
        thread.start()
        slow_search.wait(1)
        until(lambda: counted(server, "openbook_queue_depth") + counted(server, "openbook_questions_running") == 4)
        slow_search.go_on.set()
        assert post(f"{server}/answer", json=QUESTIONS[0]).status_code == 200
        thread.join()
    assert [list(one) for one in ends[0].json()["results"]] == [["answer"]] * 20


def test_a_call_that_finds_no_place_is_refused_as_a_whole(serve: Serve, slow_search: SlowSearch) -> None:
    server = serve(workers=1, max_queue=0)
    with slow_search:
        slow_search.ask(server, QUESTIONS[0])
        slow_search.wait(1)
        response = post(f"{server}/answers", json={"questions": QUESTIONS})
        assert ended_with(response) == (503, "overloaded")
        assert int(response.headers["retry-after"]) >= 1


def test_every_question_counts_its_time_from_the_call(serve: Serve, slow_search: SlowSearch, clock: Clock) -> None:
    """Those that wait for a turn are late too."""
    server = serve(workers=1, max_queue=1)
    with slow_search, ThreadPoolExecutor(1) as client:
        timed = [one | {"timeout_s": 100.0} for one in QUESTIONS]
        asked = client.submit(post, f"{server}/answers", json={"questions": timed})
        slow_search.wait(1)
        clock.forward(100)
        found = asked.result().json()["results"]
        assert [one["error"]["code"] for one in found] == ["deadline_exceeded"] * len(QUESTIONS)
        assert {one["error"]["detail"].startswith("No answer within 100.0 s.") for one in found} == {True}
    until(lambda: counted(server, "openbook_questions_running") == 0)


def test_a_client_that_hangs_up_frees_all_its_places(server: str, slow_search: SlowSearch) -> None:
    client = slow_search.ask(server, {"questions": QUESTIONS}, "/answers")
    slow_search.wait(1)
    client.close()
    until(lambda: counted(server, 'openbook_requests_total{outcome="cancelled",route="/answers"}') == 1)
    slow_search.go_on.set()
    until(lambda: counted(server, "openbook_questions_running") + counted(server, "openbook_queue_depth") == 0)
    assert [one["leases"] for one in get(f"{server}/index").json()["resident"]] == [0, 0]


def test_a_bug_in_one_question_is_that_questions_error(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = RagEngine.answer

    def broken(self: RagEngine, questions: list[str], *given: Any, **named: Any) -> Any:
        if "the long river" in questions:
            raise ZeroDivisionError
        return answer(self, questions, *given, **named)

    monkeypatch.setattr(RagEngine, "answer", broken)
    found = results(make_client(), list(QUESTIONS))
    assert [one["error"]["code"] if "error" in one else "ok" for one in found] == [
        *("ok", "internal_error", "ok", "ok", "ok")
    ]
