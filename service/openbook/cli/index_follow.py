"""openbook index follow: a version that keeps up with a folder"""

import datetime
import os
import re
import socket
import time
import traceback
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

from openbook.application.guarding import GuardSource, guard_of
from openbook.cli.client import ServiceHere, url_of
from openbook.cli.consoles import duration, say
from openbook.cli.index_build import Embedding, load_encoder
from openbook.cli.index_update import show_plan
from openbook.cli.options import URL, argument, option, with_options
from openbook.cli.progress import ProgressBar
from openbook.cli.swap import Administration, say_broken
from openbook.errors import (
    BuildDiffers,
    GuardFailed,
    IndexInUse,
    NoLiveIndex,
    OpenbookError,
    SettingInvalid,
    SourceInvalid,
)
from openbook.indexing.building.work_folder import bases, unfinished
from openbook.indexing.text_tree import stamp_of
from openbook.settings import Settings
from openbook.storage import durable
from openbook.storage.index_store import IndexStore
from openbook.storage.opening import folder_of
from openbook.storage.retention import Retention, retire
from openbook_client import OpenbookError as ServiceError
from openbook_client.errors import GuardFailed as GuardFailedThere

if TYPE_CHECKING:
    from openbook.indexing.passage_encoder import PassageEncoder

FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 600.0
# The pause doubles so many times at most: 2.0**1024 overflows.
MOST_DOUBLINGS = 10
LONGEST_EVERY_S = 366 * 86_400
ACTOR = "openbook index follow"
UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
TIMED = re.compile(r"-\d{8}T\d{6}Z")
# Of a version's 64 characters the time takes 17.
LONGEST_STEM = 47
# Of the sentence that says who follows.
MOST_HOLDER = 1024


class Serving(Protocol):
    """What serves the versions."""

    def live(self) -> str:
        """The version that is live."""
        ...

    def make_live(self, version: str) -> None: ...


@dataclass(frozen=True, slots=True)
class RunningService:
    """A service that is asked over HTTP; its history names the actor."""

    settings: Settings
    administration: Administration
    actor: str

    def live(self) -> str:
        with self.administration.service(self.settings, self.actor) as service:
            live = service.index().live
        if live is None:
            raise NoLiveIndex
        return live.version

    def make_live(self, version: str) -> None:
        with self.administration.service(self.settings, self.actor) as service:
            report = service.swap(version)
        say(f"{version} is live, generation {report.generation}, after {report.seconds['total']:.3f} s")
        if not report.durable:
            say("CURRENT could not be written: a restart will load another version", "yellow")


@dataclass(frozen=True, slots=True)
class CurrentLine:
    """CURRENT, which services on the folder follow by themselves."""

    store: IndexStore

    def live(self) -> str:
        return self.store.default_version()

    def make_live(self, version: str) -> None:
        self.store.set_current(version)
        say(f"{version} is CURRENT")


@dataclass(frozen=True, slots=True)
class CheckHere:
    """The guard of these settings, asked in this process by the checkpoint of these settings."""

    settings: Settings
    guard: GuardSource
    actor: str

    def begin(self) -> None:
        """Raise SourceInvalid for a guard that cannot be read, before anything is built."""
        self.guard.read()

    def check(self, live: str, version: str) -> None:
        """Raises GuardFailed, which the history keeps."""
        alone = {"index": live, "residents": 1, "follow_s": 0.0, "swap_policy": "availability", "feedback": None}
        with ServiceHere(self.settings.model_copy(update=alone)) as service:
            service.check(version, actor=self.actor)


def utc_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


