"""Requests that schemathesis makes from the OpenAPI document, and what an answer to them must be."""

from contextlib import nullcontext, suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, given
from hypothesis import settings as bounded
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi import checks

from openbook.api.access import FailedAttempts
from openbook.settings import Settings
from tests.openbook.api.conftest import ADMIN, get, serving


def no_server_error(context: Any, response: Any, case: Any) -> bool | None:
    """But that the time is up: a question may allow so little that nobody answers within it."""
    return None if response.status_code == 504 else not_a_server_error(context, response, case)


def what_is_wrong_is_refused(context: Any, response: Any, case: Any) -> bool | None:
    """But what was never sent: of a parameter whose value is an empty list nothing is left in an address. A body that
    is also too large is refused for that. A field that is null may count as left out, unless it is required, and outer
    space does not count.
    """
    if response.status_code == 413 or _may_be_meant(case):
        return None
    sent = parse_qs(urlsplit(str(response.request.url)).query, keep_blank_values=True)
    return None if set(sent) < set(case.query or {}) else checks.negative_data_rejection(context, response, case)


def _may_be_meant(case: Any) -> bool:
    if not isinstance(case.body, dict):
        return False
    (content,) = case.operation.definition.raw["requestBody"]["content"].values()
    schema = case.operation.schema.raw_schema["components"]["schemas"][content["schema"]["$ref"].rpartition("/")[2]]
    optional = {name for name, value in case.body.items() if value is None}.difference(schema.get("required", ()))
    return bool(optional) or any(isinstance(one, str) and one != one.strip() for one in case.body.values())


def it_is_as_the_schema_says(context: Any, response: Any, case: Any) -> bool | None:
    """But events: OpenAPI 3.1 describes a stream as a whole, and the check compares each event with that."""
    if response.headers.get("content-type", [""])[0].startswith("text/event-stream"):
        return None
    return checks.response_schema_conformance(context, response, case)


# Not `positive_data_acceptance`: which versions there are, and how many passages they hold, is in no schema.
CHECKS = [
    no_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    it_is_as_the_schema_says,
    what_is_wrong_is_refused,
]


def ask_of(app: FastAPI, settings: Settings, examples: int) -> int:
    asked = 0
    with serving(app, settings) as server:
        app.state.attempts = FailedAttempts(most=10**9)
        schema = schemathesis.openapi.from_dict(get(f"{server}/openapi.json").json())
        for operation in (found.ok() for found in schema.get_all_operations()):
            for mode in GenerationMode:

                @bounded(
                    max_examples=examples, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
                )
                @given(case=operation.as_strategy(generation_mode=mode))
                def check(case: Any) -> None:
                    nonlocal asked
                    asked += 1
                    case.call_and_validate(base_url=server, headers=ADMIN, checks=CHECKS)

                # a call that takes nothing can be sent nothing wrong
                with suppress(Unsatisfiable) if mode == GenerationMode.NEGATIVE else nullcontext():
                    check()
        assert get(f"{server}/readyz").status_code == 200
    return asked
