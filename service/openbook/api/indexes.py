"""The calls about the index: what there is, what is live, and what becomes live."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Body, Depends, Query
from pydantic import BaseModel
from starlette.responses import JSONResponse

from openbook import errors
from openbook.api.access import TheActor, TheServices, TheSettings, admin
from openbook.api.body import JsonRoute
from openbook.api.composition import Services
from openbook.api.index_responses import (
    HistoryResponse,
    IndexesResponse,
    LoadResponse,
    ManifestResponse,
    PriorResponse,
    ResidentIndex,
    SwapProgressResponse,
    SwapResponse,
)
from openbook.api.openapi import BODY_PROBLEMS, problem_responses
from openbook.api.responses import Index
from openbook.api.schemas import HistoryQuery, LoadRequest, RollbackRequest, SwapRequest
from openbook.application.swap_index import LoadReport, SwapReport
from openbook.application.swap_progress import SwapProgress
from openbook.entities import IndexInfo
from openbook.storage.history import SwapRecord

C = TypeVar("C", bound=Callable[..., Any])
T = TypeVar("T")

ADMIN = [Depends(admin)]
ADMIN_PROBLEMS = (errors.InvalidRequest, errors.Unauthorized, errors.TooManyAttempts, errors.AdminDisabled)
LOAD_PROBLEMS = (
    *(*ADMIN_PROBLEMS, errors.UnknownIndex, errors.IndexCorrupt, errors.IndexIncompatible, errors.IndexTooLarge),
    *(errors.SwapInProgress, errors.NoLiveIndex, errors.IndexUnreachable, errors.StoreUnreachable),
)
SWAP_PROBLEMS = (*LOAD_PROBLEMS, errors.RetrieverUnavailable, errors.DrainTimedOut)

router = APIRouter(route_class=JsonRoute, tags=["index"])


def change(name: str, report: type[BaseModel], *problems: type[errors.OpenbookError]) -> Callable[[C], C]:
    """The decorator of a call that changes what is open, and ends with `report` or with one of `problems`."""
    begun: dict[int | str, dict[str, Any]] = {
        202: {"model": SwapProgressResponse, "description": "With `wait` false: it has begun."}
    }
    responses = begun | problem_responses(*problems, http=BODY_PROBLEMS)
    return router.post(f"/index/{name}", dependencies=ADMIN, response_model=report, responses=responses)


@router.get("/index", responses=problem_responses(errors.IndexCorrupt))
async def indexes(services: TheServices) -> IndexesResponse:
    """The live version and its generation, what is open, and what is on disk."""
    versions = await services.lists.run(services.store.versions)
    now = services.live.now()
    return IndexesResponse(
        live=Index.model_validate(now) if now is not None else None,
        resident=[ResidentIndex.of_resident(resident) for resident in services.live.residents()],
        versions=list(versions),
        checkpoint=services.engine.facts.checkpoint,
        model=services.engine.facts.model,
        max_no_answer=services.engine.facts.max_no_answer,
        prior=PriorResponse.model_validate(services.engine.facts.prior)
        if services.engine.facts.prior is not None
        else None,
        reranker=services.engine.facts.reranker,
        feedback=services.feedback is not None,
    )


@router.get("/index/swap", response_model=SwapProgressResponse, responses=problem_responses())
async def swap_progress(services: TheServices) -> SwapProgress:
    """The swap that is under way, or else how the last one ended."""
    return services.swap_index.progress()


@router.get(
    "/index/history", dependencies=ADMIN, response_model=HistoryResponse, responses=problem_responses(*ADMIN_PROBLEMS)
)
async def history(services: TheServices, asked: Annotated[HistoryQuery, Query()]) -> dict[str, tuple[SwapRecord, ...]]:
    """Who swapped what, when and with which outcome, newest first: every service on the folder, restarts included."""
    return {"swaps": await services.administration.run(services.history.last, asked.limit)}


# after the two routes above, whose last parts would be taken for versions
@router.get(
    "/index/{version}",
    response_model=ManifestResponse,
    responses=problem_responses(errors.UnknownIndex, errors.IndexCorrupt, errors.StoreUnreachable),
)
async def manifest(version: str, services: TheServices) -> IndexInfo:
    """What one version on disk says of itself."""
    return await asyncio.to_thread(services.store.info, version)


@change("swap", SwapResponse, *SWAP_PROBLEMS)
async def swap(
    body: SwapRequest, services: TheServices, settings: TheSettings, actor: TheActor
) -> SwapReport | JSONResponse:
    """Replace the live index without a restart. A client that hangs up does not stop it."""
    policy = body.policy or settings.swap_policy
    begun = await services.administration.run(
        services.swap_index.begin, body.version, policy=policy, verify=body.verify, actor=actor
    )
    return await _ended_or_begun(services, begun, wait=body.wait)


@change("rollback", SwapResponse, *SWAP_PROBLEMS, errors.NothingToRollBackTo)
async def rollback(
    body: Annotated[RollbackRequest, Body(default_factory=RollbackRequest)],
    services: TheServices,
    settings: TheSettings,
    actor: TheActor,
) -> SwapReport | JSONResponse:
    """Swap back to the version that was live before the last swap; without a restart, as any swap."""
    begun = await services.administration.run(
        services.swap_index.rollback, policy=body.policy or settings.swap_policy, verify=body.verify, actor=actor
    )
    return await _ended_or_begun(services, begun, wait=body.wait)


@change("load", LoadResponse, *LOAD_PROBLEMS)
async def load(body: LoadRequest, services: TheServices, actor: TheActor) -> LoadReport | JSONResponse:
    """Open a version beside the live one: questions may name it, and a swap to it is a flip and no more."""
    begun = await services.administration.run(services.swap_index.load, body.version, verify=body.verify, actor=actor)
    return await _ended_or_begun(services, begun, wait=body.wait)


async def _ended_or_begun(services: Services, begun: Future[T], *, wait: bool) -> T | JSONResponse:
    """The report of the work once it has ended; with `wait` false at once a 202 with its progress."""
    if wait:
        return await asyncio.shield(asyncio.wrap_future(begun))
    progress = SwapProgressResponse.model_validate(services.swap_index.progress(), from_attributes=True)
    return JSONResponse(progress.model_dump(mode="json"), 202, {"location": "/index/swap"})
