"""Downloads the first version at start, when it is in the store but not on this disk. The service waits for it."""

import logging
import threading

from openbook.application.live_index import LiveIndex
from openbook.application.swap_index import SwapIndex
from openbook.errors import OpenbookError, ShuttingDown, SwapInProgress, code_of
from openbook.storage.index_store import IndexStore

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0

logger = logging.getLogger(__name__)


class FirstIndex:
    """A thread that makes `version` live, or what CURRENT names, and tries again with growing pauses until one is.

    `live` tells questions why there is no index meanwhile. A swap that somebody asks for ends the waiting too.
    """

    def __init__(self, store: IndexStore, swap_index: SwapIndex, live: LiveIndex, version: str | None) -> None:
        self._store = store
        self._swap_index = swap_index
        self._live = live
        self._version = version
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="first-index", daemon=True)
        live.explain("The first index is being fetched from the store.")
        self._thread.start()

    def close(self) -> None:
        """Try no more. Waits for an attempt that has begun."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        pause_s, said = FIRST_PAUSE_S, ""
        while self._live.now() is None and not self._closing.is_set():
            try:
                version = self._version or self._store.default_version()
                self._live.explain(f"The index {version!r} is being fetched from the store.")
                self._swap_index.start(version, again=bool(said)).result()
                return
            except ShuttingDown:
                return
            except SwapInProgress:
                said = said or "-"
            except Exception as error:
                if code_of(error) != said:
                    unforeseen = error if not isinstance(error, OpenbookError) else None
                    logger.error("there is no index yet, and it is tried again: %s", error, exc_info=unforeseen)
                said = code_of(error)
                self._live.explain(f"There is no index yet, and it is tried again. {error}")
            self._closing.wait(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
