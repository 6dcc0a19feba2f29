"""The calls that ask: validate, one use case, respond."""

from fastapi import APIRouter, Request

from openbook.api.access import TheServices, TheSettings, settings_of
from openbook.api.body import JsonRoute
from openbook.api.logs import FACTS
from openbook.api.middleware import while_connected
from openbook.api.openapi import BODY_PROBLEMS, problem_responses
from openbook.api.responses import AnswerResponse, CompareResponse, RetrieveResponse, ScoreResponse
from openbook.api.schemas import AnswerRequest, CompareRequest, RetrieveRequest, ScoreRequest
from openbook.entities import Source
from openbook.errors import (
    DeadlineExceeded,
    IndexNotResident,
    InvalidRequest,
    NoLiveIndex,
    Overloaded,
    RetrieverUnavailable,
    UnknownIndex,
)

QUESTION_PROBLEMS = problem_responses(
    InvalidRequest,
    UnknownIndex,
    IndexNotResident,
    RetrieverUnavailable,
    Overloaded,
    NoLiveIndex,
    DeadlineExceeded,
    http=BODY_PROBLEMS,
)

router = APIRouter(route_class=JsonRoute, tags=["questions"])


@router.post("/answer", responses=QUESTION_PROBLEMS)
async def answer(body: AnswerRequest, request: Request, services: TheServices, settings: TheSettings) -> AnswerResponse:
    """Answer a question from the live index, and say which passage every token came from."""
    asked = services.answer_question.answer(
        body.question, body.options(settings), timeout_s=body.timeout(settings), index=body.index
    )
    found = await while_connected(request, asked)
    _note(request, body.question, found.source)
    return AnswerResponse.model_validate(found)


@router.post("/compare", responses=QUESTION_PROBLEMS)
async def compare(
    body: CompareRequest, request: Request, services: TheServices, settings: TheSettings
) -> CompareResponse:
    """Ask several versions the same question, and see where their answers part."""
    asked = services.answer_question.compare(
        body.question, body.options(settings), body.versions, timeout_s=body.timeout(settings)
    )
    found = await while_connected(request, asked)
    _note(request, body.question, *(one.source for one in found.answers))
    return CompareResponse.model_validate(found)


@router.post("/score", responses=QUESTION_PROBLEMS)
async def score(body: ScoreRequest, request: Request, services: TheServices, settings: TheSettings) -> ScoreResponse:
    """p(target | question) of given targets: classification, and facts to be checked."""
    asked = services.answer_question.score(
        body.question, body.targets, body.options(settings), timeout_s=body.timeout(settings), index=body.index
    )
    found = await while_connected(request, asked)
    _note(request, body.question, found.source)
    return ScoreResponse.model_validate(found)


@router.post("/retrieve", responses=QUESTION_PROBLEMS)
async def retrieve(
    body: RetrieveRequest, request: Request, services: TheServices, settings: TheSettings
) -> RetrieveResponse:
    """The passages for a question with their scores and prior; nothing is generated."""
    asked = services.answer_question.retrieve(
        body.question, body.options(settings), timeout_s=body.timeout(settings), index=body.index
    )
    found = await while_connected(request, asked)
    _note(request, body.question, found.source)
    return RetrieveResponse.model_validate(found)


def _note(request: Request, question: str, *sources: Source) -> None:
    """For the access log: which versions answered, and how long each stage took; what was asked only if it may."""
    seconds = [source.seconds for source in sources]
    facts = {
        "index": ",".join(source.index.version for source in sources),
        "generation": sources[0].index.generation,
        "queue_s": round(seconds[0].queue, 6),
        "encode_s": round(sum(one.encode for one in seconds), 6),
        "retrieve_s": round(sum(one.retrieve for one in seconds), 6),
        "generate_s": round(sum(one.generate for one in seconds), 6),
    }
    if settings_of(request).log_questions:
        facts["question"] = question
    setattr(request.state, FACTS, facts)
