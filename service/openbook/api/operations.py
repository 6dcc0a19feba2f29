"""The calls for the operator: alive, ready, and metrics."""

from dataclasses import asdict, replace

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response

from openbook import __version__
from openbook.api.calls import TheCall
from openbook.api.indexes import generator_record
from openbook.api.openapi import problem_responses
from openbook.api.problems import NOT_READY_RETRY_S, shown
from openbook.application.follow_current import FollowProblem
from openbook.application.swap_progress import SwapProgress
from openbook.application.telemetry import Telemetry
from openbook.errors import IndexCorrupt, IndexUnreachable, NoLiveIndex
from openbook_client import results

# A free thread picks up a no-op in much less time.
WORKER_ANSWERS_IN_S = 1.0

router = APIRouter(tags=["operations"])


class AliveResponse(BaseModel):
    status: str


class VersionResponse(BaseModel):
    version: str


@router.head("/health", include_in_schema=False)
@router.head("/healthz", include_in_schema=False)
@router.get("/health", responses=problem_responses())
@router.get("/healthz", responses=problem_responses())
async def healthz() -> AliveResponse:
    """The process is alive."""
    return AliveResponse(status="alive")


@router.get("/version", responses=problem_responses())
async def version() -> VersionResponse:
    """The version of Openbook that serves."""
    return VersionResponse(version=__version__)


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz", responses=problem_responses(NoLiveIndex))
async def readyz(call: TheCall) -> results.Ready:
    """Able to answer: an index is live, and the threads that compute do get work done.

    A service that cannot open what CURRENT names is ready too: it keeps its index, and `following` says why.
    """
    services = call.services
    try:
        with services.live.lease() as lease:
            index = lease.index
            lease.snapshot.check_ready()
    except (IndexCorrupt, IndexUnreachable) as error:
        raise NoLiveIndex(hint=str(error)) from error
    except NoLiveIndex as error:
        raise NoLiveIndex(hint=f"{error}{under_way(services.swap_index.progress())}") from error
    if not await services.pool.responds(within_s=WORKER_ANSWERS_IN_S):
        raise HTTPException(503, "No thread takes up work.", {"retry-after": str(NOT_READY_RETRY_S)})
    follower, generator = services.follower, services.engine.generator()
    if generator is not None and generator.problem is not None:
        raise NoLiveIndex(hint=f"The generator {generator.model} does not answer: {generator.problem}.")
    return results.Ready(
        status="ready",
        index=results.IndexVersion.model_validate(index),
        checkpoint=services.engine.facts.checkpoint,
        following=following_record(follower.problem()) if follower is not None else None,
        generator=generator_record(generator),
    )


def following_record(problem: FollowProblem | None) -> results.Following:
    """Anyone may read it: bounded, and without a path of the disk."""
    if problem is None:
        return results.Following(ok=True, wanted=None, code=None, detail="", since=None)
    found = replace(problem, wanted=shown(problem.wanted), detail=shown(problem.detail))
    return results.Following(ok=False, **asdict(found))


def under_way(progress: SwapProgress) -> str:
    """How far the swap is that will make an index live; empty where there is none."""
    if progress.state != "running" or progress.stage is None:
        return ""
    share = "" if progress.fraction is None else f", {progress.fraction:.0%} of it done"
    return f" Stage of the swap: {progress.stage}{share}."


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(request: Request) -> Response:
    """For Prometheus."""
    telemetry: Telemetry = request.app.state.telemetry
    return Response(telemetry.render(), media_type=telemetry.content_type)
