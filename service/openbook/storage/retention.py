"""Which versions are kept, by number and age, and which go; never one that somebody needs."""

import datetime
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from openbook.entities import IndexInfo
from openbook.errors import IndexCorrupt, IndexInUse, UnknownIndex
from openbook.storage import workplace
from openbook.storage.history import SwapHistory
from openbook.storage.index_store import IndexStore
from openbook.storage.placing import delete_version

DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Retention:
    """Versions to keep: the newest `keep` by the time of their build, and those younger than `days`.

    None is no wish: without either all are kept. `among` names the versions that may go at all.
    """

    keep: int | None = None
    days: float | None = None
    among: Callable[[str], bool] = lambda version: True


@dataclass(frozen=True, slots=True)
class Retired:
    """The versions that went, and why each of those stays that would have gone: pairs of a version and a reason."""

    removed: tuple[str, ...]
    spared: tuple[tuple[str, str], ...]


def retire(store: IndexStore, retention: Retention, bases: Mapping[str, str], *, dry_run: bool = False) -> Retired:
    """Delete the versions that `retention` does not keep, the oldest first; their files go as `prune` says.

    Spares what services start on, what a rollback of it leads to, what a process on any machine has open, what is
    being published, what cannot be read, and what an unfinished update or merge is made from: `bases` names it and the
    unfinished version. A kill leaves each version whole or gone. Raises IndexCorrupt before
    anything is deleted: then nobody knows what is live.
    """
    live = store.default_version() if store.versions() else None
    before = SwapHistory(store.folder).version_before(live)
    removed: list[str] = []
    spared: list[tuple[str, str]] = []
    for version in _superfluous(store, retention, spared):
        reason = _needed(store, version, live, before, bases)
        if reason is None and not dry_run:
            try:
                delete_version(store, version)
            except UnknownIndex:
                # another process deleted it meanwhile
                continue
            except IndexInUse as error:
                reason = error.data["reason"]
        if reason is None:
            removed.append(version)
        else:
            spared.append((version, reason))
    return Retired(tuple(removed), tuple(spared))


def _superfluous(store: IndexStore, retention: Retention, spared: list[tuple[str, str]]) -> list[str]:
    """What number and age do not keep, the oldest first."""
    if retention.keep is None and retention.days is None:
        return []
    found: list[IndexInfo] = []
    for version in filter(retention.among, store.versions()):
        try:
            found.append(store.info(version))
        except IndexCorrupt as error:
            spared.append((version, f"its age is not known: {error}"))
        except UnknownIndex:
            continue
    found.sort(key=lambda info: (info.created_at, info.version))
    older = found[: max(0, len(found) - (retention.keep or 0))]
    until = time.time() - (retention.days or 0) * DAY_S
    return [info.version for info in older if _built_at(info) <= until]


def _needed(
    store: IndexStore, version: str, live: str | None, before: str | None, bases: Mapping[str, str]
) -> str | None:
    """Why a version must stay; None where it may go."""
    if version == live:
        return "services start on it"
    if version == before:
        return f"a rollback of {live} leads to it"
    if workplace.is_being_built(store.folder, version):
        return "it is being published"
    unfinished = bases.get(version)
    if unfinished is not None:
        return f"the unfinished {unfinished} is made from it: finish that, or openbook index delete {unfinished}"
    with suppress(IndexCorrupt, UnknownIndex):
        if store.is_in_use(version):
            return "a process has it open"
    return None


def _built_at(info: IndexInfo) -> float:
    return datetime.datetime.fromisoformat(info.created_at).timestamp()
