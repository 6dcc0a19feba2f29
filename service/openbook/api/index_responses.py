"""The records of the index and the service that are not read from an entity as it is."""

from dataclasses import asdict, replace

from openbook.api.problems import shown
from openbook.application.follow_current import FollowProblem
from openbook.application.live_index import Resident
from openbook.application.swap_progress import SwapProgress
from openbook.entities import GeneratorStatus
from openbook_client import results


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


def following_record(problem: FollowProblem | None) -> results.Following:
    """Anyone may read it: bounded, and without a path of the disk."""
    if problem is None:
        return results.Following(ok=True, wanted=None, code=None, detail="", since=None)
    found = replace(problem, wanted=shown(problem.wanted), detail=shown(problem.detail))
    return results.Following(ok=False, **asdict(found))


def generator_record(status: GeneratorStatus | None) -> results.GeneratorStatus | None:
    """Anyone may read it: bounded, and without a path of the disk."""
    if status is None:
        return None
    problem = None if status.problem is None else shown(status.problem)
    return results.GeneratorStatus.model_validate(replace(status, problem=problem))
