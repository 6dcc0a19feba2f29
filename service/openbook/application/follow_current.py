"""Following CURRENT: the version that another replica on the same folder made current becomes live here as well."""

import logging
import threading
import time
from dataclasses import dataclass

from openbook.application.swap_index import SwapIndex
from openbook.application.swap_progress import utc_now
from openbook.application.telemetry import Telemetry
from openbook.errors import CurrentConflict, GuardFailed, ShuttingDown, SwapInProgress, UnknownIndex, code_of
from openbook.storage.current import NO_CURRENT, UNKNOWN_CURRENT, CurrentMark
from openbook.storage.index_store import IndexStore

# Between two looks at a CURRENT that is out of reach.
LONGEST_AWAY_S = 10.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FollowProblem:
    """CURRENT names `wanted`, which cannot be served; what was live goes on. `since` is ISO 8601 in UTC."""

    wanted: str
    code: str
    detail: str
    since: str


class FollowCurrent:
    """A thread that looks at CURRENT every `every_s` seconds and swaps to what it names, once it has *changed*.

    A CURRENT that differs from the live version is not enough: a swap that could not be made durable stands, and a
    service may be started on another version. A CURRENT that was out of reach and comes back as it was has not changed
    either. `seen` is the CURRENT that the start has taken into account.
    A version that cannot be served leaves live what is live. `problem` says why, and it is tried again at CURRENT's
    next change, and after pauses that grow from the first of `pauses_s` to the second. One whose guarded answers break
    is asked again once an administrator has forced it. The swap opens the new index
    beside the live one: else all replicas would be without an index at the same time.
    """

    def __init__(
        self,
        store: IndexStore,
        swap_index: SwapIndex,
        telemetry: Telemetry,
        *,
        every_s: float,
        seen: CurrentMark | None = None,
        pauses_s: tuple[float, float] = (1.0, 60.0),
    ) -> None:
        self._store = store
        self._swap_index = swap_index
        self._telemetry = telemetry
        self._every_s = every_s
        self._seen = seen if seen is not None else self._mark()
        self._problem: FollowProblem | None = None
        # whether what `seen` names cannot be served; a problem without this is a CURRENT out of reach
        self._unserved = False
        # whether guarded answers of it break
        self._refused = False
        self._first_pause_s, self._longest_pause_s = pauses_s
        self._pause_s = self._first_pause_s
        self._retry_at: float | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="follow-current", daemon=True)
        telemetry.watch_following(self.problem)
        self._thread.start()

    def problem(self) -> FollowProblem | None:
        """Why what CURRENT names is not served; None where it is, or where nothing has to be followed."""
        return self._problem

    def close(self) -> None:
        """Stop looking. Waits for a swap that this has begun."""
        self._closing.set()
        self._thread.join()

    def look(self) -> None:
        """Look at CURRENT once, and follow it. The thread of this object calls it; OSError where it is out of reach."""
        mark = self._mark()
        if self._swap_index.overruled():
            # this may have seen the CURRENT that counts while what it names was live
            self._seen = UNKNOWN_CURRENT
        again = mark == self._seen
        if again and not self._is_due():
            return
        if not self._unserved and (again or mark == NO_CURRENT):
            # within reach again, or out of it: a CURRENT that comes back as it was has not changed
            self._settle(self._seen)
            return
        if not again:
            self._pause_s = self._first_pause_s
        wanted = "CURRENT"
        try:
            if mark not in (NO_CURRENT, self._swap_index.last_written()):
                wanted = self._store.current() or ""
                if again and self._refused and not self._swap_index.was_forced(wanted):
                    # it would give the same answers again
                    self._pause()
                    return
                if wanted and not self._swap_index.serves(wanted):
                    self._swap_index.follow(wanted, mark, again=again).result()
        except (ShuttingDown, SwapInProgress, CurrentConflict):
            # no problem with CURRENT: the next service begins on it, or the next look finds what it names by then
            return
        except Exception as error:
            self._seen, self._unserved = mark, True
            if isinstance(error, UnknownIndex):
                wanted = str(error.data["version"])
            self._fail(wanted, error, again=again)
        else:
            self._settle(mark)

    def _mark(self) -> CurrentMark:
        return self._store.current_mark() or NO_CURRENT

    def _is_due(self) -> bool:
        return self._retry_at is not None and time.monotonic() >= self._retry_at

    def _follow(self) -> None:
        while not self._closing.wait(self._next_look_s()):
            try:
                self.look()
            except Exception as error:
                # the folder is out of reach: the live index and this thread go on
                if self._problem is None or self._is_due():
                    self._fail("CURRENT", error, again=self._problem is not None)

    def _next_look_s(self) -> float:
        """Seconds to the next look: more of them the longer CURRENT is out of reach."""
        if self._problem is None or self._unserved or self._retry_at is None:
            return self._every_s
        return max(self._every_s, min(LONGEST_AWAY_S, self._retry_at - time.monotonic()))

    def _settle(self, mark: CurrentMark) -> None:
        if self._problem is not None:
            logger.info("CURRENT is followed again")
        self._seen, self._problem, self._retry_at, self._unserved = mark, None, None, False

    def _fail(self, wanted: str, error: Exception, *, again: bool = False) -> None:
        code = code_of(error)
        self._telemetry.count_follow_failure(code)
        before = self._problem
        since = before.since if before is not None and before.wanted == wanted else utc_now()
        if not again and wanted == "CURRENT":
            logger.error("CURRENT cannot be read: %s", error)
        elif not again:
            logger.error("CURRENT names %s, which cannot be served: %s", wanted, error)
        # the log comes first: an operator who reads of the problem at /readyz finds it there
        self._problem = FollowProblem(wanted, code, str(error), since)
        self._refused = isinstance(error, GuardFailed) and bool(error.broken)
        self._pause()

    def _pause(self) -> None:
        self._retry_at = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, self._longest_pause_s)
