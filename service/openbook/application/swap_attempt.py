"""One attempt to swap: pull what is only in a store, verify, open beside, warm, guard, flip, write CURRENT, retire.

A failure before the flip changes nothing: the index that was live keeps serving under its generation. After the flip
there is no way back, since questions may have been answered from the new index. So a CURRENT that cannot be written (a
read-only folder, a full disk) does not undo the swap: the report says `durable: false`, the log says why, and a restart
comes back on the version that CURRENT names.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace

from openbook.application.guarding import GuardedQuestion, Guarding
from openbook.application.live_index import LiveIndex, Resident
from openbook.application.swap_progress import Errand, LoadReport, Stage, SwapProgress, SwapReport, utc_now
from openbook.entities import IndexInfo, RetrieverChoice
from openbook.errors import (
    CurrentConflict,
    DrainTimedOut,
    IndexCorrupt,
    IndexTooLarge,
    OpenbookError,
    RetrieverUnavailable,
    ShuttingDown,
    code_of,
)
from openbook.storage.current import UNKNOWN_CURRENT, CurrentMark
from openbook.storage.index_store import IndexStore
from openbook.storage.manifest import MANIFEST, resident_bytes
from openbook.storage.snapshot import Identity, IndexSnapshot
from openbook.storage.verification import Verification, check_compatible

# Seconds between two looks of a drain at whether it is to end.
DRAIN_CHECK_S = 0.05

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What a version must fit: the checkpoint's question encoder, its retriever, and the memory of this machine.

    `free_memory` gives the bytes that may be taken, including pages of files that the system can drop. A drain
    lasts `drain_s` seconds at most.
    """

    encoder_fingerprint: str | None
    dimension: int
    free_memory: Callable[[], int]
    retriever: RetrieverChoice = "dense"
    drain_s: float


