"""The calls that ask: validate, one use case, respond."""

from fastapi import APIRouter, Request

from service.api.access import TheServices, TheSettings
from service.api.body import JsonRoute
from service.api.logs import FACTS
from service.api.middleware import while_connected
from service.api.openapi import BODY_PROBLEMS, problem_responses
from service.api.responses import AnswerResponse, RetrieveResponse, ScoreResponse
from service.api.schemas import AnswerRequest, RetrieveRequest, ScoreRequest
from service.entities import IndexVersion, StageSeconds
from service.errors import (
    DeadlineExceeded,
    IndexNotResident,
    InvalidRequest,
    NoLiveIndex,
    Overloaded,
    UnknownIndex,
)

QUESTION_PROBLEMS = problem_responses(
    InvalidRequest,
    UnknownIndex,
    IndexNotResident,
    Overloaded,
    NoLiveIndex,
    DeadlineExceeded,
    http=BODY_PROBLEMS,
)

router = APIRouter(route_class=JsonRoute, tags=["questions"])


@router.post("/answer", responses=QUESTION_PROBLEMS)
async def answer(body: AnswerRequest, request: Request, services: TheServices, settings: TheSettings) -> AnswerResponse:
    """Answer a question from the live index, and say which passage every token came from."""
    body.check(settings)
    found = await while_connected(
        request,
        services.answer_question.answer(
            body.question, body.options(), timeout_s=body.timeout_s or settings.timeout_s, index=body.index
        ),
    )
    _note(request, found.index, found.seconds)
    return AnswerResponse.of(found)


@router.post("/score", responses=QUESTION_PROBLEMS)
async def score(body: ScoreRequest, request: Request, services: TheServices, settings: TheSettings) -> ScoreResponse:
    """p(target | question) of given targets: classification, and facts to be checked."""
    body.check(settings)
    found = await while_connected(
        request,
        services.answer_question.score(
            body.question,
            body.targets,
            n_docs=body.n_docs,
            model=body.model,
            timeout_s=body.timeout_s or settings.timeout_s,
            index=body.index,
        ),
    )
    _note(request, found.index, found.seconds)
    return ScoreResponse.of(found)


@router.post("/retrieve", responses=QUESTION_PROBLEMS)
async def retrieve(
    body: RetrieveRequest, request: Request, services: TheServices, settings: TheSettings
) -> RetrieveResponse:
    """The passages for a question with their scores and prior; nothing is generated."""
    body.check(settings)
    found = await while_connected(
        request,
        services.answer_question.retrieve(
            body.question, n_docs=body.n_docs, timeout_s=body.timeout_s or settings.timeout_s, index=body.index
        ),
    )
    _note(request, found.index, found.seconds)
    return RetrieveResponse.of(found)


def _note(request: Request, index: IndexVersion, seconds: StageSeconds) -> None:
    """For the access log: which version answered, and how long each stage took. Never what was asked."""
    facts = {
        "index": index.version,
        "generation": index.generation,
        "queue_s": round(seconds.queue, 6),
        "encode_s": round(seconds.encode, 6),
        "retrieve_s": round(seconds.retrieve, 6),
        "generate_s": round(seconds.generate, 6),
    }
    setattr(request.state, FACTS, facts)