class SeriesLock:
    """The right to make the versions of one stem, for one process at a time. It ends with the process, however that
    ends: the file stays, and says who had it last."""

    def __init__(self, store: IndexStore, source: str) -> None:
        self._store = store
        self._holder = f"process {os.getpid()} on {socket.gethostname()} follows {Path(source).absolute()}"
        self._held: tuple[str, int] | None = None

    def take(self, stem: str) -> None:
        """Take the lock of this stem in place of another. Raises IndexInUse, which names who has it."""
        if self._held is not None and self._held[0] == stem:
            return
        path = self._store.folder / f".following-{stem}"
        # as far as the umask allows: where several users share the folder, each may follow next
        descriptor = durable.open_regular(path, os.O_RDWR | os.O_CREAT, 0o666)
        if not durable.lock(descriptor, path, unsupported=True):
            holder = os.pread(descriptor, MOST_HOLDER, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise IndexInUse("followed", version=stem, holder=holder or "another process has them")
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{self._holder}\n".encode(), 0)
        self.release()
        self._held = (stem, descriptor)

    def release(self) -> None:
        if self._held is not None:
            os.close(self._held[1])
            self._held = None


class Follower:
    """Makes a version of the live one whenever the text has changed, and makes that one live.

    From its first look on, it alone follows the versions of this name, until `close`.
    """

    def __init__(
        self,
        store: IndexStore,
        source: str,
        serving: Serving,
        encoder: "PassageEncoder",
        *,
        keep: int,
        workers: int | None = None,
        guard: CheckHere | None = None,
        clock: Callable[[], datetime.datetime] = utc_now,
    ) -> None:
        self._store = store
        self._source = source
        self._serving = serving
        self._encoder = encoder
        self._keep = keep
        self._workers = workers
        self._guard = guard
        self._clock = clock
        self._lock = SeriesLock(store, source)
        # the state of the text that is served, and the version made of a later state that waits to be served
        self._served: str | None = None
        self._waiting: tuple[str, str] | None = None
        # versions that broke a guarded answer; the state of the text of the last one is as good as served
        self.refused = 0

    def close(self) -> None:
        """Let another process follow."""
        self._lock.release()

    def look(self) -> bool:
        """Whether the text had changed, so that another version is live now.

        Raises what stands in the way. The next look goes on from there: a version that is built is not built again,
        and one that breaks a guarded answer is not tried again while the text stays as it is.
        """
        state = state_of(Path(self._source))
        if state == self._served:
            return False
        if self._guard is not None:
            self._guard.begin()
        if self._waiting is None or self._waiting[0] != state:
            version = self._made()
            if version is None:
                self._served = state
                return False
            self._waiting = (state, version)
        version = self._waiting[1]
        try:
            if self._guard is not None:
                self._guard.check(self._serving.live(), version)
            self._serving.make_live(version)
        except (GuardFailed, GuardFailedThere) as error:
            say_broken(error.broken)
            self.refused += 1
            say(f"{version} did not become live: {self.refused} refused so far", "yellow")
            # without one, the time was short
            if error.broken:
                self._served, self._waiting = state, None
            raise
        self._served, self._waiting = state, None
        self._retire()
        return True

    def _made(self) -> str | None:
        """A version of the text as it is now: one that was made before, or a new one. None where the live one is."""
        from openbook.indexing.index_builder import BuildOptions
        from openbook.indexing.sources import open_source
        from openbook.indexing.updating.plan import plan_update
        from openbook.indexing.updating.update import Changes, update_index

        live = self._serving.live()
        # a version of another folder is none that a lock in this one keeps
        self._store.find(live)
        stem = stem_of(live)
        self._lock.take(stem)
        with ProgressBar(stopped="stopped; the next follow goes on with it") as progress:
            ready = self._ready_after(live)
            if ready is not None:
                with closing(self._store.open(ready)) as snapshot:
                    plan = plan_update(snapshot, open_source(self._source), mirror=True, report=progress.update)
                if not plan.changes_something:
                    say(f"{ready} is what {self._source} says, and was not live")
                    return ready
            begun = [one for one in unfinished(self._store.folder) if stem_of(one) == stem and one != stem]
            name = begun[-1] if begun else f"{stem}-{self._clock():%Y%m%dT%H%M%SZ}"
            options = BuildOptions(index="", workers=self._workers)

            def build(options: BuildOptions) -> bool:
                changes = Changes(open_source(self._source), mirror=True)
                made = update_index(
                    self._store,
                    live,
                    name,
                    self._encoder,
                    changes,
                    options,
                    wanted=lambda plan: plan.changes_something and show_plan(plan),
                    report=progress,
                )
                return made is not None

            try:
                is_made = build(options)
            except BuildDiffers:
                # an earlier process was ended on its way, and the text or the live version is another by now
                is_made = build(replace(options, restart=True))
        if not is_made:
            say(f"{live} is up to date with {self._source}")
        return name if is_made else None

    def _ready_after(self, live: str) -> str | None:
        """The newest version that an earlier process made of `live`, where that was ended before the swap."""
        stem = stem_of(live)
        for version in reversed(self._store.versions()):
            if version not in (stem, live) and stem_of(version) == stem:
                lineage = self._store.info(version).lineage
                return version if lineage is not None and lineage.base == live else None
        return None

    def _retire(self) -> None:
        live = self._serving.live()
        stem = stem_of(live)
        mine = Retention(keep=self._keep, among=lambda version: version != stem and stem_of(version) == stem)
        for version in retire(self._store, mine, bases(self._store.folder)).removed:
            say(f"deleted {version}: the newest {self._keep} stay")


def stem_of(version: str) -> str:
    """The name without the time that a follower put behind it."""
    timed = TIMED.search(version, max(0, len(version) - 17))
    return version[: timed.start()] if timed is not None else version[:LONGEST_STEM]


def state_of(path: Path) -> str:
    """Text that changes when a file changes, or any below a folder. Raises SourceInvalid where it cannot be read."""
    try:
        return stamp_of(path)
    except OSError as error:
        raise SourceInvalid(source=str(path), reason=f"cannot be read ({error.strerror or error})") from error


def seconds_of(text: str) -> float:
    """90, 90s, 5m, 2h or 1d in seconds. Raises SettingInvalid."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    seconds = float(match[1]) * UNITS[match[2]] if match is not None else 0.0
    if not 0 < seconds <= LONGEST_EVERY_S:
        raise SettingInvalid(setting="--every", reason=f"must be a time such as 30s, 5m or 2h, not {text!r:.40}")
    return seconds


def keep_looking(follower: Follower, every_s: float, sleep: Callable[[float], None] = time.sleep) -> None:
    """Look again and again, whatever a look raises.

    After errors it waits 5, 10, 20 ... seconds, at most 10 minutes, or `every_s` if longer.
    """
    failed = 0
    while True:
        try:
            follower.look()
            failed, pause = 0, every_s
        # it runs for months, unwatched: nothing that a file, the service or a library does may end it
        except Exception as error:
            pause = min(FIRST_PAUSE_S * 2 ** min(failed, MOST_DOUBLINGS), max(every_s, LONGEST_PAUSE_S))
            failed += 1
            # nor may a standard error that nobody reads any more
            with suppress(OSError, ValueError):
                say(_failure(error, failed, pause), "yellow")
        sleep(pause)


def _failure(error: Exception, failed: int, pause: float) -> str:
    match error:
        case OpenbookError() | ServiceError():
            said = f"[{error.code}]: {error}"
        case OSError():
            said = f"[system_error]: {error}"
        case _:
            # nobody foresaw it: where it comes from
            [*_, last] = traceback.extract_tb(error.__traceback__)
            said = (
                f"[internal_error]: {type(error).__name__}: {error!s:.500} ({Path(last.filename).name}:{last.lineno})"
            )
    again = f"again in {duration(pause)}" + (f", after {failed} errors in a row" if failed > 1 else "")
    return f"{utc_now():%Y-%m-%dT%H:%M:%SZ} not followed {said}; {again}"


@with_options
def follow(
    settings: Annotated[Settings, "indexes", "device", "host", "port", "checkpoint"],
    embedding: Embedding,
    source: str = argument("DIR", "The whole text: a folder, or a file, as index build reads it."),
    every: str = option("5m", "Time between checks, such as 30s, 5m or 2h."),
    url: str | None = URL,
    actor: str = option(ACTOR, "Who swaps, for the service's history."),
    current: bool = option(False, "Write CURRENT instead of calling a service. Services on the folder follow it."),
    keep: int = option(7, "Number of the newest versions made here to keep.", min=1),
    guard: Path | None = option(
        None,
        "Questions whose answers a version must not break, as for openbook check: one that does is kept, and does not "
        "become live. Default: OPENBOOK_GUARD.",
        metavar="FILE.jsonl",
    ),
    once: bool = option(False, "Check once and exit, for cron."),
) -> None:
    """Keep the live version up to date with a folder: build an update when its files change, and swap to it.

    The live version must lie in --indexes and have been built from this text. A new one is named after it and the
    time, such as notes-20261122T101500Z. Embeds only new text. An error is said and tried again after a pause; what is
    live serves meanwhile. A second follower of the same versions waits for the end of the first. You may stop it at any
    time.
    """
    every_s = seconds_of(every)
    store = folder_of(settings, "openbook index follow")
    if current and url is not None:
        raise SettingInvalid(setting="--current", reason="asks no service, and --url names one; leave one of them out")
    serving: Serving = CurrentLine(store)
    if not current:
        administration = Administration(url=url)
        # what no request can carry is said now, and not tried again for ever
        administration.service(settings, actor).close()
        serving = RunningService(settings, administration, actor)
    check = _check_of(settings, guard, actor)
    encoder = load_encoder(settings, embedding)
    follower = Follower(store, source, serving, encoder, keep=keep, workers=embedding.workers, guard=check)
    where = "CURRENT" if current else url or url_of(settings)
    with closing(follower):
        if once:
            follower.look()
            return
        say(f"follows {source} every {duration(every_s)} for {where}; Ctrl-C ends it")
        keep_looking(follower, every_s)


def _check_of(settings: Settings, file: Path | None, actor: str) -> CheckHere | None:
    """Raises SettingInvalid where no plug-in reads guards, and SourceInvalid for one that cannot be read."""
    if file is not None:
        settings = settings.model_copy(update={"guard": file})
    guard = guard_of(settings)
    if guard is None:
        if file is not None:
            raise SettingInvalid(setting="--guard", reason="no package that reads guarded questions is installed")
        return None
    guard.read()
    return CheckHere(settings, guard, actor)
