"""The OpenAPI document: whole, true to the routes, and honest about errors."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from openbook.api import schemas
from openbook.api.problems import MEDIA_TYPE
from openbook.plugins.openai import requests as openai_requests
from openbook.settings import Settings
from tests.places import ROOT


@pytest.fixture(scope="module")
def document(reader: TestClient) -> dict[str, Any]:
    found: dict[str, Any] = reader.get("/openapi.json").raise_for_status().json()
    return found


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def test_every_call_has_a_summary_and_its_own_id(document: dict[str, Any]) -> None:
    found = [(operation["operationId"], operation["description"]) for _, _, operation in operations(document)]
    assert len({identity for identity, _ in found}) == len(found)
    assert all(description for _, description in found)


def test_errors_are_documented_as_problems_and_as_nothing_else(document: dict[str, Any]) -> None:
    for path, _, operation in operations(document):
        for status, response in operation["responses"].items():
            if status.startswith(("4", "5")):
                ours = (MEDIA_TYPE, "Problem")
                media_type, name = ("application/json", "OpenAIErrorResponse") if path.startswith("/v1/") else ours
                assert list(response["content"]) == [media_type], (path, status)
                schema = response["content"][media_type]["schema"]
                assert schema == {"$ref": f"#/components/schemas/{name}"}
    assert set(document["paths"]["/answer"]["post"]["responses"]) == {
        *("200", "400", "403", "404", "408", "409", "413", "415", "421", "422", "500", "502", "503", "504")
    }
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_the_problem_that_is_documented_is_the_one_that_comes(reader: TestClient, document: dict[str, Any]) -> None:
    schema = document["components"]["schemas"]["Problem"]
    body = reader.post("/answer", json={"question": ""}).json()
    # what only a guard that fails has
    assert set(body) == set(schema["properties"]) - {"broken", "n_broken"}
    assert set(schema["required"]) <= set(reader.get("/index/wiki-1999").json())


def test_the_limits_of_the_settings_are_in_the_document(document: dict[str, Any], settings: Settings) -> None:
    properties = document["components"]["schemas"]["AnswerRequest"]["properties"]
    most = [properties[name]["maximum"] for name in ("n_docs", "num_beams", "max_new_tokens", "timeout_s")]
    assert most == [50, 16, settings.max_new_tokens, 4 * settings.timeout_s]


def test_every_request_has_examples_that_validate(document: dict[str, Any]) -> None:
    models = {name: found for name, found in document["components"]["schemas"].items() if name.endswith("Request")}
    assert len(models) == 13
    for name, found in models.items():
        model, examples = getattr(schemas, name, None) or getattr(openai_requests, name), found["examples"]
        assert examples
        for example in examples:
            model.model_validate(example)


def test_what_changes_the_index_or_names_who_did_needs_a_token(document: dict[str, Any]) -> None:
    found = operations(document)
    secured = {path: (method, call["security"]) for path, method, call in found if "security" in call}
    bearer = [{"HTTPBearer": []}]
    changes = {f"/index/{name}": ("post", bearer) for name in ("swap", "rollback", "load")}
    assert secured == changes | {"/index/history": ("get", bearer)}


def test_a_call_that_can_be_left_to_itself_says_so(document: dict[str, Any]) -> None:
    for path in ("/index/swap", "/index/rollback", "/index/load"):
        operation = document["paths"][path]["post"]
        accepted = operation["responses"]["202"]["content"]["application/json"]["schema"]
        assert accepted == {"$ref": "#/components/schemas/SwapProgress"}
        headers = {parameter["name"]: parameter["in"] for parameter in operation["parameters"]}
        assert headers == {"x-openbook-actor": "header"}


def test_examples_are_answered(reader: TestClient, document: dict[str, Any]) -> None:
    for path, name in (
        *(("/answer", "AnswerRequest"), ("/score", "ScoreRequest"), ("/retrieve", "RetrieveRequest")),
        *(("/v1/chat/completions", "ChatCompletionRequest"), ("/v1/responses", "ResponsesRequest")),
    ):
        for example in document["components"]["schemas"][name]["examples"]:
            assert reader.post(path, json=example).status_code == 200


def test_the_alerts_count_every_call_that_takes_a_place(document: dict[str, Any]) -> None:
    calls = {
        path
        for path, _, operation in operations(document)
        if "`overloaded`" in operation["responses"].get("503", {}).get("description", "")
    }
    for file in ("prometheus/alerts.yml", "grafana/dashboards/openbook.json"):
        patterns = set(re.findall(r'route=~\\?"(.+?)\\?"', (ROOT / "deploy" / file).read_text(encoding="utf-8")))
        assert len(patterns) == 1
        counted = {path for path in document["paths"] if re.fullmatch(next(iter(patterns)), path)}
        assert counted == calls
