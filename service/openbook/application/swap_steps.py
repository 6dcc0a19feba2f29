"""The steps of a swap, each of which can fail and leave what is live as it is."""

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack

from openbook.application.live_index import LiveIndex
from openbook.entities import RetrieverKind
from openbook.errors import (
    DrainTimedOut,
    IndexNotResident,
    IndexTooLarge,
    IndexUnreadable,
    NoLiveIndex,
    OpenbookError,
    RetrieverUnavailable,
)
from openbook.storage.index_store import IndexStore
from openbook.storage.manifest import MANIFEST, resident_bytes
from openbook.storage.snapshot import Identity, IndexSnapshot
from openbook.storage.verification import Verification, check_compatible

# Seconds between two looks of a drain at whether it is to end.
DRAIN_CHECK_S = 0.05

logger = logging.getLogger(__name__)


class SwapSteps:
    """Verify, find or open, drain, come back. The order is SwapIndex's."""

    def __init__(
        self,
        store: IndexStore,
        live: LiveIndex,
        *,
        encoder_fingerprint: str | None,
        dimension: int,
        retriever: RetrieverKind,
        free_memory: Callable[[], int],
        drain_s: float,
    ) -> None:
        self._store = store
        self._live = live
        self._encoder_fingerprint = encoder_fingerprint
        self._dimension = dimension
        self._retriever = retriever
        self._free_memory = free_memory
        self._drain_s = drain_s

    def verify(self, version: str, verify: Verification, report: Callable[[float], None]) -> Identity:
        """Everything that can be known before a byte is mapped, and with "checksum" every byte."""
        info = self._store.info(version)
        check_compatible(info, self._encoder_fingerprint, self._dimension)
        return self._store.check(version, verify=verify, report=report)

    def check_retriever(self, version: str) -> None:
        """Raise RetrieverUnavailable for a version that could not answer a question as this service is set to."""
        if self._retriever == "bm25" and self._store.info(version).bm25 is None:
            raise RetrieverUnavailable(version=version)

    def resident(self, version: str, identity: Identity, held: ExitStack) -> IndexSnapshot | None:
        """The resident that has these very files mapped, leased until `held` ends; None where there is none."""
        now = self._live.now()
        if now is not None and now.version == version:
            return None
        try:
            with ExitStack() as attempt:
                lease = attempt.enter_context(self._live.lease(version))
                if lease.snapshot.identity != identity:
                    return None
                held.push(attempt.pop_all())
                return lease.snapshot
        except (IndexNotResident, NoLiveIndex):
            return None

    def serves(self, version: str) -> bool:
        """Whether `version` is live, and not published again since. One that is live and broken on disk is served."""
        live = next((one for one in self._live.residents() if one.live), None)
        if live is None or live.index.version != version:
            return False
        try:
            return live.identity == self._store.check(version)
        except OpenbookError:
            return True

    def make_fit(self, version: str, identity: Identity, *, evicting: bool) -> None:
        """Raise IndexTooLarge where `version` does not fit beside the live index; nothing has changed then.

        With `evicting`, where it fits once residents that are not live have gone, as many go as are needed, the least
        recently leased first.
        """
        needed = resident_bytes(self._store.info(version))
        free = self._free_memory()
        residents = self._live.residents()
        # `free` counts pages of mapped files as free, since the system can drop them: those of indexes that stay
        # open are not. Two openings of the same files share their pages.
        held = {one.identity: one for one in residents if one.identity != identity}
        available = free - sum(one.bytes for one in held.values())
        leaving = []
        for one in sorted(residents, key=lambda one: one.last_leased):
            if needed <= available:
                break
            if evicting and not one.live and not one.retiring and one.identity in held:
                leaving.append(one)
                available += one.bytes
        if needed > available:
            raise IndexTooLarge(version=version, needed=needed, available=max(0, available))
        for one in leaving:
            logger.info("closing index %s to make room for %s", one.index.version, version)
            self._live.evict(one.index.version)

    def open(self, version: str, identity: Identity) -> IndexSnapshot:
        """Map the files that were verified. Raises IndexUnreadable where they are others by now."""
        snapshot = self._store.open(version, encoder_fingerprint=self._encoder_fingerprint, dimension=self._dimension)
        if snapshot.identity != identity:
            snapshot.close()
            raise IndexUnreadable(version=version, file=MANIFEST, reason="it was published again meanwhile")
        return snapshot

    def drain(self, version: str, check: Callable[[], None]) -> None:
        """Give the memory of what is open back before the new index's pages are read.

        Questions are refused meanwhile. Raises DrainTimedOut where those that hold a lease take too long, and within
        a moment what `check` raises.
        """
        drained = self._live.let_go(f"The index is being replaced by {version!r} under policy 'resource'.")
        until = time.monotonic() + self._drain_s
        while drained is not None and not drained.wait(max(0.0, min(DRAIN_CHECK_S, until - time.monotonic()))):
            check()
            if time.monotonic() >= until:
                raise DrainTimedOut(seconds=self._drain_s, version=version)

    def come_back(self, version: str, *, reopen: bool) -> None:
        """Serve again what `drain` let go: with `reopen`, even where it has been closed since."""
        if self._live.take_back() or not reopen:
            return
        try:
            self._live.come_back(
                self._store.open(version, encoder_fingerprint=self._encoder_fingerprint, dimension=self._dimension)
            )
        except Exception:
            # what is reported is why the swap failed; this says why nothing is served since
            logger.exception("index %s could not be opened again: nothing is live", version)
