"""A swap's path: pull what is only in a store, verify, open beside, warm, flip, write CURRENT, retire.

A failure before the flip changes nothing: the index that was live keeps serving under its generation. After the flip
there is no way back, since questions may have been answered from the new index. So a CURRENT that cannot be written (a
read-only folder, a full disk) does not undo the swap: the report says `durable: false`, the log says why, and a restart
comes back on the version that CURRENT names.
"""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import TypeVar

from openbook.application.live_index import LiveIndex
from openbook.application.swap_progress import (
    Errand,
    LoadReport,
    SwapPolicy,
    SwapProgress,
    SwapReport,
    SwapWatch,
    utc_now,
)
from openbook.application.telemetry import Telemetry
from openbook.entities import IndexInfo, RetrieverChoice
from openbook.errors import (
    CurrentChanged,
    CurrentConflict,
    DrainTimedOut,
    IndexTooLarge,
    IndexUnreadable,
    NothingToRollBackTo,
    OpenbookError,
    RetrieverUnavailable,
    ShuttingDown,
    SwapInProgress,
    code_of,
)
from openbook.storage.current import UNKNOWN_CURRENT, CurrentMark
from openbook.storage.history import SwapHistory, SwapRecord
from openbook.storage.index_store import IndexStore
from openbook.storage.manifest import MANIFEST, resident_bytes
from openbook.storage.snapshot import Identity, IndexSnapshot
from openbook.storage.verification import Verification, check_compatible

__all__ = ["LoadReport", "SwapIndex", "SwapPolicy", "SwapProgress", "SwapReport"]

# Seconds between two looks of a drain at whether it is to end.
DRAIN_CHECK_S = 0.05

T = TypeVar("T")

logger = logging.getLogger(__name__)


