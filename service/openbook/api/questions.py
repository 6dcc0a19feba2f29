"""The calls that ask: validate, one use case, respond."""

from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import APIRouter, Request

from openbook import errors
from openbook.api.access import TheServices, TheSettings, settings_of
from openbook.api.body import JsonRoute
from openbook.api.logs import FACTS
from openbook.api.middleware import while_connected
from openbook.api.openapi import BODY_PROBLEMS, problem_responses
from openbook.api.responses import AnswerResponse, CompareResponse, RetrieveResponse, ScoreResponse
from openbook.api.schemas import AnswerRequest, CompareRequest, QuestionBody, RetrieveRequest, ScoreRequest
from openbook.application.comparison import Comparison
from openbook.entities import Answer, Retrieval, Scores

F = TypeVar("F", Answer, Scores, Retrieval, Comparison)

COMPUTED = ("encode", "retrieve", "generate")
QUESTION_PROBLEMS = problem_responses(
    *(errors.InvalidRequest, errors.UnknownIndex, errors.IndexNotResident, errors.RetrieverUnavailable),
    *(errors.NotCalibrated, errors.Overloaded, errors.NoLiveIndex, errors.DeadlineExceeded),
    http=BODY_PROBLEMS,
)

router = APIRouter(route_class=JsonRoute, tags=["questions"])


@router.post("/answer", responses=QUESTION_PROBLEMS)
async def answer(body: AnswerRequest, request: Request, services: TheServices, settings: TheSettings) -> AnswerResponse:
    """Answer a question from the live index, and say which passage every token came from."""
    asked = services.answer_question.answer(
        body.question, body.options(settings, services.engine), timeout_s=body.timeout(settings), index=body.index
    )
    return AnswerResponse.model_validate(await answered(request, body, asked))


@router.post("/compare", responses=QUESTION_PROBLEMS)
async def compare(
    body: CompareRequest, request: Request, services: TheServices, settings: TheSettings
) -> CompareResponse:
    """Ask several versions the same question, and see where their answers part."""
    asked = services.answer_question.compare(
        body.question, body.options(settings, services.engine), body.versions, timeout_s=body.timeout(settings)
    )
    return CompareResponse.model_validate(await answered(request, body, asked))


@router.post("/score", responses=QUESTION_PROBLEMS)
async def score(body: ScoreRequest, request: Request, services: TheServices, settings: TheSettings) -> ScoreResponse:
    """p(target | question) of given targets: classification, and facts to be checked."""
    asked = services.answer_question.score(
        body.question,
        body.targets,
        body.options(settings, services.engine),
        timeout_s=body.timeout(settings),
        index=body.index,
    )
    return ScoreResponse.model_validate(await answered(request, body, asked))


@router.post("/retrieve", responses=QUESTION_PROBLEMS)
async def retrieve(
    body: RetrieveRequest, request: Request, services: TheServices, settings: TheSettings
) -> RetrieveResponse:
    """The passages for a question with their scores and prior; nothing is generated."""
    asked = services.answer_question.retrieve(
        body.question, body.options(settings, services.engine), timeout_s=body.timeout(settings), index=body.index
    )
    return RetrieveResponse.model_validate(await answered(request, body, asked))


async def answered(request: Request, body: QuestionBody, asked: Coroutine[Any, Any, F]) -> F:
    """What was asked for. Leaves for the access log which versions answered, and the seconds of each stage."""
    found = await while_connected(request, asked)
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
    return found
