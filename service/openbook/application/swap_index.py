"""A swap's path: verify, open beside, warm, flip, write CURRENT, retire.

Whatever fails before the flip changes nothing: the index that was live goes on serving under its generation. After
the flip there is no way back, since questions may have been answered from the new index. So a CURRENT that cannot be
written (a read-only folder, a full disk) does not undo the swap; the report says `durable: false`, the log says why,
and a restart comes back on the version that CURRENT names.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import TypeVar

from openbook.application.live_index import LiveIndex
from openbook.application.swap_log import SwapLog
from openbook.application.swap_progress import Errand, LoadReport, SwapPolicy, SwapProgress, SwapReport, SwapWatch
from openbook.application.swap_steps import SwapSteps
from openbook.application.telemetry import Telemetry
from openbook.entities import RetrieverKind
from openbook.errors import NothingToRollBackTo, OpenbookError, ShuttingDown, SwapInProgress, code_of
from openbook.storage.current import CurrentMark
from openbook.storage.history import SwapHistory
from openbook.storage.index_store import IndexStore
from openbook.storage.verification import Verification

__all__ = ["LoadReport", "SwapIndex", "SwapPolicy", "SwapProgress", "SwapReport"]

T = TypeVar("T")

logger = logging.getLogger(__name__)


class SwapIndex:
    """Swaps the live index, one swap at a time, in a thread of its own.

    `free_memory` gives the bytes that may be taken, pages of files that can be dropped among them.
    `encoder_fingerprint` and `dimension` are those that the checkpoint's question encoder asks for. Every swap, and
    every refusal of one, goes to `history` under the name of this `replica`.
    """

    def __init__(
        self,
        store: IndexStore,
        live: LiveIndex,
        telemetry: Telemetry,
        *,
        encoder_fingerprint: str | None,
        dimension: int,
        retriever: RetrieverKind = "dense",
        free_memory: Callable[[], int],
        history: SwapHistory | None = None,
        replica: str = "",
        drain_s: float = 60.0,
    ) -> None:
        self._store = store
        self._live = live
        self._telemetry = telemetry
        self._steps = SwapSteps(
            store,
            live,
            encoder_fingerprint=encoder_fingerprint,
            dimension=dimension,
            retriever=retriever,
            free_memory=free_memory,
            drain_s=drain_s,
        )
        self._log = SwapLog(history, replica)
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="swap")
        self._recorder = ThreadPoolExecutor(1, thread_name_prefix="swap-history")
        self._lock = threading.Condition()
        self._closing = False
        self._under_way: str | None = None
        self._watch: SwapWatch | None = None
        self._before: str | None = None
        self._mark: CurrentMark | None = None

    def begin(
        self,
        version: str,
        *,
        policy: SwapPolicy = "availability",
        verify: Verification = "manifest",
        actor: str = "",
    ) -> Future[SwapReport]:
        """Start a swap; it goes on whether or not anyone waits for it. Raises SwapInProgress, ShuttingDown at once.

        The future raises UnknownIndex, a child of IndexCorrupt, IndexIncompatible, IndexTooLarge, DrainTimedOut or
        ShuttingDown, and then the index that was live is live.
        """
        watch = self._start(version, policy, actor)
        return self._submit(watch, lambda: self._swap(watch, policy, verify))

    def rollback(
        self, *, policy: SwapPolicy = "availability", verify: Verification = "manifest", actor: str = ""
    ) -> Future[SwapReport]:
        """Swap to the version that was live before the last swap that succeeded; twice leads back again.

        After a restart the history tells which one that was. The future raises NothingToRollBackTo where nothing
        does, and what a swap raises.
        """
        watch = self._start(None, policy, actor)
        return self._submit(watch, lambda: self._swap(watch, policy, verify, rollback=True))

    def follow(self, version: str, *, policy: SwapPolicy = "availability", again: bool = False) -> Future[SwapReport]:
        """Swap to what CURRENT names without writing it. With `again`, a failure is neither counted nor recorded."""
        watch = self._start(version, policy, "current", recorded=False)
        return self._submit(watch, lambda: self._swap(watch, policy, "manifest", writes_current=False, silent=again))

    def load(self, version: str, *, verify: Verification = "manifest", actor: str = "") -> Future[LoadReport]:
        """Open a version beside the live one, as a resident: questions may name it, and a swap to it is a flip.

        Raises what `begin` raises, and ResidentsLimited where the live one alone may be open. What is resident
        stays as it is.
        """
        watch = self._start(version, "load", actor, recorded=False)
        return self._submit(watch, lambda: self._load(watch, verify))

    def open_beside(self, version: str) -> LoadReport:
        """As `load`, here and now and unseen by `progress`: for a start, before anyone can ask for a swap."""
        return self._load(SwapWatch(version, self._live_version(), "load", ""), "manifest")

    def progress(self) -> SwapProgress:
        """What is under way, or how the last ended."""
        with self._lock:
            watch = self._watch
        return watch.progress() if watch is not None else SwapProgress()

    def last_written(self) -> CurrentMark | None:
        """The CURRENT that this service wrote last; None where it has written none."""
        return self._mark

    def serves(self, version: str) -> bool:
        """Whether the live index is `version` as it is on disk now, and not one that was published again since."""
        return self._steps.serves(version)

    def close(self, *, within_s: float | None = None) -> None:
        """Begin no other swap and wait for the one under way, which ends at its next report after `within_s` seconds.

        A swap that was ended leaves live what was live and raises ShuttingDown; without a limit none is ended.
        """
        with self._lock:
            self._closing = True
            if not self._lock.wait_for(lambda: self._under_way is None, within_s) and self._watch is not None:
                self._watch.stop()
                self._lock.wait_for(lambda: self._under_way is None)
        self._executor.shutdown(wait=True)
        self._recorder.shutdown(wait=True)

    # --- one at a time -------------------------------------------------------------------------------------

    def _start(self, version: str | None, policy: Errand, actor: str, *, recorded: bool = True) -> SwapWatch:
        with self._lock:
            if self._closing:
                raise ShuttingDown(version=version)
            under_way = self._under_way
            if under_way is None:
                # under the lock: what is live changes no more before this one has ended
                watch = self._watch = SwapWatch(version, self._live_version(), policy, actor)
                self._under_way = version or "the version before"
                return watch
        error = SwapInProgress(version=under_way)
        if recorded:
            refused = SwapWatch(version, self._live_version(), policy, actor)
            # by a thread of its own: the one that swaps is busy, and this one may be the event loop's
            self._recorder.submit(self._log.record, refused, error.code, None, str(error))
        raise error

    def _live_version(self) -> str | None:
        now = self._live.now()
        return now.version if now is not None else None

    def _submit(self, watch: SwapWatch, work: Callable[[], T]) -> Future[T]:
        try:
            return self._executor.submit(self._run, watch, work)
        except BaseException as error:
            self._end(watch, error)
            raise

    def _run(self, watch: SwapWatch, work: Callable[[], T]) -> T:
        try:
            result = work()
        except BaseException as error:
            self._end(watch, error)
            raise
        self._end(watch)
        return result

    def _end(self, watch: SwapWatch, error: BaseException | None = None) -> None:
        """Whoever sees that it has ended may begin the next."""
        with self._lock:
            self._under_way = None
            self._lock.notify_all()
            if error is None:
                watch.done()
            else:
                watch.failed(code_of(error), str(error))

    # --- the path ------------------------------------------------------------------------------------------

    def _swap(
        self,
        watch: SwapWatch,
        policy: SwapPolicy,
        verify: Verification,
        *,
        rollback: bool = False,
        writes_current: bool = True,
        silent: bool = False,
    ) -> SwapReport:
        try:
            version = self._version_before() if rollback else watch.version or ""
            watch.version = version
            generation = self._flip(version, policy, verify, watch)
            durable = self._write_current(version, watch) if writes_current else True
        except Exception as error:
            if not silent:
                unforeseen = not isinstance(error, OpenbookError)
                logger.warning("swap to %s failed: %s", watch.version, error, exc_info=unforeseen)
                self._telemetry.count_swap(code_of(error), watch.seconds(), version=watch.version)
                self._log.record(watch, code_of(error), None, str(error))
            raise
        if watch.previous != version:
            self._before = watch.previous
        outcome = "ok" if durable else "not_durable"
        logger.info("swapped from %s to %s, generation %d", watch.previous, version, generation)
        self._telemetry.count_swap(outcome, watch.seconds(), version=version)
        self._log.record(watch, outcome, generation, "")
        return SwapReport(version, watch.previous, generation, durable, watch.seconds())

    def _flip(self, version: str, policy: SwapPolicy, verify: Verification, watch: SwapWatch) -> int:
        with ExitStack() as held:
            with watch.stage("verify"):
                self._steps.check_retriever(version)
                identity = self._steps.verify(version, verify, watch.report)
                snapshot = self._steps.resident(version, identity, held)
                if snapshot is None and policy == "availability":
                    self._steps.make_fit(version, identity, evicting=True)
            if snapshot is not None:
                with watch.stage("warm"):
                    snapshot.warm(watch.report)
            else:
                with watch.stage("open"):
                    snapshot = self._steps.open(version, identity)
                try:
                    if policy == "resource":
                        with watch.stage("drain"):
                            self._steps.drain(version, watch.check)
                    with watch.stage("warm"):
                        snapshot.warm(watch.report)
                except BaseException:
                    snapshot.close()
                    if policy == "resource" and watch.previous is not None:
                        # at the end nobody would ask what had to be opened again
                        self._steps.come_back(watch.previous, reopen=not watch.stopped())
                    raise
            with watch.stage("flip"):
                generation = self._live.flip(snapshot)
        if policy == "resource":
            self._live.evict_all_but_live()
        return generation

    def _load(self, watch: SwapWatch, verify: Verification) -> LoadReport:
        version = watch.version or ""
        with ExitStack() as held:
            with watch.stage("verify"):
                if not self._live.resident(version):
                    self._store.info(version)
                    self._live.check_room(version)
                identity = self._steps.verify(version, verify, watch.report)
                is_open = watch.previous == version or self._steps.resident(version, identity, held) is not None
                if not is_open:
                    self._steps.make_fit(version, identity, evicting=False)
            if not is_open:
                with watch.stage("open"):
                    snapshot = self._steps.open(version, identity)
                try:
                    with watch.stage("warm"):
                        snapshot.warm(watch.report)
                    self._live.keep(snapshot)
                except BaseException:
                    snapshot.close()
                    raise
        return LoadReport(version, watch.seconds())

    def _version_before(self) -> str:
        live = self._live_version()
        before = self._before if self._before != live else None
        before = before or self._log.version_before(live)
        if before is None:
            raise NothingToRollBackTo(live=live)
        return before

    def _write_current(self, version: str, watch: SwapWatch) -> bool:
        with watch.stage("current"):
            try:
                self._mark = self._store.set_current(version)
            except (OSError, OpenbookError):
                logger.exception(
                    "%s is live, but CURRENT could not be written: a restart will not come back on it", version
                )
                return False
        return True
