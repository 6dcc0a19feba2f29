"""The calls that ask: validate, one use case, respond."""

from fastapi import APIRouter, Request

from openbook.api.access import TheServices, TheSettings, settings_of
from openbook.api.body import JsonRoute
from openbook.api.logs import FACTS
from openbook.api.middleware import while_connected
from openbook.api.openapi import BODY_PROBLEMS, problem_responses
from openbook.api.responses import AnswerResponse, CompareResponse, RetrieveResponse, ScoreResponse
from openbook.api.schemas import AnswerRequest, CompareRequest, RetrieveRequest, ScoreRequest
from openbook.entities import IndexVersion, StageSeconds
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
    body.check(settings)
    found = await while_connected(
        request,
        services.answer_question.answer(
            body.question, body.options(settings), timeout_s=body.timeout_s or settings.timeout_s, index=body.index
        ),
    )
    _note(request, body.question, (found.index, found.seconds))
    return AnswerResponse.of(found)


@router.post("/compare", responses=QUESTION_PROBLEMS)
async def compare(
    body: CompareRequest, request: Request, services: TheServices, settings: TheSettings
) -> CompareResponse:
    """Ask several versions the same question, and see where their answers part."""
    body.check(settings)
    found = await while_connected(
        request,
        services.answer_question.compare(
            body.question, body.options(settings), body.versions, timeout_s=body.timeout_s or settings.timeout_s
        ),
    )
    _note(request, body.question, *((one.index, one.seconds) for one in found.answers))
    return CompareResponse.of(body.question, found)


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
            retriever=body.retriever or settings.retriever,
            search=body.changes(),
        ),
    )
    _note(request, body.question, (found.index, found.seconds))
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
            body.question,
            n_docs=body.n_docs,
            timeout_s=body.timeout_s or settings.timeout_s,
            index=body.index,
            retriever=body.retriever or settings.retriever,
            search=body.changes(),
        ),
    )
    _note(request, body.question, (found.index, found.seconds))
    return RetrieveResponse.of(found)


def _note(request: Request, question: str, *answered: tuple[IndexVersion, StageSeconds]) -> None:
    """For the access log: which versions answered, and how long each stage took; what was asked only if it may."""
    indexes, seconds = zip(*answered, strict=True)
    facts = {
        "index": ",".join(index.version for index in indexes),
        "generation": indexes[0].generation,
        "queue_s": round(seconds[0].queue, 6),
        "encode_s": round(sum(one.encode for one in seconds), 6),
        "retrieve_s": round(sum(one.retrieve for one in seconds), 6),
        "generate_s": round(sum(one.generate for one in seconds), 6),
    }
    if settings_of(request).log_questions:
        facts["question"] = question
    setattr(request.state, FACTS, facts)
