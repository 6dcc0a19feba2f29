"""One body for every error, RFC 9457 `application/problem+json`, and one table from error class to status.

A class that is not in the table has the status of its nearest parent there; a test walks every child of OpenbookError
to see that each has one. A plug-in may say the same problem in other words below its own prefix: see `ProblemWords`.
"""

import json
import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from openbook import errors
from openbook.api.logs import FACTS
from openbook.api.schemas import HALF_A_PAIR
from openbook.errors import InvalidRequest, NoLiveIndex, OpenbookError, Overloaded, TooManyAttempts, Unauthorized
from openbook_client import results

MEDIA_TYPE = "application/problem+json"

STATUSES: Mapping[type[OpenbookError], int] = {
    errors.InvalidRequest: 422,
    errors.FilterMatchesNothing: 422,
    errors.ResponseTooLarge: 422,
    errors.UnknownIndex: 404,
    errors.IndexNotResident: 409,
    errors.RetrieverUnavailable: 409,
    errors.NotCalibrated: 409,
    errors.NoLiveIndex: 503,
    errors.IndexCorrupt: 500,
    errors.IndexUnreachable: 503,
    errors.IndexIncompatible: 409,
    errors.IndexTooLarge: 507,
    errors.IndexExists: 409,
    errors.IndexInUse: 409,
    errors.NoIndexes: 503,
    errors.StoreUnreachable: 503,
    errors.CurrentConflict: 409,
    errors.SwapInProgress: 409,
    errors.NothingToRollBackTo: 409,
    errors.DrainTimedOut: 504,
    errors.GuardFailed: 409,
    errors.GuardUnavailable: 409,
    errors.HostRefused: 421,
    errors.OriginRefused: 403,
    errors.Unauthorized: 401,
    errors.AdminDisabled: 403,
    errors.TooManyAttempts: 429,
    errors.FeedbackDisabled: 403,
    errors.UnknownAnswer: 404,
    errors.UnknownPassage: 404,
    errors.FeedbackNotKept: 507,
    errors.Overloaded: 503,
    errors.DeadlineExceeded: 504,
    errors.CheckpointInvalid: 500,
    errors.GeneratorUnreachable: 503,
    errors.GeneratorFailed: 502,
    errors.GeneratorLacks: 409,
    # no route raises these: the command line does
    errors.SourceInvalid: 500,
    errors.SettingInvalid: 500,
}

# What can be wrong with a request before it is a question.
HTTP_CODES: Mapping[int, str] = {
    400: "malformed_body",
    404: "not_found",
    405: "method_not_allowed",
    408: "body_too_slow",
    413: "body_too_large",
    415: "unsupported_media_type",
    431: "head_too_large",
    500: OpenbookError.code,
    503: NoLiveIndex.code,
}

# A client may try again after this while nothing is live: a swap that lets the old index go first takes about as long.
NOT_READY_RETRY_S = 5
MAX_TEXT = 500
CUT = " ..."
# Of a text: its paths may be long, and become short.
MAX_READ = 20 * MAX_TEXT
# Absolute paths of the disk, each with its last part as a group. Without quotes a path has two parts or more: /docs is
# an address of ours.
PATHS = (
    re.compile(r"(?<=')/(?:[^']*/)?([^'/]+)/?(?=')"),
    re.compile(r'(?<=")/(?:[^"]*/)?([^"/]+)/?(?=")'),
    re.compile(r"""(?<![^\s(=,;:])/(?:[^\s'"/]+/)+([^\s'"/]*)"""),
)
MAX_ERRORS = 20
MAX_BROKEN = 20

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, before it is bytes. `errors` has one {field, reason} for each field that is at fault."""

    status: int
    code: str
    detail: str
    errors: tuple[Mapping[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    # members of this code alone
    more: Mapping[str, Any] = field(default_factory=dict)
    # whether a path in it may be of this machine: not in what a client sent, and in addresses of ours
    of_disk: bool = False

    def shown(self, text: str) -> str:
        return shown(text, of_disk=self.of_disk)


def status_of(error: type[OpenbookError]) -> int:
    """The status of the nearest class in the table; 500 where there is none."""
    for parent in error.__mro__:
        if parent in STATUSES:
            return STATUSES[parent]
    return 500


def of_error(error: OpenbookError) -> Problem:
    fields: tuple[Mapping[str, str], ...] = ()
    if isinstance(error, InvalidRequest):
        name = str(error.data["field"])
        fields = ({"field": name, "reason": error.reason},)
    more = {}
    if isinstance(error, errors.GuardFailed):
        more = {"broken": [_cut(asdict(one)) for one in error.broken[:MAX_BROKEN]], "n_broken": len(error.broken)}
    of_disk = not isinstance(error, InvalidRequest | errors.UnknownPassage)
    return Problem(status_of(type(error)), error.code, str(error), fields, _headers(error), more, of_disk)


def of_http(error: HTTPException) -> Problem:
    code = HTTP_CODES.get(error.status_code, HTTPStatus(error.status_code).phrase.lower().replace(" ", "_"))
    headers, detail = dict(error.headers or {}), error.detail
    if error.status_code == 404 and detail == HTTPStatus.NOT_FOUND.phrase:
        detail = "There is nothing at this address. /docs lists every call."
    elif error.status_code == 405:
        detail = f"This address takes {headers.get('Allow', 'another method')}. /docs lists every call."
    return Problem(error.status_code, code, detail, headers=headers)


def of_validation(error: RequestValidationError | ValidationError) -> Problem:
    """Which fields do not validate, and why, without their values, which may be long or private."""
    # FastAPI's begin with the part of the request
    within = () if isinstance(error, RequestValidationError) else ("body",)
    fields = tuple(
        {"field": _field_name((*within, *one["loc"])), "reason": _reason(one)} for one in error.errors()[:MAX_ERRORS]
    )
    detail = "; ".join(f"{one['field']}: {one['reason']}" for one in fields)
    return Problem(422, InvalidRequest.code, detail, fields)


def of_raised(error: Exception, request: Request) -> Problem:
    """What a client hears of any error. The log hears the rest of one that is no client's fault."""
    facts = {FACTS: {"request_id": getattr(request.state, "request_id", None)}}
    match error:
        case OpenbookError():
            problem = of_error(error)
            if problem.status == 500:
                logger.warning("%s", error, extra=facts)
            return problem
        case HTTPException():
            return of_http(error)
        case RequestValidationError():
            return of_validation(error)
    logger.error("unexpected error", exc_info=error, extra=facts)
    return of_error(OpenbookError())


