"""The client against the service's own document: neither may have a call or an option alone."""

import re
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from starlette.testclient import TestClient

from openbook_client import calls, results
from openbook_client.calls import Calls
from openbook_client.errors import Refused

CALLS = Calls(1, 1)
MADE = {
    "POST /answer": CALLS.answer("q", {}),
    "POST /answers": CALLS.answers(["q"], {}),
    "POST /score": CALLS.score("q", ["t"], {}),
    "POST /retrieve": CALLS.retrieve("q", {}),
    "POST /compare": CALLS.compare("q", ["a", "b"], {}),
    "GET /passages/{version}/{passage_id}": CALLS.passage("v", "p"),
    "POST /feedback": CALLS.feedback("r", "up", None),
    "GET /index": CALLS.index(),
    "GET /index/{version}": CALLS.manifest("v"),
    "GET /index/swap": CALLS.progress(),
    "GET /index/history": CALLS.history(20),
    "POST /index/swap": CALLS.swap("v", {}),
    "POST /index/rollback": CALLS.rollback({}),
    "POST /index/load": CALLS.load("v", {}),
    "GET /readyz": CALLS.ready(),
}
# for probes, for Prometheus, and for clients of OpenAI's API
NOT_OF_A_CLIENT = {
    "GET /healthz",
    "GET /health",
    "GET /version",
    "GET /metrics",
    "GET /v1/models",
    "GET /v1/models/{model}",
}
NOT_OF_A_CLIENT |= {"POST /v1/chat/completions", "POST /v1/responses", "POST /v1/rerank", "POST /v1/embeddings"}
NOT_OF_A_CLIENT |= {"GET /receipts/{receipt_id}", "GET /receipts/{receipt_id}/replay"}
OPTIONS = {
    # the method `stream` sends it; a receipt is a plug-in's
    "AnswerRequest": (calls.AnswerOptions, {"question", "stream", "receipt"}),
    "BatchedQuestion": (calls.AnswerOptions, {"question"}),
    "CompareRequest": (calls.CompareOptions, {"question", "versions"}),
    "ScoreRequest": (calls.ScoreOptions, {"question", "targets"}),
    "RetrieveRequest": (calls.RetrieveOptions, {"question"}),
    "SearchParameters": (calls.SearchOptions, set()),
    "AbstainAbove": (calls.AbstainAbove, set()),
    # the methods that only begin a change send `wait`
    "SwapRequest": (calls.SwapOptions, {"version", "wait"}),
    "RollbackRequest": (calls.RollbackOptions, {"wait"}),
    "FeedbackRequest": (dict, {"request_id", "rating", "correction"}),
    "LoadRequest": (calls.LoadOptions, {"version", "wait"}),
}


@pytest.fixture(scope="module")
def document(reader: TestClient) -> dict[str, Any]:
    found: dict[str, Any] = reader.get("/openapi.json").raise_for_status().json()
    return found


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def test_every_call_of_the_service_is_a_call_of_the_client(document: dict[str, Any]) -> None:
    assert {name for name, _ in operations(document)} == set(MADE) | NOT_OF_A_CLIENT


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_of_a_request_is_an_option_of_the_call(document: dict[str, Any], name: str) -> None:
    options, beside = OPTIONS[name]
    takes = document["components"]["schemas"][name]["properties"]
    assert set(get_type_hints(options)) | beside == set(takes)


def test_every_request_of_the_service_is_compared(document: dict[str, Any]) -> None:
    requests = {name for name in document["components"]["schemas"] if name.endswith("Request")}
    # `questions` of BatchedQuestion, and nothing else
    of_openai = {f"{name}Request" for name in ("ChatCompletion", "Responses", "Rerank", "Embeddings")}
    assert requests - {"AnswersRequest"} - of_openai <= set(OPTIONS)
    assert set(document["components"]["schemas"]["AnswersRequest"]["properties"]) == {"questions"}


def test_the_values_that_an_option_takes_are_those_of_the_service(document: dict[str, Any]) -> None:
    found = 0
    for name, (options, _) in OPTIONS.items():
        hints = get_type_hints(options)
        for option, schema in document["components"]["schemas"][name]["properties"].items():
            kinds = [schema, *schema.get("anyOf", [])]
            takes = {
                value for one in kinds for value in [*one.get("enum", []), *([one["const"]] if "const" in one else [])]
            }
            if takes and option in hints:
                assert literals(hints[option]) == takes, (name, option)
                found += 1
    assert found > 10


def literals(hint: Any) -> set[Any]:
    """The values of each Literal in a type."""
    arguments = get_args(hint)
    return set(arguments) if get_origin(hint) is Literal else {one for kind in arguments for one in literals(kind)}


def test_every_error_of_the_client_is_a_code_of_the_service(document: dict[str, Any]) -> None:
    described = {
        code
        for _, operation in operations(document)
        for status, response in operation["responses"].items()
        if status[0] in "45"
        for code in re.findall(r"`(\w+)`", response["description"])
    }
    # a service that wants keys
    assert {one.code for one in Refused.__subclasses__()} <= described | {"rate_exceeded"}


def test_every_result_is_frozen() -> None:
    found = [one for one in vars(results).values() if isinstance(one, type) and issubclass(one, results.Part)]
    assert len(found) > 30
    assert all(one.model_config["frozen"] for one in found)
