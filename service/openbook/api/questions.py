"""The calls that ask: validate, one use case, respond."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from pydantic import ValidationError
from starlette.responses import Response

from openbook import errors
from openbook.api import problems
from openbook.api.access import TheServices, TheSettings, TheWriter, settings_of
from openbook.api.body import JSON, JsonRoute
from openbook.api.composition import Services
from openbook.api.logs import FACTS
from openbook.api.middleware import while_connected
from openbook.api.openapi import BODY_PROBLEMS, problem_responses
from openbook.api.schemas import (
    AnswerRequest,
    AnswersRequest,
    BatchedQuestion,
    CompareRequest,
    QuestionBody,
    RetrieveRequest,
    ScoreRequest,
)
from openbook.api.streaming import EVENTS, EventStream, asks_for_events
from openbook.api.writing import Found, Writer
from openbook.application.answer_question import Ask
from openbook.application.comparison import Comparison
from openbook.entities import Answer, Retrieval, Scores, Source
from openbook.errors import OpenbookError, ResponseTooLarge
from openbook.settings import Settings
from openbook_client import results

F = TypeVar("F", Answer, Scores, Retrieval, Comparison)

COMPUTED = ("encode", "retrieve", "generate")
FILTER_PROBLEMS = (
    *(errors.FilterInvalid, errors.FilterFieldUnknown, errors.FilterTypeWrong),
    errors.FilterMatchesNothing,
)
QUESTION_PROBLEMS = problem_responses(
    *(errors.InvalidRequest, *FILTER_PROBLEMS),
    *(errors.UnknownIndex, errors.IndexNotResident, errors.RetrieverUnavailable),
    *(errors.NotCalibrated, errors.Overloaded, errors.NoLiveIndex, errors.IndexUnreachable, errors.DeadlineExceeded),
    errors.ResponseTooLarge,
    http=BODY_PROBLEMS,
)

STREAMED: dict[str, Any] = {
    "description": "The answer; or the events of a stream, of which the last is `answer` or `error`.",
    "content": {EVENTS: {"schema": {"type": "string"}}},
}

router = APIRouter(route_class=JsonRoute, tags=["questions"])


@router.post("/answer", response_model=results.Answer, responses={200: STREAMED, **QUESTION_PROBLEMS})
async def answer(
    body: AnswerRequest, request: Request, services: TheServices, settings: TheSettings, writer: TheWriter
) -> Response:
    """Answer a question from the live index, and say which passage every token came from.

    As `text/event-stream`, where the question or the header Accept asks for it: the events `passages`, `token`,
    `answer` and `error`.
    """
    options, timeout_s = body.options(settings, services.engine), body.timeout(settings)
    streamed = asks_for_events(request.headers.get("accept", "")) if body.stream is None else body.stream
    if streamed:
        told = services.answer_question.stream(body.question, options, timeout_s=timeout_s, index=body.index)
        return await EventStream(request, told, writer, lambda found: _given(request, body, found, services)).begin()
    asked = services.answer_question.answer(body.question, options, timeout_s=timeout_s, index=body.index)
    found = await while_connected(request, asked)
    response = await written(writer, lambda: results.Answer.model_validate(found).model_dump_json(), found)
    _given(request, body, found, services)
    return response


@dataclass(frozen=True, slots=True)
class _Written:
    """An answer of several as its JSON, and where it came from."""

    content: bytes
    source: Source


@router.post("/answers", response_model=results.Answers, responses=QUESTION_PROBLEMS)
async def answers(
    body: AnswersRequest, request: Request, services: TheServices, settings: TheSettings, writer: TheWriter
) -> Response:
    """Answer several questions in one call. Each has its own answer or its own error, in the order asked."""
    ends: dict[int, _Written | Exception] = {}
    asks: dict[int, Ask] = {}
    for number, one in enumerate(body.questions):
        try:
            asks[number] = _ask(one, services, settings)
        except (OpenbookError, ValidationError) as error:
            ends[number] = error
    room = writer.most_bytes

    async def keep(found: Answer) -> _Written:
        """Only its JSON stays: that is what the room is for."""
        nonlocal room

        def made() -> str:
            return results.AnswerOrError(answer=results.Answer.model_validate(found)).model_dump_json(
                exclude_unset=True
            )

        content = await writer.write(made, found, room)
        # others may have been written meanwhile
        if len(content) > room:
            raise ResponseTooLarge(most=writer.most_bytes)
        room -= len(content)
        return _Written(content, found.source)

    found = await while_connected(request, services.answer_question.answer_each(list(asks.values()), keep))
    ends |= dict(zip(asks, found, strict=True))
    sources = [end.source for end in found if isinstance(end, _Written)]
    facts: dict[str, object] = {"questions": len(ends), "failed": len(ends) - len(sources)}
    if sources:
        versions = dict.fromkeys(source.index.version for source in sources)
        facts |= {"index": ",".join(versions), "generation": sources[-1].index.generation}
    if settings.log_questions:
        facts["question"] = [ask.question for ask in asks.values()]
    setattr(request.state, FACTS, facts)
    each = b",".join(_answer_or_error(ends[number], request) for number in sorted(ends))
    return Response(b'{"results":[%b]}' % each, media_type=JSON)


def _ask(one: BatchedQuestion | ValidationError, services: Services, settings: Settings) -> Ask:
    if isinstance(one, ValidationError):
        raise one
    return Ask(one.question, one.options(settings, services.engine), one.timeout(settings), one.index)


def _answer_or_error(end: _Written | Exception, request: Request) -> bytes:
    if isinstance(end, _Written):
        return end.content
    problem = problems.of_validation(end) if isinstance(end, ValidationError) else problems.of_raised(end, request)
    error = results.Problem.model_validate(problems.body(problem, request))
    return results.AnswerOrError(error=error).model_dump_json(exclude_unset=True).encode()


@router.post("/compare", response_model=results.Comparison, responses=QUESTION_PROBLEMS)
async def compare(
    body: CompareRequest, request: Request, services: TheServices, settings: TheSettings, writer: TheWriter
) -> Response:
    """Ask several versions the same question, and see where their answers part."""
    asked = services.answer_question.compare(
        body.question, body.options(settings, services.engine), body.versions, timeout_s=body.timeout(settings)
    )
    found = await answered(request, body, asked)
    return await written(writer, lambda: results.Comparison.model_validate(found).model_dump_json(), found)


@router.post("/score", response_model=results.Scores, responses=QUESTION_PROBLEMS)
async def score(
    body: ScoreRequest, request: Request, services: TheServices, settings: TheSettings, writer: TheWriter
) -> Response:
    """p(target | question) of given targets: classification, and facts to be checked."""
    asked = services.answer_question.score(
        body.question,
        body.targets,
        body.options(settings, services.engine),
        timeout_s=body.timeout(settings),
        index=body.index,
    )
    found = await answered(request, body, asked)
    return await written(writer, lambda: results.Scores.model_validate(found).model_dump_json(), found)


@router.post("/retrieve", response_model=results.Retrieval, responses=QUESTION_PROBLEMS)
async def retrieve(
    body: RetrieveRequest, request: Request, services: TheServices, settings: TheSettings, writer: TheWriter
) -> Response:
    """The passages for a question with their scores and prior; nothing is generated."""
    asked = services.answer_question.retrieve(
        body.question, body.options(settings, services.engine), timeout_s=body.timeout(settings), index=body.index
    )
    found = await answered(request, body, asked)
    return await written(writer, lambda: results.Retrieval.model_validate(found).model_dump_json(), found)


async def written(writer: Writer, make: Callable[[], str], found: Found) -> Response:
    """The response that `make` makes of `found`. Raises ResponseTooLarge."""
    return Response(await writer.write(make, found), media_type=JSON)


async def answered(request: Request, body: QuestionBody, asked: Coroutine[Any, Any, F]) -> F:
    """What was asked for. Leaves for the access log which versions answered, and the seconds of each stage."""
    found = await while_connected(request, asked)
    leave_facts(request, body, found)
    return found


def _given(request: Request, body: AnswerRequest, found: Answer, services: Services) -> None:
    """Leave the facts for the access log; and know the answer again, where readers may say something of it."""
    leave_facts(request, body, found)
    if services.feedback is not None:
        services.feedback.remember(request.state.request_id, body.question, found)


def leave_facts(request: Request, body: QuestionBody, found: Answer | Scores | Retrieval | Comparison) -> None:
    sources = [one.source for one in found.answers] if isinstance(found, Comparison) else [found.source]
    seconds = [source.seconds for source in sources]
    facts: dict[str, object] = {
        "index": ",".join(source.index.version for source in sources),
        "generation": sources[0].index.generation,
        "queue_s": round(seconds[0].queue, 6),
        **{f"{stage}_s": round(sum(getattr(one, stage) for one in seconds), 6) for stage in COMPUTED},
    }
    if settings_of(request).log_questions:
        facts["question"] = body.question
    setattr(request.state, FACTS, facts)
