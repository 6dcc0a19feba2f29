"""What is wrong, as OpenAI's API says it: another body, and statuses that its clients understand."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Request
from pydantic import BaseModel, Field

from openbook.api.problems import Problem, ProblemWords
from openbook.errors import InvalidRequest, OpenbookError, UnknownIndex

# That API has no 422; its clients repeat what got a 409.
STATUSES: Mapping[int, int] = {409: 400, 422: 400}
TYPES: Mapping[int, str] = {403: "permission_error", 429: "rate_limit_error"}
# Its clients repeat what got a 5xx. A question that had no time would have none again.
DO_NOT_REPEAT: Mapping[int, Mapping[str, str]] = {504: {"x-should-retry": "false"}}


class ModelNotFound(UnknownIndex, InvalidRequest):
    """A model is an open version: one that is only on the disk is none."""

    code = "model_not_found"
    message = "model: there is no model {model!r:.100}. Models: {known}."

    def __init__(self, *, model: str, known: tuple[str, ...]) -> None:
        OpenbookError.__init__(self, field="model", model=model, known=", ".join(known) or "none")


class OpenAIErrorDetail(BaseModel):
    message: Annotated[str, Field(description="What is wrong with this request, for people.")]
    type: str
    param: Annotated[str | None, Field(description="The first field that is at fault.")]
    code: Annotated[str, Field(description="What is wrong, for programs. Stable, and the same as in the other calls.")]


class OpenAIErrorResponse(BaseModel):
    """Every error below /v1/ has this body."""

    error: OpenAIErrorDetail


def openai_error(problem: Problem) -> dict[str, str | None]:
    """The problem as OpenAI's API words it: `param` is the first field at fault."""
    status = WORDS.status(problem.status)
    kind = TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    param = problem.shown(problem.errors[0]["field"]) if problem.errors else None
    return {"message": problem.shown(problem.detail), "type": kind, "param": param, "code": problem.code}


def _said(problem: Problem, _: Request) -> dict[str, Any]:
    return {"error": openai_error(problem)}


WORDS = ProblemWords("application/json", OpenAIErrorResponse, _said, STATUSES, DO_NOT_REPEAT)
