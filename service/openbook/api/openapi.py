"""The OpenAPI document: problems as they come, and the limits that the operator chose."""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from openbook.api import problems
from openbook.api.responses import ProblemResponse
from openbook.api.schemas import limits
from openbook.errors import OpenbookError
from openbook.settings import Settings

SCHEMA = "ProblemResponse"
BODY_PROBLEMS = (400, 408, 413, 415)


def problem_responses(*errors: type[OpenbookError], http: tuple[int, ...] = ()) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route that can end in these errors, or in these findings of HTTP itself."""
    codes: dict[int, list[str]] = {}
    for error in errors:
        codes.setdefault(problems.status_of(error), []).append(error.code)
    for status in http:
        codes.setdefault(status, []).append(problems.HTTP_CODES[status])
    codes.setdefault(500, []).append(OpenbookError.code)
    return {status: _response(names) for status, names in sorted(codes.items())}


def _response(codes: list[str]) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{SCHEMA}"}
    names = ", ".join(f"`{code}`" for code in dict.fromkeys(codes))
    return {"description": names, "content": {problems.MEDIA_TYPE: {"schema": schema}}}


def document(app: FastAPI, settings: Settings) -> dict[str, Any]:
    """What /openapi.json answers."""
    openapi = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes, tags=app.openapi_tags
    )
    schemas = openapi["components"]["schemas"]
    _drop_undeclared(openapi["paths"])
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    problem = ProblemResponse.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= problem.pop("$defs")
    schemas[SCHEMA] = problem
    for schema in schemas.values():
        _set_limits(schema.get("properties", {}), limits(settings))
    return openapi


def _set_limits(properties: Mapping[str, dict[str, Any]], largest: Mapping[str, int]) -> None:
    for name, most in largest.items():
        if name in properties:
            properties[name]["maximum"] = most


def _drop_undeclared(paths: Mapping[str, Mapping[str, dict[str, Any]]]) -> None:
    """FastAPI adds a 422 of its own to every call that takes a parameter. Ours are declared, as problems."""
    for methods in paths.values():
        for operation in methods.values():
            responses = operation["responses"]
            if problems.MEDIA_TYPE not in responses.get("422", {}).get("content", {}):
                responses.pop("422", None)