def body(problem: Problem, request: Request) -> dict[str, Any]:
    """The problem as JSON."""
    found: dict[str, Any] = {
        "type": f"urn:openbook:problem:{problem.code}",
        "title": problem.code.replace("_", " ").capitalize(),
        "status": problem.status,
        "detail": problem.shown(problem.detail),
        "code": problem.code,
        "request_id": getattr(request.state, "request_id", None),
    }
    if problem.errors:
        found["errors"] = [{name: problem.shown(text) for name, text in one.items()} for one in problem.errors]
    return found | dict(problem.more)


@dataclass(frozen=True, slots=True)
class ProblemWords:
    """How problems are said: `said` is the body of `schema`. A plug-in has its own below the prefix of its router."""

    media_type: str
    schema: type[BaseModel]
    said: Callable[[Problem, Request], Mapping[str, Any]]
    # in place of a status of ours
    statuses: Mapping[int, int] = field(default_factory=dict)
    # beside the problem's own, by the status that is sent
    headers: Mapping[int, Mapping[str, str]] = field(default_factory=dict)

    def status(self, status: int) -> int:
        """The status that stands for one of ours."""
        return self.statuses.get(status, status)


PROBLEM_JSON = ProblemWords(MEDIA_TYPE, results.Problem, body)


def respond(problem: Problem, request: Request) -> Response:
    """The problem as a response, in the words of its path. Leaves its code in `request.state.outcome`."""
    request.state.outcome = problem.code
    path = request.scope.get("path", "")
    problem_words: Mapping[str, ProblemWords] = request.app.state.problem_words
    words = next((one for prefix, one in problem_words.items() if path.startswith(prefix)), PROBLEM_JSON)
    status = words.status(problem.status)
    headers = {**problem.headers, **words.headers.get(status, {})}
    return Response(as_json(words.said(problem, request)), status, headers, words.media_type)


async def handle_error(request: Request, error: Exception) -> Response:
    """The exception handler of OpenbookError, HTTPException and RequestValidationError."""
    return respond(of_raised(error, request), request)


def as_json(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def _headers(error: OpenbookError) -> dict[str, str]:
    if isinstance(error, Overloaded | TooManyAttempts):
        return {"retry-after": str(math.ceil(error.data["retry_after_s"]))}
    if status_of(type(error)) == 503:
        return {"retry-after": str(NOT_READY_RETRY_S)}
    if isinstance(error, Unauthorized):
        return {"www-authenticate": 'Bearer realm="openbook"'}
    return {}


def _cut(texts: Mapping[str, str | None]) -> dict[str, str | None]:
    """Each with at most 500 characters. Their paths stay: they are of texts that are served, not of this disk."""
    return {name: text and text[:MAX_TEXT].encode("utf-8", "backslashreplace").decode() for name, text in texts.items()}


def _field_name(location: Sequence[str | int]) -> str:
    """("body", "targets", 3) -> "targets[3]"; the body as a whole is "body"."""
    parts = location[1:] if len(location) > 1 else location
    name = ""
    for part in parts:
        name += f"[{part}]" if isinstance(part, int) else f".{part}" if name else part
    return name


def _reason(error: Mapping[str, Any]) -> str:
    match error["type"]:
        case "extra_forbidden":
            return "there is no such field"
        case "missing":
            return "is required"
        case "value_error":
            return str(error["ctx"]["error"])
        case "model_attributes_type" | "model_type":
            return "must be a JSON object"
        case "string_too_long":
            return f"must have at most {error['ctx']['max_length']} characters"
        case "too_long" | "too_short" as kind:
            # behind a validator of ours pydantic says so of texts, too
            what = ("character", "characters") if isinstance(error.get("input"), str) else ("entry", "entries")
            count = error["ctx"]["max_length" if kind == "too_long" else "min_length"]
            return f"must have at {'most' if kind == 'too_long' else 'least'} {count} {what[count != 1]}"
        case "string_unicode":
            return HALF_A_PAIR
        case "dict_type":
            return "must be a JSON object"
        case "tuple_type":
            return "must be a valid list"
        case "int_parsing":
            return "must be a valid integer"
        case "float_type" | "float_parsing":
            return "must be a valid number"
    return str(error["msg"]).replace("Input should", "must", 1).replace("String should", "must", 1)


def shown(text: str, *, of_disk: bool = True) -> str:
    """`text` as anyone may read it: one line of at most 500 characters; a path `of_disk` in it is only its last part.

    A lone surrogate of a request comes back as its escape.
    """
    line = " ".join(text[:MAX_READ].encode("utf-8", "backslashreplace").decode().split())
    for path in PATHS if of_disk else ():
        line = path.sub(r"\1", line)
    return line if len(line) <= MAX_TEXT else line[: MAX_TEXT - len(CUT)] + CUT