class SwapIndex:
    """Swaps the live index, one swap at a time, in a thread of its own.

    `free_memory` gives the bytes that may be taken, including pages of files that the system can drop. `growth` gives
    those that the engine may still take for its own where so many versions are open. The checkpoint's question encoder
    expects `encoder_fingerprint` and `dimension`. Every swap, and every refusal of one, goes to `history` under the
    name of this `replica`.
    """

    def __init__(
        self,
        store: IndexStore,
        live: LiveIndex,
        telemetry: Telemetry,
        *,
        encoder_fingerprint: str | None,
        dimension: int,
        retriever: RetrieverChoice = "dense",
        free_memory: Callable[[], int],
        growth: Callable[[int], int] = lambda versions: 0,
        history: SwapHistory | None = None,
        replica: str = "",
        drain_s: float = 60.0,
    ) -> None:
        self._store = store
        self._live = live
        self._telemetry = telemetry
        self._encoder_fingerprint = encoder_fingerprint
        self._dimension = dimension
        self._retriever = retriever
        self._free_memory = free_memory
        self._growth = growth
        self._history = history
        self._replica = replica
        self._drain_s = drain_s
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="swap")
        self._changed = threading.Condition()
        self._under_way: SwapWatch | None = None
        self._closing = False
        self._ending = threading.Event()
        # of the swap that `progress` tells of
        self._watch: SwapWatch | None = None
        self._before: str | None = None
        self._mark: CurrentMark | None = None
        self._overruled = False

    def begin(
        self,
        version: str | None,
        *,
        policy: SwapPolicy = "availability",
        verify: Verification = "manifest",
        actor: str = "",
    ) -> Future[SwapReport]:
        """Start a swap; None is the version before. It goes on whether or not the future is awaited.

        Raises SwapInProgress, which goes to the history, and ShuttingDown at once. The future raises UnknownIndex, a
        child of IndexCorrupt, IndexIncompatible, IndexTooLarge, DrainTimedOut, NothingToRollBackTo or ShuttingDown, and
        then the index that was live is live.
        """
        try:
            watch = self._claim(version, policy, actor)
        except SwapInProgress as error:
            self._write_history(self._new_watch(version, policy, actor), error.code, None, str(error))
            raise
        return self._submit(watch, lambda: self._swap(watch, verify))

    def rollback(
        self, *, policy: SwapPolicy = "availability", verify: Verification = "manifest", actor: str = ""
    ) -> Future[SwapReport]:
        """Swap to the version that was live before the last swap that succeeded; twice leads back again.

        After a restart the history names that version. NothingToRollBackTo where none is known.
        """
        return self.begin(None, policy=policy, verify=verify, actor=actor)

    def follow(self, version: str, mark: CurrentMark, *, again: bool = False) -> Future[SwapReport]:
        """Swap to `version`, which CURRENT names under `mark`, without writing CURRENT.

        Raises CurrentChanged where CURRENT has another mark by now, SwapInProgress, and OSError. With `again`, a
        failure is neither counted nor recorded.
        """
        watch = self._claim(version, "availability", "current")
        try:
            # No swap of this service can write CURRENT now. One may have, after the caller read it.
            if self._store.current_mark() != mark:
                raise CurrentChanged(version=version)
        except BaseException:
            self._release()
            raise
        return self._submit(watch, lambda: self._swap(watch, "manifest", follows=True), recorded=not again)

    def start(self, version: str, *, again: bool = False) -> Future[SwapReport]:
        """Make the first version live, without writing CURRENT; with `again`, a failure is not recorded."""
        watch = self._claim(version, "availability", "start")
        return self._submit(watch, lambda: self._swap(watch, "manifest", follows=True), recorded=not again)

    def load(self, version: str, *, verify: Verification = "manifest", actor: str = "") -> Future[LoadReport]:
        """Open a version beside the live one, as a resident: questions may name it, and a swap to it is a flip.

        Raises what `begin` raises, and ResidentsLimited where the live one alone may be open. Residents stay as they
        are.
        """
        watch = self._claim(version, "load", actor)
        return self._submit(watch, lambda: self._load(watch, version, verify), recorded=False)

    def load_now(self, version: str) -> LoadReport:
        """As `load`, in the calling thread and unseen by `progress`: for a start, before a swap can be asked for."""
        return self._load(self._new_watch(version, "load", ""), version, "manifest")

    def progress(self) -> SwapProgress:
        """What is under way, or how the last ended."""
        watch = self._watch
        return watch.progress() if watch is not None else SwapProgress()

    def last_written(self) -> CurrentMark | None:
        """The CURRENT that this service wrote last; None where it has written none."""
        return self._mark

    def overruled(self) -> bool:
        """Whether, since the last call, a swap has ended on a version that CURRENT does not name: another wrote it."""
        overruled, self._overruled = self._overruled, False
        return overruled

    def serves(self, version: str) -> bool:
        """Whether `version` is live, and was not published again since. A live one that broke on disk is served."""
        live = next((one for one in self._live.residents() if one.live), None)
        if live is None or live.index.version != version:
            return False
        try:
            return self._store.is_here(version) and live.identity == self._store.check(version)
        except OpenbookError:
            return True

    def close(self, *, within_s: float | None = None) -> None:
        """Begin no other swap and wait for the one under way, which ends at its next report after `within_s` seconds.

        A swap that is ended leaves live what was live and raises ShuttingDown; without a limit none is ended.
        """
        with self._changed:
            self._closing = True
            if not self._changed.wait_for(lambda: self._under_way is None, within_s):
                self._ending.set()
                self._changed.wait_for(lambda: self._under_way is None)
        self._executor.shutdown(wait=True)

    # --- one at a time -------------------------------------------------------------------------------------

    def _claim(self, version: str | None, policy: Errand, actor: str) -> SwapWatch:
        """From here to `_release` no other swap begins, and no other thread changes what is live."""
        with self._changed:
            if self._closing:
                raise ShuttingDown(version=version)
            if self._under_way is not None:
                raise SwapInProgress(version=self._under_way.version or "the version before")
            self._under_way = self._new_watch(version, policy, actor)
            return self._under_way

    def _release(self) -> None:
        with self._changed:
            self._under_way = None
            self._changed.notify_all()

    def _new_watch(self, version: str | None, policy: Errand, actor: str) -> SwapWatch:
        return SwapWatch(version, self._live_version(), policy, actor, self._ending)

    def _live_version(self) -> str | None:
        now = self._live.now()
        return now.version if now is not None else None

    def _submit(self, watch: SwapWatch, work: Callable[[], T], *, recorded: bool = True) -> Future[T]:
        def run() -> T:
            if watch is not self._under_way:
                # the executor keeps a call for which it could start no thread
                raise RuntimeError("this swap has failed already")
            failure: BaseException | None = None
            try:
                return work()
            except BaseException as error:
                failure = error
                if recorded and isinstance(error, Exception):
                    self._record_failure(watch, error)
                raise
            finally:
                watch.end(failure)
                self._release()

        self._watch = watch
        try:
            return self._executor.submit(run)
        except BaseException as error:
            watch.end(error)
            self._release()
            raise

    # --- the path ------------------------------------------------------------------------------------------

    def _swap(self, watch: SwapWatch, verify: Verification, *, follows: bool = False) -> SwapReport:
        version = watch.version = watch.version or self._version_before()
        since = None if follows else self._claim_current()
        self._pull(version, watch)
        with ExitStack() as held:
            with watch.stage("verify"):
                info, identity = self._verify(version, verify, watch)
                is_open = self._is_resident(version, identity)
                if is_open:
                    # the service may end, and close the residents, while this one is read
                    snapshot = held.enter_context(self._live.lease(version)).snapshot
                elif watch.policy == "availability":
                    self._make_room(info, identity, watch)
            if is_open:
                with watch.stage("warm"):
                    snapshot.warm(watch.report)
            else:
                snapshot = self._open_and_warm(version, identity, watch)
            with watch.stage("flip"):
                generation = self._live.flip(snapshot)
        if watch.policy == "resource":
            self._live.retire_residents()
        durable = follows or self._write_current(version, since, watch)
        self._store.settle(version, watch.previous)
        if watch.previous != version:
            self._before = watch.previous
        logger.info("swapped from %s to %s, generation %d", watch.previous, version, generation)
        self._record(watch, "ok" if durable else "not_durable", generation)
        return SwapReport(version, watch.previous, generation, durable, watch.seconds())

    def _load(self, watch: SwapWatch, version: str, verify: Verification) -> LoadReport:
        self._pull(version, watch)
        with watch.stage("verify"):
            if not self._live.resident(version):
                self._store.info(version)
                self._live.check_room(version)
            info, identity = self._verify(version, verify, watch)
            is_open = version == watch.previous or self._is_resident(version, identity)
            if not is_open:
                self._make_room(info, identity, watch)
        if not is_open:
            self._live.add_resident(self._open_and_warm(version, identity, watch))
        return LoadReport(version, watch.seconds())

    def _pull(self, version: str, watch: SwapWatch) -> None:
        """Bring a version to this machine's disk that lies in a store alone, after what its manifest tells."""
        if not self._store.is_here(version):
            with watch.stage("pull"):
                self._check_info(version, watch)
                if watch.policy == "load":
                    self._live.check_room(version)
                self._store.fetch(version, watch.report)

    def _verify(self, version: str, verify: Verification, watch: SwapWatch) -> tuple[IndexInfo, Identity]:
        """All that can be known before a byte is mapped, and with "checksum" every byte."""
        info = self._check_info(version, watch)
        return info, self._store.check(version, verify=verify, report=watch.report)

    def _check_info(self, version: str, watch: SwapWatch) -> IndexInfo:
        """What the manifest says. Raises RetrieverUnavailable and IndexIncompatible where it does not fit."""
        info = self._store.info(version)
        if watch.policy != "load" and self._retriever in ("bm25", "hybrid") and info.bm25 is None:
            raise RetrieverUnavailable(version=version, retriever=self._retriever)
        check_compatible(info, self._encoder_fingerprint, self._dimension)
        return info

    def _is_resident(self, version: str, identity: Identity) -> bool:
        """Whether a resident has these very files mapped. The live one does not count: it is opened again."""
        return any(
            one.index.version == version and one.identity == identity and not one.live and not one.retiring
            for one in self._live.residents()
        )

    def _make_room(self, info: IndexInfo, identity: Identity, watch: SwapWatch) -> None:
        """Raise IndexTooLarge where a version does not fit beside the live index; nothing has changed then.

        For a swap, residents that are not live give way, the least recently leased first, as many as are needed.
        """
        residents = self._live.residents()
        needed = resident_bytes(info) + self._growth(len(residents) + 1)
        # Free memory includes the pages of mapped files, since the system can drop them. Open indexes need their pages.
        # Two openings of the same files share them.
        held = {one.identity: one for one in residents if one.identity != identity}
        available = self._free_memory() - sum(one.bytes for one in held.values())
        leaving = []
        for one in sorted(residents, key=lambda one: one.last_leased):
            if needed <= available:
                break
            if watch.policy != "load" and not one.live and not one.retiring and one.identity in held:
                leaving.append(one)
                available += one.bytes
                needed = resident_bytes(info) + self._growth(len(residents) + 1 - len(leaving))
        if needed > available:
            raise IndexTooLarge(version=info.version, needed=needed, available=max(0, available))
        for one in leaving:
            logger.info("closing index %s to make room for %s", one.index.version, info.version)
            self._live.retire_residents(one.index.version)

    def _open_and_warm(self, version: str, identity: Identity, watch: SwapWatch) -> IndexSnapshot:
        """Map the files that were verified and read them. Policy "resource" drains what is open in between."""
        with watch.stage("open"):
            snapshot = self._open(version)
            if snapshot.identity != identity:
                snapshot.close()
                raise IndexUnreadable(version=version, file=MANIFEST, reason="it was published again meanwhile")
        try:
            if watch.policy == "resource":
                with watch.stage("drain"):
                    self._drain(version, watch)
            with watch.stage("warm"):
                snapshot.warm(watch.report)
        except BaseException:
            snapshot.close()
            if watch.policy == "resource" and watch.previous is not None:
                self._restore(watch.previous, watch)
            raise
        return snapshot

    def _open(self, version: str) -> IndexSnapshot:
        return self._store.open(version, encoder_fingerprint=self._encoder_fingerprint, dimension=self._dimension)

    def _drain(self, version: str, watch: SwapWatch) -> None:
        """Give the memory of what is open back before the new index's pages are read.

        Questions are refused meanwhile. Raises DrainTimedOut where questions hold a lease too long, and ShuttingDown
        within a moment.
        """
        self._live.retire_all(f"The index is being replaced by {version!r} under policy 'resource'.")
        until = time.monotonic() + self._drain_s
        while not self._live.drained(within_s=max(0.0, min(DRAIN_CHECK_S, until - time.monotonic()))):
            watch.check()
            if time.monotonic() >= until:
                raise DrainTimedOut(seconds=self._drain_s, version=version)

    def _restore(self, previous: str, watch: SwapWatch) -> None:
        """Serve again what the drain retired, opened again where it is closed and the service does not end."""
        if self._live.restore() or watch.ending.is_set():
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

    def _write_current(self, version: str, since: CurrentMark | None, watch: SwapWatch) -> bool:
        with watch.stage("current"):
            try:
                self._mark = self._store.set_current(version, since=since)
            except CurrentConflict as error:
                logger.warning("%s is live here alone: %s", version, error)
                self._overruled = True
                return False
            except Exception:
                logger.exception(
                    "%s is live, but CURRENT could not be written: a restart will not come back on it", version
                )
                return False
        return True

    # --- what is recorded ----------------------------------------------------------------------------------

    def _record_failure(self, watch: SwapWatch, error: Exception) -> None:
        unforeseen = error if not isinstance(error, OpenbookError) else None
        logger.warning("swap to %s failed: %s", watch.version, error, exc_info=unforeseen)
        self._record(watch, code_of(error), None, str(error))

    def _record(self, watch: SwapWatch, outcome: str, generation: int | None, detail: str = "") -> None:
        self._telemetry.count_swap(outcome, watch.seconds(), version=watch.version)
        self._write_history(watch, outcome, generation, detail)

    def _write_history(self, watch: SwapWatch, outcome: str, generation: int | None, detail: str) -> None:
        """Write how a swap ended. A history that cannot be written is logged and changes nothing."""
        if self._history is None:
            return
        record = SwapRecord(
            time=utc_now(),
            actor=watch.actor,
            replica=self._replica,
            previous=watch.previous,
            version=watch.version or "",
            policy=watch.policy,
            outcome=outcome,
            generation=generation,
            seconds=watch.seconds()["total"],
            detail=detail,
        )
        try:
            self._history.append(record)
        except Exception:
            logger.exception("the history of swaps could not be written")

    def _version_before(self) -> str:
        """The version that was live before the last swap to the live one, by this service or else by any replica."""
        live = self._live_version()
        if self._before is not None and self._before != live:
            return self._before
        before = self._history.version_before(live) if self._history is not None else None
        if before is None:
            raise NothingToRollBackTo(live=live)
        return before
