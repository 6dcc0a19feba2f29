"""Following CURRENT: the version that another replica on the same folder made current becomes live here as well."""

import logging
import threading
import time
from dataclasses import dataclass

from openbook.application.live_index import LiveIndex
from openbook.application.swap_index import SwapIndex
from openbook.application.swap_progress import SwapPolicy, utc_now
from openbook.application.telemetry import Telemetry
from openbook.errors import InvalidVersionName, ShuttingDown, SwapInProgress, code_of
from openbook.storage.current import NO_CURRENT, CurrentMark
from openbook.storage.index_store import IndexStore

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0

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
    A version that cannot be served leaves live what is live. `problem` says why, and it is tried again with growing
    pauses and at CURRENT's next change.
    """

    def __init__(
        self,
        store: IndexStore,
        live: LiveIndex,
        swap_index: SwapIndex,
        telemetry: Telemetry,
        *,
        every_s: float,
        policy: SwapPolicy,
        seen: CurrentMark | None = None,
    ) -> None:
        self._store = store
        self._live = live
        self._swap_index = swap_index
        self._telemetry = telemetry
        self._every_s = every_s
        self._policy: SwapPolicy = policy
        self._seen = seen if seen is not None else self._look()
        self._problem: FollowProblem | None = None
        # whether what `seen` names cannot be served, or CURRENT only cannot be read
        self._unserved = False
        self._pause_s = FIRST_PAUSE_S
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

    def _look(self) -> CurrentMark:
        return self._store.current_mark() or NO_CURRENT

    def _follow(self) -> None:
        while not self._closing.wait(self._every_s):
            try:
                self._once()
            except Exception as error:
                # the folder is out of reach: the live index and this thread go on
                if self._retry_at is None or time.monotonic() >= self._retry_at:
                    self._failed("CURRENT", error)

    def _once(self) -> None:
        mark = self._look()
        changed = mark != self._seen
        due = self._retry_at is not None and time.monotonic() >= self._retry_at
        if not changed and not due:
            return
        if not self._unserved and (not changed or mark == NO_CURRENT):
            # within reach again, or out of it: a CURRENT that comes back as it was has not changed
            self._settled(self._seen)
            return
        if changed:
            self._pause_s = FIRST_PAUSE_S
        again = self._problem is not None and not changed
        wanted = "CURRENT"
        try:
            wanted = self._wanted(mark) or ""
            if wanted:
                self._swap_index.follow(wanted, policy=self._policy, again=again).result()
        except ShuttingDown:
            # no problem with CURRENT: the next service begins on it
            return
        except SwapInProgress:
            # whose outcome may be another CURRENT: look again when it has ended
            return
        except InvalidVersionName as error:
            self._seen, self._unserved = mark, True
            self._failed(str(error.data["version"]), error, again=again)
        except Exception as error:
            self._seen, self._unserved = mark, True
            self._failed(wanted, error, again=again)
            if self._was_drained():
                # another try would take the service away again
                self._retry_at = None
        else:
            self._settled(mark)

    def _settled(self, mark: CurrentMark) -> None:
        if self._problem is not None:
            logger.info("CURRENT is followed again")
        self._seen, self._problem, self._retry_at, self._unserved = mark, None, None, False

    def _wanted(self, mark: CurrentMark) -> str | None:
        """The version to swap to; None where nothing has to be done."""
        if mark in (NO_CURRENT, self._swap_index.last_written()):
            return None
        version = self._store.current()
        if version is None or self._swap_index.serves(version):
            return None
        return version

    def _was_drained(self) -> bool:
        return self._policy == "resource" and self._swap_index.progress().stage in ("drain", "warm")

    def _failed(self, wanted: str, error: Exception, *, again: bool = False) -> None:
        code = code_of(error)
        self._telemetry.count_follow_failure(code)
        before = self._problem
        since = before.since if before is not None and before.wanted == wanted else utc_now()
        self._problem = FollowProblem(wanted, code, str(error), since)
        if not again:
            logger.error("CURRENT names %s, which cannot be served: %s", wanted, error)
        self._retry_at = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
