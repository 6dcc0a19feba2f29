"""The calls about the index: what there is, and what is live."""

import asyncio

from fastapi import APIRouter, Depends

from service.api.access import TheServices, TheSettings, admin
from service.api.body import JsonRoute
from service.api.openapi import BODY_PROBLEMS, problem_responses
from service.api.responses import Index, IndexesResponse, ManifestResponse, ResidentIndex, SwapResponse
from service.api.schemas import SwapRequest
from service.errors import (
    AdminDisabled,
    IndexCorrupt,
    IndexIncompatible,
    IndexTooLarge,
    InvalidRequest,
    SwapInProgress,
    Unauthorized,
    UnknownIndex,
)

router = APIRouter(route_class=JsonRoute, tags=["index"])


@router.get("/index", responses=problem_responses())
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


@router.get("/index/{version}", responses=problem_responses(UnknownIndex, IndexCorrupt))
async def manifest(version: str, services: TheServices) -> ManifestResponse:
    """What one version on disk says of itself."""
    return ManifestResponse.of(await asyncio.to_thread(services.store.info, version))


@router.post(
    "/index/swap",
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
