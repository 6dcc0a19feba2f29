"""Taking turns: of all services on one folder or store, one at a time lets its index go before it opens another."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from openbook.storage.turn import SwapTurn

# Between two looks at a turn that another service has; each costs two calls of a store.
LOOK_S = 1.0
STEP_S = 0.25
CLOSE_S = 5.0

logger = logging.getLogger(__name__)


class TakeTurns:
    """Has the turn from before an index is let go until this service has served one for `rest_s` seconds.

    By then proxies have seen that it is ready again. A service that is left without an index keeps the turn: the
    others serve on. `serves` says whether there is an index. One thread at a time calls `taken`.
    """

    def __init__(self, turn: SwapTurn, *, rest_s: float, serves: Callable[[], bool]) -> None:
        self._turn = turn
        self._rest_s = rest_s
        self._serves = serves
        self._lock = threading.Lock()
        self._has_it = False
        self._needs_it = False
        self._closing = threading.Event()
        self._keeper: threading.Thread | None = None

    @contextmanager
    def taken(self, wait: Callable[[float], None]) -> Iterator[None]:
        """Have the turn for the length of a `with` block, and for the rest after it.

        `wait` waits so many seconds, and raises where the waiting is to end. Raises StoreUnreachable where the turn is
        out of reach.
        """
        told = None
        while (holder := self._take()) is not None:
            if holder != told:
                logger.info("waiting for the turn to let the index go: %s has it", holder)
            told = holder
            wait(LOOK_S)
        try:
            yield
        finally:
            with self._lock:
                self._needs_it = False

    def close(self) -> None:
        """Give the turn back now. Nothing is served any more, or soon."""
        self._closing.set()
        if self._keeper is not None:
            # a store that hangs is not waited for: there the turn ends by itself
            self._keeper.join(CLOSE_S)

    def _take(self) -> str | None:
        """None where this service has the turn now, or still; else who has it."""
        with self._lock:
            holder = None if self._has_it else self._turn.take()
            if holder is None:
                self._needs_it = True
                if not self._has_it:
                    self._begin_to_keep()
            return holder

    def _begin_to_keep(self) -> None:
        try:
            self._keeper = threading.Thread(target=self._keep, name="swap-turn", daemon=True)
            self._keeper.start()
        except BaseException:
            self._keeper = None
            self._turn.give_back()
            raise
        self._has_it = True

    def _keep(self) -> None:
        served_since = None
        while True:
            ends = self._closing.wait(STEP_S)
            if not ends:
                self._turn.keep()
            with self._lock:
                if self._needs_it or not self._serves():
                    served_since = None
                elif served_since is None:
                    served_since = time.monotonic()
                rested = served_since is not None and time.monotonic() - served_since >= self._rest_s
                if ends or rested:
                    self._turn.give_back()
                    self._has_it = False
                    return
