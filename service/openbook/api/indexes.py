"""The calls about the index: what there is, what is live, and what becomes live."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict, replace
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Body, Depends, Query
from starlette.responses import JSONResponse

from openbook import errors
from openbook.api.access import TheActor, admin
from openbook.api.body import JsonRoute
from openbook.api.calls import TheCall, additions
from openbook.api.composition import Services
from openbook.api.openapi import BODY_PROBLEMS, problem_responses
from openbook.api.problems import shown
from openbook.api.schemas import HistoryQuery, LoadRequest, RollbackRequest, SwapRequest
from openbook.application.live_index import Resident
from openbook.application.swap_progress import SwapProgress
from openbook.entities import GeneratorStatus
from openbook_client import results

C = TypeVar("C", bound=Callable[..., Any])
R = TypeVar("R", bound=results.Result)

ADMIN = [Depends(admin)]
ADMIN_PROBLEMS = (
    *(errors.InvalidRequest, errors.Unauthorized, errors.TooManyAttempts, errors.AdminDisabled),
    errors.OriginRefused,
)
LOAD_PROBLEMS = (
    *(*ADMIN_PROBLEMS, errors.UnknownIndex, errors.IndexCorrupt, errors.IndexIncompatible, errors.IndexTooLarge),
    *(errors.SwapInProgress, errors.NoLiveIndex, errors.IndexUnreachable, errors.StoreUnreachable),
)
SWAP_PROBLEMS = (*LOAD_PROBLEMS, errors.RetrieverUnavailable, errors.DrainTimedOut)

router = APIRouter(route_class=JsonRoute, tags=["index"])


def change(name: str, report: type[results.Result], *problems: type[errors.OpenbookError]) -> Callable[[C], C]:
    """The decorator of a call that changes what is open, and ends with `report` or with one of `problems`."""
    begun: dict[int | str, dict[str, Any]] = {
        202: {"model": results.SwapProgress, "description": "With `wait` false: it has begun."}
    }
    responses = begun | problem_responses(*problems, http=BODY_PROBLEMS)
    return router.post(f"/index/{name}", dependencies=ADMIN, response_model=report, responses=responses)


@router.get("/index", responses=problem_responses(errors.IndexCorrupt))
async def indexes(call: TheCall) -> results.Indexes:
    """The live version and its generation, what is open, and what is on disk."""
    services = call.services
    versions = await services.lists.run(services.store.versions)
    now, facts, check = services.live.now(), services.engine.facts, services.swap_index.last_check()
    return results.Indexes(
        live=results.IndexVersion.model_validate(now) if now is not None else None,
        resident=tuple(resident_record(resident) for resident in services.live.residents()),
        versions=tuple(versions),
        checkpoint=facts.checkpoint,
        model=facts.model,
        max_no_answer=facts.max_no_answer,
        prior=results.PriorWeights.model_validate(facts.prior) if facts.prior is not None else None,
        reranker=facts.reranker,
        generator=generator_record(services.engine.generator()),
        last_check=results.GuardCheck.model_validate(check) if check is not None else None,
        feedback=services.feedback is not None,
        offers=tuple(name for name, one in additions().items() if one.offered(call.settings)),
    )


@router.get("/index/swap", responses=problem_responses())
async def swap_progress(call: TheCall) -> results.SwapProgress:
    """The swap that is under way, or else how the last one ended."""
    return progress_record(call.services.swap_index.progress())


@router.get("/index/history", dependencies=ADMIN, responses=problem_responses(*ADMIN_PROBLEMS))
async def history(call: TheCall, asked: Annotated[HistoryQuery, Query()]) -> results.History:
    """Who swapped what, when and with which outcome, newest first: every service on the folder, restarts included."""
    swaps = await call.services.administration.run(call.services.history.last, asked.limit)
    return results.History(swaps=tuple(results.SwapRecord.model_validate(swap) for swap in swaps))


# after the two routes above, whose last parts would be taken for versions
@router.get(
    "/index/{version}",
    responses=problem_responses(errors.UnknownIndex, errors.IndexCorrupt, errors.StoreUnreachable),
)
async def manifest(version: str, call: TheCall) -> results.Manifest:
    """What one version on disk says of itself."""
    return results.Manifest.model_validate(await asyncio.to_thread(call.services.store.info, version))


@change("swap", results.Swapped, *SWAP_PROBLEMS, errors.GuardFailed, errors.GuardUnavailable)
async def swap(body: SwapRequest, call: TheCall, actor: TheActor) -> results.Swapped | JSONResponse:
    """Replace the live index without a restart. A client that hangs up does not stop it."""
    policy = body.policy or call.settings.swap_policy
    begun = await call.services.administration.run(
        call.services.swap_index.begin,
        body.version,
        policy=policy,
        verify=body.verify,
        actor=actor,
        guard=body.guard,
        force=body.force,
    )
    return await _ended_or_begun(call.services, begun, results.Swapped, wait=body.wait)


@change("rollback", results.Swapped, *SWAP_PROBLEMS, errors.NothingToRollBackTo)
async def rollback(
    body: Annotated[RollbackRequest, Body(default_factory=RollbackRequest)],
    call: TheCall,
    actor: TheActor,
) -> results.Swapped | JSONResponse:
    """Swap back to the version that was live before the last swap; without a restart, as any swap."""
    begun = await call.services.administration.run(
        call.services.swap_index.rollback,
        policy=body.policy or call.settings.swap_policy,
        verify=body.verify,
        actor=actor,
    )
    return await _ended_or_begun(call.services, begun, results.Swapped, wait=body.wait)


@change("load", results.Loaded, *LOAD_PROBLEMS)
async def load(body: LoadRequest, call: TheCall, actor: TheActor) -> results.Loaded | JSONResponse:
    """Open a version beside the live one: questions may name it, and a swap to it is a flip and no more."""
    begun = await call.services.administration.run(
        call.services.swap_index.load, body.version, verify=body.verify, actor=actor
    )
    return await _ended_or_begun(call.services, begun, results.Loaded, wait=body.wait)


async def _ended_or_begun(services: Services, begun: Future[Any], report: type[R], *, wait: bool) -> R | JSONResponse:
    """The report of the work once it has ended; with `wait` false at once a 202 with its progress."""
    if wait:
        return report.model_validate(await asyncio.shield(asyncio.wrap_future(begun)))
    progress = progress_record(services.swap_index.progress())
    return JSONResponse(progress.model_dump(mode="json"), 202, {"location": "/index/swap"})


def resident_record(resident: Resident) -> results.Resident:
    return results.Resident(
        **asdict(resident.index),
        bytes=resident.bytes,
        live=resident.live,
        retiring=resident.retiring,
        leases=resident.leases,
    )


def progress_record(progress: SwapProgress) -> results.SwapProgress:
    """Anyone may read it: bounded, without a path of the disk, and without who asked. The log has the whole."""
    version = shown(progress.version) if progress.version is not None else None
    return results.SwapProgress.model_validate(replace(progress, version=version, detail=shown(progress.detail)))


def generator_record(status: GeneratorStatus | None) -> results.GeneratorStatus | None:
    """Anyone may read it: bounded, and without a path of the disk."""
    if status is None:
        return None
    problem = None if status.problem is None else shown(status.problem)
    return results.GeneratorStatus.model_validate(replace(status, problem=problem))
