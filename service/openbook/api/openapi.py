"""The OpenAPI document: problems as they come, and the limits that the operator chose."""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from openbook.api import problems
from openbook.api.problems import PROBLEM_JSON, ProblemWords
from openbook.api.schemas import limits
from openbook.api.streaming import EVENTS
from openbook.errors import (
    FilterFieldUnknown,
    FilterInvalid,
    FilterMatchesNothing,
    FilterTypeWrong,
    HostRefused,
    OpenbookError,
    OriginRefused,
)
from openbook.settings import Settings

BODY_PROBLEMS = (400, 408, 413, 415)
FILTER_PROBLEMS = (FilterInvalid, FilterFieldUnknown, FilterTypeWrong, FilterMatchesNothing)
STREAMED: dict[str, Any] = {
    "description": "The answer; or the events of a stream, of which the last is `answer` or `error`.",
    "content": {EVENTS: {"schema": {"type": "string"}}},
}


def problem_responses(
    *errors: type[OpenbookError], http: tuple[int, ...] = (), words: ProblemWords = PROBLEM_JSON
) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route that can raise these errors. A route that reads a body adds the statuses in `http`."""
    raised: list[type[OpenbookError]] = [*errors, HostRefused, OpenbookError]
    if http:
        raised.append(OriginRefused)
    codes: dict[int, list[str]] = {}
    for error in raised:
        status = problems.status_of(error)
        codes.setdefault(words.status(status), []).append(error.code)
    for status in http:
        codes.setdefault(status, []).append(problems.HTTP_CODES[status])
    content = {words.media_type: {"schema": {"$ref": f"#/components/schemas/{words.schema.__name__}"}}}
    return {
        status: {"description": ", ".join(f"`{code}`" for code in dict.fromkeys(names)), "content": content}
        for status, names in sorted(codes.items())
    }


def document(app: FastAPI, settings: Settings) -> dict[str, Any]:
    """What /openapi.json answers."""
    openapi = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes, tags=app.openapi_tags
    )
    _drop_undeclared(openapi["paths"])
    schemas = openapi["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for words in (PROBLEM_JSON, *app.state.problem_words.values()):
        problem = words.schema.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= problem.pop("$defs", {})
        schemas[words.schema.__name__] = problem
    for schema in schemas.values():
        properties = schema.get("properties", {})
        for name, most in limits(settings).items():
            if name in properties:
                properties[name]["maximum"] = most
                if (usual := properties[name].get("default")) is not None:
                    properties[name]["default"] = min(usual, most)
    return openapi


def _drop_undeclared(paths: Mapping[str, Mapping[str, dict[str, Any]]]) -> None:
    """Drop the 422 that FastAPI adds to every call with a parameter. Ours are declared, as problems."""
    for methods in paths.values():
        for operation in methods.values():
            responses = operation["responses"]
            if problems.MEDIA_TYPE not in responses.get("422", {}).get("content", {}):
                responses.pop("422", None)
