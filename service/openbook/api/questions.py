"""The calls that ask, and the one that says whether an answer was right: validate, one use case, respond."""

from dataclasses import dataclass

from fastapi import APIRouter, Request
from pydantic import ValidationError
from starlette.responses import Response

from openbook import errors
from openbook.api import problems
from openbook.api.body import JSON, JsonRoute
from openbook.api.calls import Call, TheCall, additions, answer_request
from openbook.api.logs import FACTS
from openbook.api.middleware import while_connected
from openbook.api.openapi import BODY_PROBLEMS, FILTER_PROBLEMS, STREAMED, problem_responses
from openbook.api.schemas import (
    AnswerRequest,
    AnswersRequest,
    BatchedQuestion,
    CompareRequest,
    FeedbackRequest,
    RetrieveRequest,
    ScoreRequest,
)
from openbook.api.streaming import EventStream, asks_for_events
from openbook.application.answer_question import Ask
from openbook.entities import Answer, Source
from openbook.errors import InvalidRequest, OpenbookError, ResponseTooLarge
from openbook_client import results

QUESTION_PROBLEMS = problem_responses(
    *(errors.InvalidRequest, *FILTER_PROBLEMS),
    *(errors.UnknownIndex, errors.IndexNotResident, errors.RetrieverUnavailable),
    *(errors.NotCalibrated, errors.Overloaded, errors.NoLiveIndex, errors.IndexUnreachable, errors.DeadlineExceeded),
    *(errors.ResponseTooLarge, errors.GeneratorUnreachable, errors.GeneratorFailed, errors.GeneratorLacks),
    http=BODY_PROBLEMS,
)

FEEDBACK_PROBLEMS = problem_responses(
    *(errors.InvalidRequest, errors.FeedbackDisabled, errors.UnknownAnswer, errors.FeedbackNotKept),
    http=BODY_PROBLEMS,
)

router = APIRouter(route_class=JsonRoute, tags=["questions"])


def questions_router() -> APIRouter:
    """All calls of this module; /answer takes what plug-ins add to it."""
    taken = answer_request()

    async def answer(body: taken, call: TheCall) -> Response:  # type: ignore[valid-type]
        """Answer a question from the live index, and say which passage every token came from.

        As `text/event-stream`, where the question or the header Accept asks for it: the events `passages`, `token`,
        `answer` and `error`.
        """
        return await _answered(body, call)

    made = APIRouter(route_class=JsonRoute, tags=["questions"])
    made.post("/answer", response_model=results.Answer, responses={200: STREAMED, **QUESTION_PROBLEMS})(answer)
    made.include_router(router)
    return made


async def _answered(body: AnswerRequest, call: Call) -> Response:

    def given(found: Answer) -> None:
        """Know the answer again, where readers may say something of it."""
        if call.services.feedback is not None:
            asked = found.understood_as or body.question
            call.services.feedback.remember(call.request.state.request_id, asked, found)

    streamed = asks_for_events(call.request.headers.get("accept", "")) if body.stream is None else body.stream
    always = {name for name, one in additions().items() if not streamed and one.always(call.settings)}
    added = {name: one for name, one in additions().items() if name in always or getattr(body, name)}
    for name, one in added.items():
        if streamed:
            raise InvalidRequest(field=name, reason="does not go with events: ask with stream false")
        one.check(call)
    if streamed:
        return await EventStream(call.request, call.stream(body), call.writer, given).begin()
    found = await call.answer(body)
    more = {name: await one.make(call, body, found) for name, one in added.items()}
    response = await call.written(
        lambda: results.Answer.model_validate(found).model_copy(update=more).model_dump_json(), found
    )
    given(found)
    return response


@dataclass(frozen=True, slots=True)
class _Written:
    """An answer of several as its JSON, and where it came from."""

    content: bytes
    source: Source


