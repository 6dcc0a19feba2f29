"""The calls about the index: what there is, what is live, and what is to be."""

import asyncio
from concurrent.futures import Future
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Body, Depends, Query
from starlette.responses import JSONResponse

from openbook.api.access import TheActor, TheServices, TheSettings, admin
from openbook.api.body import JsonRoute
from openbook.api.composition import Services
from openbook.api.index_responses import (
    HistoryResponse,
    IndexesResponse,
    LoadResponse,
    ManifestResponse,
    ResidentIndex,
    SwapProgressResponse,
    SwapRecordResponse,
    SwapResponse,
)
from openbook.api.openapi import BODY_PROBLEMS, problem_responses
from openbook.api.responses import Index
from openbook.api.schemas import HistoryQuery, LoadRequest, RollbackRequest, SwapRequest
from openbook.errors import (
    AdminDisabled,
    DrainTimedOut,
    IndexCorrupt,
    IndexIncompatible,
    IndexTooLarge,
    InvalidRequest,
    NoLiveIndex,
    NothingToRollBackTo,
    OpenbookError,
    RetrieverUnavailable,
    SwapInProgress,
    TooManyAttempts,
    Unauthorized,
    UnknownIndex,
)

T = TypeVar("T")

LOAD_PROBLEMS: tuple[type[OpenbookError], ...] = (
    InvalidRequest,
    Unauthorized,
    TooManyAttempts,
    AdminDisabled,
    UnknownIndex,
    IndexCorrupt,
    IndexIncompatible,
    IndexTooLarge,
    SwapInProgress,
    NoLiveIndex,
)
BEGUN: dict[int | str, dict[str, Any]] = {
    202: {"model": SwapProgressResponse, "description": "With `wait` false: it has begun."}
}

router = APIRouter(route_class=JsonRoute, tags=["index"])


@router.get("/index", responses=problem_responses())
async def indexes(services: TheServices) -> IndexesResponse:
    """The live version and its generation, what is open, and what is on disk."""
    versions = await asyncio.to_thread(services.store.versions)
    now = services.live.now()
    return IndexesResponse(
        live=Index.model_validate(now) if now is not None else None,
        resident=[ResidentIndex.of_resident(resident) for resident in services.live.residents()],
        versions=list(versions),
        checkpoint=services.engine.checkpoint_name,
    )


@router.get("/index/swap", responses=problem_responses())
async def swap_progress(services: TheServices) -> SwapProgressResponse:
    """The swap that is under way, or else how the last one ended."""
    return SwapProgressResponse.of(services.swap_index.progress())


@router.get(
    "/index/history",
    dependencies=[Depends(admin)],
    responses=problem_responses(InvalidRequest, Unauthorized, TooManyAttempts, AdminDisabled),
)
async def history(services: TheServices, asked: Annotated[HistoryQuery, Query()]) -> HistoryResponse:
    """Who swapped what, when and with which outcome, newest first: every service on the folder, restarts included."""
    records = await asyncio.to_thread(services.history.last, asked.limit)
    return HistoryResponse(swaps=[SwapRecordResponse.of(record) for record in records])


# after the two above, which would else be the names of versions
@router.get("/index/{version}", responses=problem_responses(UnknownIndex, IndexCorrupt))
async def manifest(version: str, services: TheServices) -> ManifestResponse:
    """What one version on disk says of itself."""
    return ManifestResponse.of(await asyncio.to_thread(services.store.info, version))


@router.post(
    "/index/swap",
    dependencies=[Depends(admin)],
    response_model=SwapResponse,
    responses=BEGUN | problem_responses(*LOAD_PROBLEMS, RetrieverUnavailable, DrainTimedOut, http=BODY_PROBLEMS),
)
async def swap(
    body: SwapRequest, services: TheServices, settings: TheSettings, actor: TheActor
) -> SwapResponse | JSONResponse:
    """Replace the live index without a restart. A client that hangs up does not stop it."""
    begun = await asyncio.to_thread(
        services.swap_index.begin,
        body.version,
        policy=body.policy or settings.swap_policy,
        verify=body.verify,
        actor=actor,
    )
    return SwapResponse.of(await _ended(begun)) if body.wait else _accepted(services)


@router.post(
    "/index/rollback",
    dependencies=[Depends(admin)],
    response_model=SwapResponse,
    responses=BEGUN
    | problem_responses(*LOAD_PROBLEMS, RetrieverUnavailable, DrainTimedOut, NothingToRollBackTo, http=BODY_PROBLEMS),
)
async def rollback(
    body: Annotated[RollbackRequest, Body(default_factory=RollbackRequest)],
    services: TheServices,
    settings: TheSettings,
    actor: TheActor,
) -> SwapResponse | JSONResponse:
    """Swap back to the version that was live before the last swap; without a restart, as any swap."""
    begun = await asyncio.to_thread(
        services.swap_index.rollback, policy=body.policy or settings.swap_policy, verify=body.verify, actor=actor
    )
    return SwapResponse.of(await _ended(begun)) if body.wait else _accepted(services)


@router.post(
    "/index/load",
    dependencies=[Depends(admin)],
    response_model=LoadResponse,
    responses=BEGUN | problem_responses(*LOAD_PROBLEMS, http=BODY_PROBLEMS),
)
async def load(body: LoadRequest, services: TheServices, actor: TheActor) -> LoadResponse | JSONResponse:
    """Open a version beside the live one: questions may name it, and a swap to it is a flip and no more."""
    begun = await asyncio.to_thread(services.swap_index.load, body.version, verify=body.verify, actor=actor)
    return LoadResponse.of(await _ended(begun)) if body.wait else _accepted(services)


async def _ended(begun: Future[T]) -> T:
    return await asyncio.shield(asyncio.wrap_future(begun))


def _accepted(services: Services) -> JSONResponse:
    progress = SwapProgressResponse.of(services.swap_index.progress())
    return JSONResponse(progress.model_dump(mode="json"), 202, {"location": "/index/swap"})