class SwapAttempt:
    """One swap, or one version loaded beside the live one: its thread calls `swap` or `load` once, and `end` then.

    Any thread may ask for its `progress`. Once `ending` is set, the attempt gives up where there is a way back.
    """

    def __init__(
        self,
        store: IndexStore,
        live: LiveIndex,
        fit: Fit,
        *,
        version: str | None,
        errand: Errand,
        actor: str,
        ending: threading.Event,
    ) -> None:
        self._store = store
        self._live = live
        self._fit = fit
        now = live.now()
        # a rollback learns only in its thread where it leads
        self.version = version
        self.previous = now.version if now is not None else None
        self.errand: Errand = errand
        self.actor = actor
        # the CURRENT that this attempt wrote, and whether another process had written one meanwhile
        self.written: CurrentMark | None = None
        self.overruled = False
        self.generation: int | None = None
        # why it was not held up by the guard, for the history
        self.forced = ""
        self._ending = ending
        self._lock = threading.Lock()
        self._progress = SwapProgress(
            "running", previous=self.previous, policy=errand, actor=actor, started_at=utc_now()
        )
        self._entered: float | None = None

    # --- the path ------------------------------------------------------------------------------------------

    def swap(
        self,
        version: str,
        verify: Verification,
        *,
        follows: bool = False,
        guard: Callable[[IndexSnapshot], None] = lambda snapshot: None,
    ) -> SwapReport:
        """Make `version` live, unless `guard` raises. One that `follows` CURRENT does not write it."""
        self.version = version
        since = None if follows else self._claim_current()
        self._pull(version)
        with ExitStack() as held:
            with self._stage("verify"):
                info, identity = self._verify(version, verify)
                resident = self._is_resident(version, identity)
                if resident:
                    # the service may end, and close the residents, while this one is read
                    snapshot = held.enter_context(self._live.lease(version)).snapshot
                elif self.errand == "availability":
                    self._make_room(info, identity)
            if resident:
                with self._stage("warm"):
                    snapshot.warm(self._report)
            else:
                snapshot = self._open_and_warm(version, identity)
            try:
                guard(snapshot)
            except BaseException:
                if not resident:
                    snapshot.close()
                raise
            with self._stage("flip"):
                generation = self.generation = self._live.flip(snapshot)
        if self.errand == "resource":
            self._live.retire_residents()
        durable = follows or self._write_current(version, since)
        self._store.settle(version, self.previous)
        logger.info("swapped from %s to %s, generation %d", self.previous, version, generation)
        return SwapReport(version, self.previous, generation, durable, self.seconds())

    def load(self, version: str, verify: Verification) -> LoadReport:
        """Open `version` as a resident beside the live one."""
        self._pull(version)
        with self._stage("verify"):
            if not self._live.resident(version):
                self._store.info_now(version)
                self._live.check_room(version)
            info, identity = self._verify(version, verify)
            is_open = version == self.previous or self._is_resident(version, identity)
            if not is_open:
                self._make_room(info, identity)
        if not is_open:
            self._live.add_resident(self._open_and_warm(version, identity))
        return LoadReport(version, self.seconds())

    def check(self, version: str, guard: Callable[[IndexSnapshot], None]) -> None:
        """Open `version` for `guard` alone."""
        with self._stage("verify"):
            info, identity = self._verify(version, "manifest")
            self._make_room(info, identity)
        with closing(self._open_and_warm(version, identity)) as snapshot:
            guard(snapshot)

    def ask_guard(self, guarding: Guarding, questions: Sequence[GuardedQuestion], snapshot: IndexSnapshot) -> None:
        """Raises GuardFailed, and ShuttingDown once the service ends."""
        with self._stage("guard"):
            guarding.check(questions, snapshot, self._report, self._ending)

    def _pull(self, version: str) -> None:
        """Bring a version to this machine's disk that lies in a store alone, if its manifest fits."""
        if not self._store.is_here(version):
            with self._stage("pull"):
                self._check_info(version)
                if self.errand == "load":
                    self._live.check_room(version)
                self._store.fetch(version, self._report)

    def _verify(self, version: str, verify: Verification) -> tuple[IndexInfo, Identity]:
        """All that can be known before a byte is mapped, and with "checksum" every byte."""
        info = self._check_info(version)
        return info, self._store.check(version, verify=verify, report=self._report)

    def _check_info(self, version: str) -> IndexInfo:
        """What the manifest says. Raises RetrieverUnavailable and IndexIncompatible where it does not fit."""
        info, retriever = self._store.info_now(version), self._fit.retriever
        if self.errand != "load" and retriever in ("bm25", "hybrid") and info.bm25 is None:
            raise RetrieverUnavailable(version=version, retriever=retriever)
        check_compatible(info, self._fit.encoder_fingerprint, self._fit.dimension)
        return info

    def _is_resident(self, version: str, identity: Identity) -> bool:
        """Whether a resident has these very files mapped. The live one does not count: it is opened again."""
        return any(
            resident.index.version == version and resident.identity == identity and _may_leave(resident)
            for resident in self._live.residents()
        )

    def _make_room(self, info: IndexInfo, identity: Identity) -> None:
        """Raise IndexTooLarge where a version does not fit beside the live index; nothing has changed then.

        For a swap, residents that are not live give way, the least recently leased first, as many as are needed.
        """
        residents = self._live.residents()
        needed = resident_bytes(info)
        # Free memory includes the pages of mapped files, since the system can drop them. Open indexes need their pages.
        # Two openings of the same files share them.
        held = {resident.identity: resident for resident in residents if resident.identity != identity}
        available = self._fit.free_memory() - sum(resident.bytes for resident in held.values())
        leaving = []
        for resident in sorted(residents, key=lambda resident: resident.last_leased):
            if needed <= available:
                break
            if self.errand != "load" and _may_leave(resident) and resident.identity in held:
                leaving.append(resident)
                available += resident.bytes
        if needed > available:
            raise IndexTooLarge(version=info.version, needed=needed, available=max(0, available))
        for resident in leaving:
            logger.info("closing index %s to make room for %s", resident.index.version, info.version)
            self._live.retire_residents(resident.index.version)

    def _open_and_warm(self, version: str, identity: Identity) -> IndexSnapshot:
        """Map the files that were verified and read them. Policy "resource" drains what is open in between."""
        with self._stage("open"):
            snapshot = self._open(version)
            if snapshot.identity != identity:
                snapshot.close()
                raise IndexCorrupt("file", version=version, file=MANIFEST, reason="it was published again meanwhile")
        try:
            if self.errand == "resource":
                with self._stage("drain"):
                    self._drain(version)
            with self._stage("warm"):
                snapshot.warm(self._report)
        except BaseException:
            snapshot.close()
            if self.errand == "resource" and self.previous is not None:
                self._restore(self.previous)
            raise
        return snapshot

    def _open(self, version: str) -> IndexSnapshot:
        fit = self._fit
        return self._store.open(version, encoder_fingerprint=fit.encoder_fingerprint, dimension=fit.dimension)

    def _drain(self, version: str) -> None:
        """Give the memory of what is open back before the new index's pages are read.

        Questions are refused meanwhile. Raises DrainTimedOut where questions hold a lease too long, and ShuttingDown
        within a moment.
        """
        self._live.retire_all(f"The index is being replaced by {version!r} under policy 'resource'.")
        until = time.monotonic() + self._fit.drain_s
        while not self._live.drained(within_s=max(0.0, min(DRAIN_CHECK_S, until - time.monotonic()))):
            self._check_ending()
            if time.monotonic() >= until:
                raise DrainTimedOut(seconds=self._fit.drain_s, version=version)

    def _restore(self, previous: str) -> None:
        """Serve again what the drain retired, opened again where it is closed and the service does not end."""
        if self._live.restore() or self._ending.is_set():
            return
        try:
            self._live.restore(self._open(previous))
        except Exception:
            # the report says why the swap failed; this says why nothing is served since
            logger.exception("index %s could not be opened again: nothing is live", previous)

    def _claim_current(self) -> CurrentMark | None:
        """The mark of the CURRENT that this swap will replace.

        If the store does not answer, a mark that never matches.
        """
        try:
            return self._store.claim_current()
        except OpenbookError as error:
            logger.warning("the swap begins without a look at CURRENT: %s", error)
            return UNKNOWN_CURRENT

    def _write_current(self, version: str, since: CurrentMark | None) -> bool:
        with self._stage("current"):
            try:
                self.written = self._store.set_current(version, since=since)
            except CurrentConflict as error:
                logger.warning("%s is live here alone: %s", version, error)
                self.overruled = True
                return False
            except Exception:
                logger.exception(
                    "%s is live, but CURRENT could not be written: a restart will not come back on it", version
                )
                return False
        return True

    # --- how far it is -------------------------------------------------------------------------------------

    def progress(self) -> SwapProgress:
        """How far it is, or how it ended."""
        with self._lock:
            stages = self._stages()
            return replace(self._progress, version=self.version, seconds=stages | {"total": sum(stages.values())})

    def seconds(self) -> dict[str, float]:
        """Of each stage in the order in which they began, and "total"."""
        return self.progress().seconds

    def end(self, error: BaseException | None) -> None:
        """Say how it ended: well, or with an error."""
        with self._lock:
            if error is None:
                self._progress = replace(self._progress, state="done", stage=None, fraction=None)
            else:
                code, detail = code_of(error), str(error)
                self._progress = replace(self._progress, state="failed", code=code, detail=detail, fraction=None)

    @contextmanager
    def _stage(self, name: Stage) -> Iterator[None]:
        """The attempt is in this stage for the length of a `with` block."""
        with self._lock:
            self._entered = time.perf_counter()
            self._progress = replace(self._progress, stage=name, fraction=None)
        try:
            yield
        finally:
            with self._lock:
                self._progress = replace(self._progress, seconds=self._stages())
                self._entered = None

    def _report(self, fraction: float) -> None:
        """How much of the present stage is done, between 0 and 1. Raises ShuttingDown once the service ends."""
        self._check_ending()
        with self._lock:
            self._progress = replace(self._progress, fraction=fraction)

    def _check_ending(self) -> None:
        """Called while there is a way back. Raises ShuttingDown once the service ends."""
        if self._ending.is_set():
            raise ShuttingDown(version=self.version)

    def _stages(self) -> dict[str, float]:
        stages = self._progress.seconds
        if self._progress.stage is None or self._entered is None:
            return stages
        return stages | {self._progress.stage: time.perf_counter() - self._entered}


def _may_leave(resident: Resident) -> bool:
    return not resident.live and not resident.retiring
