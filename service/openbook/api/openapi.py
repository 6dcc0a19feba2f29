"""The OpenAPI document: problems as they come, and the limits that the operator chose."""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from openbook.api import problems
from openbook.api.openai_responses import OpenAIErrorResponse
from openbook.api.schemas import limits
from openbook.errors import HostRefused, OpenbookError, OriginRefused
from openbook.settings import Settings
from openbook_client import results

SCHEMA = "Problem"
OPENAI_SCHEMA = "OpenAIErrorResponse"
BODY_PROBLEMS = (400, 408, 413, 415)


def problem_responses(
    *errors: type[OpenbookError], http: tuple[int, ...] = (), openai: bool = False
) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route that can raise these errors. A route that reads a body adds the statuses in `http`.

    With `openai` as OpenAI's API words them.
    """
    raised: list[type[OpenbookError]] = [*errors, HostRefused, OpenbookError]
    if http:
        raised.append(OriginRefused)
    codes: dict[int, list[str]] = {}
    for error in raised:
        status = problems.status_of(error)
        codes.setdefault(problems.openai_status(status) if openai else status, []).append(error.code)
    for status in http:
        codes.setdefault(status, []).append(problems.HTTP_CODES[status])
    media_type, schema = ("application/json", OPENAI_SCHEMA) if openai else (problems.MEDIA_TYPE, SCHEMA)
    content = {media_type: {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
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
    for name, model in ((SCHEMA, results.Problem), (OPENAI_SCHEMA, OpenAIErrorResponse)):
        problem = model.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= problem.pop("$defs")
        schemas[name] = problem
    for schema in schemas.values():
        properties = schema.get("properties", {})
        for name, most in limits(settings).items():
            if name in properties:
                properties[name]["maximum"] = most
    return openapi


def _drop_undeclared(paths: Mapping[str, Mapping[str, dict[str, Any]]]) -> None:
    """Drop the 422 that FastAPI adds to every call with a parameter. Ours are declared, as problems."""
    for methods in paths.values():
        for operation in methods.values():
            responses = operation["responses"]
            if problems.MEDIA_TYPE not in responses.get("422", {}).get("content", {}):
                responses.pop("422", None)