@router.post("/answers", response_model=results.Answers, responses=QUESTION_PROBLEMS)
async def answers(body: AnswersRequest, call: TheCall) -> Response:
    """Answer several questions in one call. Each has its own answer or its own error, in the order asked."""
    ends: dict[int, _Written | Exception] = {}
    asks: dict[int, Ask] = {}
    for number, one in enumerate(body.questions):
        try:
            asks[number] = call.ask(_valid(one))
        except (OpenbookError, ValidationError) as error:
            ends[number] = error
    room = call.writer.most_bytes

    async def keep(found: Answer) -> _Written:
        """Only its JSON stays: that is what the room is for."""
        nonlocal room

        def made() -> str:
            return results.AnswerOrError(answer=results.Answer.model_validate(found)).model_dump_json(
                exclude_unset=True
            )

        content = await call.writer.write(made, found, room)
        # others may have been written meanwhile
        if len(content) > room:
            raise ResponseTooLarge(most=call.writer.most_bytes)
        room -= len(content)
        return _Written(content, found.source)

    found = await while_connected(call.request, call.services.answer_question.answer_each(list(asks.values()), keep))
    ends |= dict(zip(asks, found, strict=True))
    sources = [end.source for end in found if isinstance(end, _Written)]
    facts: dict[str, object] = {"questions": len(ends), "failed": len(ends) - len(sources)}
    if sources:
        versions = dict.fromkeys(source.index.version for source in sources)
        facts |= {"index": ",".join(versions), "generation": sources[-1].index.generation}
    if call.settings.log_questions:
        facts["question"] = [ask.question for ask in asks.values()]
    setattr(call.request.state, FACTS, facts)
    each = b",".join(_answer_or_error(ends[number], call.request) for number in sorted(ends))
    return Response(b'{"results":[%b]}' % each, media_type=JSON)


def _valid(one: BatchedQuestion | ValidationError) -> BatchedQuestion:
    if isinstance(one, ValidationError):
        raise one
    return one


def _answer_or_error(end: _Written | Exception, request: Request) -> bytes:
    if isinstance(end, _Written):
        return end.content
    problem = problems.of_validation(end) if isinstance(end, ValidationError) else problems.of_raised(end, request)
    error = results.Problem.model_validate(problems.body(problem, request))
    return results.AnswerOrError(error=error).model_dump_json(exclude_unset=True).encode()


@router.post("/compare", response_model=results.Comparison, responses=QUESTION_PROBLEMS)
async def compare(body: CompareRequest, call: TheCall) -> Response:
    """Ask several versions the same question, and see where their answers part."""
    found = await call.finished(body, call.services.answer_question.compare(call.ask(body), body.versions))
    return await call.written(lambda: results.Comparison.model_validate(found).model_dump_json(), found)


@router.post("/score", response_model=results.Scores, responses=QUESTION_PROBLEMS)
async def score(body: ScoreRequest, call: TheCall) -> Response:
    """p(target | question) of given targets: classification, and facts to be checked."""
    found = await call.finished(body, call.services.answer_question.score(call.ask(body), body.targets))
    return await call.written(lambda: results.Scores.model_validate(found).model_dump_json(), found)


@router.post("/retrieve", response_model=results.Retrieval, responses=QUESTION_PROBLEMS)
async def retrieve(body: RetrieveRequest, call: TheCall) -> Response:
    """The passages for a question with their scores and prior; nothing is generated."""
    found = await call.finished(body, call.services.answer_question.retrieve(call.ask(body)))
    return await call.written(lambda: results.Retrieval.model_validate(found).model_dump_json(), found)


@router.post("/feedback", responses=FEEDBACK_PROBLEMS)
async def feedback(body: FeedbackRequest, call: TheCall) -> results.FeedbackKept:
    """Say whether an answer of this service was right. It is on the disk when the call returns."""
    services = call.services
    if services.feedback is None:
        raise errors.FeedbackDisabled
    record = services.feedback.record(body.request_id, body.rating, body.correction)
    await services.readers.run(services.feedback.keep_record, record)
    return results.FeedbackKept(rating=record.rating, version=record.version)
