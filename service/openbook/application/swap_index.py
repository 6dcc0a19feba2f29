"""Swaps, one at a time: who may begin one, what becomes of it, and which version a rollback leads to."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from openbook.application.guarding import GuardCheck, Guarding
from openbook.application.live_index import LiveIndex
from openbook.application.swap_attempt import Fit, SwapAttempt
from openbook.application.swap_progress import Errand, LoadReport, SwapPolicy, SwapProgress, SwapReport, utc_now
from openbook.application.telemetry import Telemetry
from openbook.errors import (
    CurrentConflict,
    GuardFailed,
    GuardUnavailable,
    NothingToRollBackTo,
    OpenbookError,
    ShuttingDown,
    SwapInProgress,
    code_of,
)
from openbook.storage.current import CurrentMark
from openbook.storage.history import SwapHistory, SwapRecord
from openbook.storage.index_store import IndexStore
from openbook.storage.snapshot import IndexSnapshot
from openbook.storage.verification import Verification

__all__ = ["Fit", "LoadReport", "SwapIndex", "SwapPolicy", "SwapProgress", "SwapReport"]

T = TypeVar("T")

# What the detail of a swap in the history begins with where the guard was not asked, or not heeded.
FORCED = "forced"
# Actors that are no administrators.
FOLLOWING = ("current", "start")
# How far back the newest swap to a version is looked for.
MOST_SWAPS = 100

logger = logging.getLogger(__name__)


class SwapIndex:
    """Swaps the live index, one swap at a time, in a thread of its own.

    Every swap, and every refusal of one, goes to `history` under the name of this `replica`.
    """

    def __init__(
        self,
        store: IndexStore,
        live: LiveIndex,
        telemetry: Telemetry,
        fit: Fit,
        *,
        history: SwapHistory | None = None,
        replica: str = "",
        guarding: Guarding | None = None,
    ) -> None:
        self._store = store
        self._live = live
        self._telemetry = telemetry
        self._fit = fit
        self._history = history
        self._replica = replica
        self._guarding = guarding
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="swap")
        self._changed = threading.Condition()
        self._under_way: SwapAttempt | None = None
        self._closing = False
        self._ending = threading.Event()
        # the one that `progress` tells of
        self._last: SwapAttempt | None = None
        self._before: str | None = None
        self._written: CurrentMark | None = None
        self._overruled = False
        self._checked: GuardCheck | None = None

    def begin(
        self,
        version: str | None,
        *,
        policy: SwapPolicy = "availability",
        verify: Verification = "manifest",
        actor: str = "",
        guard: bool | None = None,
        force: bool = False,
    ) -> Future[SwapReport]:
        """Start a swap; None is the version before. It goes on whether or not the future is awaited.

        With `guard` the version must answer what is guarded; None: where there is a guard. `force` asks, and swaps all
        the same.

        Raises SwapInProgress, which goes to the history, and ShuttingDown at once. The future raises UnknownIndex,
        IndexCorrupt, IndexIncompatible, IndexTooLarge, DrainTimedOut, NothingToRollBackTo, GuardFailed,
        GuardUnavailable or ShuttingDown, and then the index that was live is live.
        """
        try:
            attempt = self._claim(version, policy, actor)
        except SwapInProgress as error:
            refused, under_way = self._new_attempt(version, policy, actor), self._under_way
            if refused.previous is None and under_way is not None:
                # it drains: what was live is what it replaces
                refused.previous = under_way.previous
            self._write_history(refused, error.code, str(error))
            raise
        return self._submit(attempt, lambda: self._swap(attempt, verify, guard=guard, forced=lambda _: force))

    def rollback(
        self, *, policy: SwapPolicy = "availability", verify: Verification = "manifest", actor: str = ""
    ) -> Future[SwapReport]:
        """Swap to the version that was live before the last swap that succeeded; twice leads back again.

        After a restart the history names that version. NothingToRollBackTo where none is known. No guard is asked:
        what is live may be what is wrong.
        """
        return self.begin(None, policy=policy, verify=verify, actor=actor, guard=False)

    def follow(self, version: str, mark: CurrentMark, *, again: bool = False) -> Future[SwapReport]:
        """Swap to `version`, which CURRENT names under `mark`, without writing CURRENT.

        Raises CurrentConflict where CURRENT has another mark by now, SwapInProgress, and OSError. With `again`, a
        failure is neither counted nor recorded. The guard is asked; what an administrator has forced is not held up.
        """
        attempt = self._claim(version, "availability", "current")
        try:
            # No swap of this service can write CURRENT now. One may have, after the caller read it.
            if self._store.current_mark() != mark:
                raise CurrentConflict("changed", version=version)
        except BaseException:
            self._release()
            raise
        swap = partial(self._swap, attempt, "manifest", follows=True, forced=self.was_forced)
        return self._submit(attempt, swap, recorded=not again)

    def start(self, version: str, *, again: bool = False) -> Future[SwapReport]:
        """Make the first version live, without writing CURRENT; with `again`, a failure is not recorded."""
        attempt = self._claim(version, "availability", "start")
        swap = partial(self._swap, attempt, "manifest", follows=True)
        return self._submit(attempt, swap, recorded=not again)

    def check(self, version: str, *, actor: str = "") -> Future[None]:
        """Open a version for its guarded questions alone. Raises GuardFailed, which goes to the history."""
        attempt = self._claim(version, "check", actor)
        return self._submit(attempt, lambda: attempt.check(version, self._guard_of(attempt, True, lambda _: False)))

    def load(self, version: str, *, verify: Verification = "manifest", actor: str = "") -> Future[LoadReport]:
        """Open a version beside the live one, as a resident: questions may name it, and a swap to it is a flip.

        Raises what `begin` raises, and IndexTooLarge where the live one alone may be open. Residents stay as they
        are.
        """
        attempt = self._claim(version, "load", actor)
        return self._submit(attempt, lambda: attempt.load(version, verify), recorded=False)

    def load_now(self, version: str) -> LoadReport:
        """As `load`, in the calling thread and unseen by `progress`: for a start, before a swap can be asked for."""
        return self._new_attempt(version, "load", "").load(version, "manifest")

    def progress(self) -> SwapProgress:
        """What is under way, or how the last ended."""
        return self._last.progress() if self._last is not None else SwapProgress()

    def last_check(self) -> GuardCheck | None:
        """How the last check of this service against its guard ended; None before the first."""
        return self._checked

    def last_written(self) -> CurrentMark | None:
        """The CURRENT that this service wrote last; None where it has written none."""
        return self._written

    def overruled(self) -> bool:
        """Whether, since the last call, a swap has ended on a version that CURRENT does not name: another wrote it."""
        overruled, self._overruled = self._overruled, False
        return overruled

    def serves(self, version: str) -> bool:
        """Whether `version` is live, and was not published again since. A live one that broke on disk is served."""
        live = next((resident for resident in self._live.residents() if resident.live), None)
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

    def _claim(self, version: str | None, errand: Errand, actor: str) -> SwapAttempt:
        """From here to `_release` no other swap begins, and no other thread changes what is live."""
        with self._changed:
            if self._closing:
                raise ShuttingDown(version=version)
            if self._under_way is not None:
                raise SwapInProgress(version=self._under_way.version or "the version before")
            self._under_way = self._new_attempt(version, errand, actor)
            return self._under_way

    def _release(self) -> None:
        with self._changed:
            self._under_way = None
            self._changed.notify_all()

    def _new_attempt(self, version: str | None, errand: Errand, actor: str) -> SwapAttempt:
        return SwapAttempt(
            self._store, self._live, self._fit, version=version, errand=errand, actor=actor, ending=self._ending
        )

    def _submit(self, attempt: SwapAttempt, work: Callable[[], T], *, recorded: bool = True) -> Future[T]:
        def run() -> T:
            if attempt is not self._under_way:
                # the executor keeps a call for which it could start no thread
                raise RuntimeError("this swap has failed already")
            failure: BaseException | None = None
            try:
                return work()
            except BaseException as error:
                failure = error
                if recorded and isinstance(error, Exception):
                    self._record_failure(attempt, error)
                raise
            finally:
                attempt.end(failure)
                self._release()

        self._last = attempt
        try:
            return self._executor.submit(run)
        except BaseException as error:
            attempt.end(error)
            self._release()
            raise

    def _swap(
        self,
        attempt: SwapAttempt,
        verify: Verification,
        *,
        follows: bool = False,
        guard: bool | None = None,
        forced: Callable[[str], bool] = lambda version: False,
    ) -> SwapReport:
        try:
            version = attempt.version = attempt.version or self._version_before()
            report = attempt.swap(version, verify, follows=follows, guard=self._guard_of(attempt, guard, forced))
        finally:
            self._written = attempt.written or self._written
            self._overruled = self._overruled or attempt.overruled
        if report.previous != report.version:
            self._before = report.previous
        self._record(attempt, "ok" if report.durable else "not_durable", attempt.forced)
        return report

    def _guard_of(
        self, attempt: SwapAttempt, wanted: bool | None, forced: Callable[[str], bool]
    ) -> Callable[[IndexSnapshot], None]:
        """What is called with the version once it is open, and raises GuardFailed. Reads the guard now.

        Nothing is asked where nothing is live: a service without an answer is no better. Raises GuardUnavailable.
        """
        guarding = self._guarding
        if wanted is False or attempt.previous is None or (wanted is None and guarding is None):
            if guarding is not None and wanted is False:
                attempt.forced = f"{FORCED}: no guarded question was asked"
            return lambda snapshot: None
        if guarding is None:
            raise GuardUnavailable("none")
        if attempt.errand == "resource":
            raise GuardUnavailable("resource", version=attempt.version)
        questions = guarding.read()

        def ask(snapshot: IndexSnapshot) -> None:
            version = snapshot.info.version
            try:
                attempt.ask_guard(guarding, questions, snapshot)
                self._checked = GuardCheck(version, utc_now(), len(questions))
            except GuardFailed as error:
                broken, left = len(error.broken), error.data.get("n_left", 0)
                self._checked = GuardCheck(version, utc_now(), len(questions), broken, left)
                if not forced(version):
                    raise
                attempt.forced = f"{FORCED}: {error.told()}"

        return ask

    def was_forced(self, version: str) -> bool:
        """Whether the newest swap to it, by any replica, was an administrator's who would not be held up."""
        swaps = self._history.last(MOST_SWAPS) if self._history is not None else ()
        asked = (one for one in swaps if one.version == version and one.succeeded() and one.actor not in FOLLOWING)
        newest = next(asked, None)
        return newest is not None and newest.detail.startswith(FORCED)

    # --- what is recorded ----------------------------------------------------------------------------------

    def _record_failure(self, attempt: SwapAttempt, error: Exception) -> None:
        unforeseen = error if not isinstance(error, OpenbookError) else None
        detail = error.told() if isinstance(error, GuardFailed) else str(error)
        logger.warning("swap to %s failed: %s", attempt.version, detail, exc_info=unforeseen)
        self._record(attempt, code_of(error), detail)

    def _record(self, attempt: SwapAttempt, outcome: str, detail: str = "") -> None:
        self._telemetry.count_swap(outcome, attempt.seconds(), version=attempt.version)
        self._write_history(attempt, outcome, detail)

    def _write_history(self, attempt: SwapAttempt, outcome: str, detail: str) -> None:
        """Write how a swap ended. A history that cannot be written is logged and changes nothing."""
        if self._history is None:
            return
        record = SwapRecord(
            time=utc_now(),
            actor=attempt.actor,
            replica=self._replica,
            previous=attempt.previous,
            version=attempt.version or "",
            policy=attempt.errand,
            outcome=outcome,
            generation=attempt.generation,
            seconds=attempt.seconds()["total"],
            detail=detail,
        )
        try:
            self._history.append(record)
        except Exception:
            logger.exception("the history of swaps could not be written")

    def _version_before(self) -> str:
        """The version that was live before the last swap to the live one, by this service or else by any replica."""
        now = self._live.now()
        live = now.version if now is not None else None
        if self._before is not None and self._before != live:
            return self._before
        before = self._history.version_before(live) if self._history is not None else None
        if before is None:
            raise NothingToRollBackTo(live=live)
        return before
