"""Every call of the service: validate, one use case, respond."""

import asyncio
from secrets import compare_digest
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.exceptions import HTTPException
from starlette.responses import Response

from service.api.body import JsonRoute
from service.api.composition import Services
from service.api.logs import FACTS
from service.api.middleware import while_connected
from service.api.openapi import BODY_PROBLEMS, problem_responses
from service.api.problems import NOT_READY_RETRY_S
from service.api.responses import (
    AliveResponse,
    AnswerResponse,
    Index,
    IndexesResponse,
    ManifestResponse,
    ReadyResponse,
    ResidentIndex,
    RetrieveResponse,
    ScoreResponse,
    SwapResponse,
)
from service.api.schemas import AnswerRequest, RetrieveRequest, ScoreRequest, SwapRequest
from service.application.telemetry import Telemetry
from service.entities import IndexVersion, StageSeconds
from service.errors import (
    AdminDisabled,
    DeadlineExceeded,
    IndexCorrupt,
    IndexIncompatible,
    IndexNotResident,
    IndexTooLarge,
    InvalidRequest,
    NoLiveIndex,
    Overloaded,
    SwapInProgress,
    Unauthorized,
    UnknownIndex,
)
from service.settings import Settings

# A thread that is free picks up a no-op in well under this.
WORKER_ANSWERS_IN_S = 1.0

QUESTION_PROBLEMS = problem_responses(
    InvalidRequest,
    UnknownIndex,
    IndexNotResident,
    Overloaded,
    NoLiveIndex,
    DeadlineExceeded,
    http=BODY_PROBLEMS,
)

router = APIRouter(route_class=JsonRoute)
bearer = HTTPBearer(auto_error=False, description="The setting OPENBOOK_ADMIN_TOKEN.")


def services_of(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


def settings_of(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


def admin(request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]) -> None:
    """Let pass who holds the admin token. Raises AdminDisabled, Unauthorized."""
    token = settings_of(request).admin_token
    if token is None or not token.get_secret_value():
        raise AdminDisabled
    if credentials is None:
        raise Unauthorized(what="missing")
    # headers come as latin-1; compare the bytes that were sent
    if not compare_digest(credentials.credentials.encode("latin-1"), token.get_secret_value().encode()):
        raise Unauthorized(what="wrong")


TheServices = Annotated[Services, Depends(services_of)]
TheSettings = Annotated[Settings, Depends(settings_of)]


@router.post("/answer", tags=["questions"], responses=QUESTION_PROBLEMS)
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


@router.post("/score", tags=["questions"], responses=QUESTION_PROBLEMS)
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


@router.post("/retrieve", tags=["questions"], responses=QUESTION_PROBLEMS)
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


@router.get("/index", tags=["index"], responses=problem_responses())
async def indexes(services: TheServices) -> IndexesResponse:
    """The live version and its generation, what is open, and what is on disk."""
    versions = await asyncio.to_thread(services.store.versions)
    now = services.live.now()
    return IndexesResponse(
        live=Index.of(now) if now is not None else None,
        resident=[ResidentIndex.of_resident(resident) for resident in services.live.residents()],
        versions=list(versions),
        checkpoint=services.engine.checkpoint_name,
    )


@router.get("/index/{version}", tags=["index"], responses=problem_responses(UnknownIndex, IndexCorrupt))
async def manifest(version: str, services: TheServices) -> ManifestResponse:
    """What one version on disk says of itself."""
    return ManifestResponse.of(await asyncio.to_thread(services.store.info, version))


@router.post(
    "/index/swap",
    tags=["index"],
    dependencies=[Depends(admin)],
    responses=problem_responses(
        InvalidRequest,
        Unauthorized,
        AdminDisabled,
        UnknownIndex,
        IndexCorrupt,
        IndexIncompatible,
        IndexTooLarge,
        SwapInProgress,
        http=BODY_PROBLEMS,
    ),
)
async def swap(body: SwapRequest, services: TheServices, settings: TheSettings) -> SwapResponse:
    """Replace the live index without a restart. Answers when it is done; a client that hangs up does not stop it."""
    begun = services.swap_index.begin(body.version, policy=body.policy or settings.swap_policy, verify=body.verify)
    return SwapResponse.of(await asyncio.shield(asyncio.wrap_future(begun)))


@router.get("/healthz", tags=["operations"], responses=problem_responses())
async def healthz() -> AliveResponse:
    """The process is alive."""
    return AliveResponse(status="alive")


@router.get("/readyz", tags=["operations"], responses=problem_responses(NoLiveIndex))
async def readyz(services: TheServices) -> ReadyResponse:
    """Able to answer: an index is live, and the threads that compute do get work done."""
    with services.live.lease() as lease:
        index = lease.index
    if not await services.pool.responds(within_s=WORKER_ANSWERS_IN_S):
        raise HTTPException(503, "No thread takes up work.", {"retry-after": str(NOT_READY_RETRY_S)})
    return ReadyResponse(status="ready", index=Index.of(index), checkpoint=services.engine.checkpoint_name)


@router.get("/metrics", tags=["operations"], response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(request: Request) -> Response:
    """For Prometheus."""
    telemetry: Telemetry = request.app.state.telemetry
    return Response(telemetry.render(), media_type=telemetry.content_type)


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
