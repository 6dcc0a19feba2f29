"""A swap's path: verify, open beside, warm, flip, write CURRENT, retire.

Whatever fails before the flip changes nothing: the index that was live goes on serving under its generation. After
the flip there is no way back, since questions may have been answered from the new index. So a CURRENT that cannot be
written (a read-only folder, a full disk) does not undo the swap; the report says `durable: false`, the log says why,
and a restart comes back on the version that CURRENT names.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from service.application.live_index import LiveIndex
from service.application.telemetry import Telemetry
from service.entities import IndexInfo
from service.errors import IndexTooLarge, OpenbookError, SwapInProgress
from service.storage.index_store import IndexStore
from service.storage.snapshot import IndexSnapshot
from service.storage.verification import Verification, check_compatible

SwapPolicy = Literal["availability", "resource"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SwapReport:
    """A swap that happened. `seconds` has one entry a stage and "total"; `durable` is false where CURRENT could not
    be written, so that a restart would come back on another version."""

    version: str
    previous: str | None
    generation: int
    durable: bool
    seconds: dict[str, float]


class SwapIndex:
    """Swaps the live index, one swap at a time, in a thread of its own.

    `free_memory` gives the bytes that one more index may take. `encoder_fingerprint` and `dimension` are those that
    the checkpoint's question encoder asks for.
    """

    def __init__(
        self,
        store: IndexStore,
        live: LiveIndex,
        telemetry: Telemetry,
        *,
        encoder_fingerprint: str | None,
        dimension: int,
        free_memory: Callable[[], int],
    ) -> None:
        self._store = store
        self._live = live
        self._telemetry = telemetry
        self._encoder_fingerprint = encoder_fingerprint
        self._dimension = dimension
        self._free_memory = free_memory
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="swap")
        self._lock = threading.Lock()
        self._under_way: str | None = None

    def begin(
        self, version: str, *, policy: SwapPolicy = "availability", verify: Verification = "manifest"
    ) -> Future[SwapReport]:
        """Start a swap; it goes on whether or not anyone waits for it. Raises SwapInProgress at once.

        The future raises UnknownIndex, a child of IndexCorrupt, IndexIncompatible or IndexTooLarge, and then the
        index that was live is live.
        """
        with self._lock:
            if self._under_way is not None:
                raise SwapInProgress(version=self._under_way)
            self._under_way = version
        try:
            return self._executor.submit(self._swap, version, policy, verify)
        except BaseException:
            self._end()
            raise

    def close(self) -> None:
        """Wait for a swap that is under way; begin no other."""
        self._executor.shutdown(wait=True)

    def _swap(self, version: str, policy: SwapPolicy, verify: Verification) -> SwapReport:
        watch = _Stopwatch()
        try:
            report = self._swap_now(version, policy, verify, watch)
        except Exception as error:
            outcome = error.code if isinstance(error, OpenbookError) else OpenbookError.code
            logger.warning("swap to %s failed: %s", version, error)
            self._telemetry.count_swap(outcome, watch.all())
            raise
        else:
            logger.info("swapped from %s to %s, generation %d", report.previous, version, report.generation)
            self._telemetry.count_swap("ok" if report.durable else "not_durable", report.seconds)
            return report
        finally:
            self._end()

    def _swap_now(self, version: str, policy: SwapPolicy, verify: Verification, watch: "_Stopwatch") -> SwapReport:
        with watch.stage("verify"):
            self._verify(self._store.info(version), policy, verify)
        with watch.stage("open"):
            snapshot = self._open(version)
        live = self._live.now()
        previous = live.version if live is not None else None
        try:
            if policy == "resource":
                with watch.stage("drain"):
                    self._let_go(version)
            with watch.stage("warm"):
                snapshot.warm()
        except BaseException:
            snapshot.close()
            if policy == "resource" and previous is not None:
                self._come_back(previous)
            raise
        with watch.stage("flip"):
            generation = self._live.flip(snapshot)
        with watch.stage("current"):
            durable = self._write_current(version)
        return SwapReport(version, previous, generation, durable, watch.all())

    def _verify(self, info: IndexInfo, policy: SwapPolicy, verify: Verification) -> None:
        """Everything that can be known before a byte is mapped, and with "checksum" every byte."""
        check_compatible(info, self._encoder_fingerprint, self._dimension)
        if policy == "availability":
            needed = sum(file.bytes for file in info.files.values())
            available = self._free_memory()
            if needed > available:
                raise IndexTooLarge(version=info.version, needed=needed, available=available)
        if verify == "checksum":
            self._store.verify(info.version)

    def _open(self, version: str) -> IndexSnapshot:
        return self._store.open(version, encoder_fingerprint=self._encoder_fingerprint, dimension=self._dimension)

    def _let_go(self, version: str) -> None:
        """Give the live index's memory back before the new one's pages are read.

        The wait is bounded by the deadlines of the questions that hold a lease; new ones are refused meanwhile.
        """
        drained = self._live.let_go(f"The index is being replaced by {version!r} under policy 'resource'.")
        if drained is not None:
            drained.wait()

    def _come_back(self, version: str) -> None:
        try:
            self._live.come_back(self._open(version))
        except Exception:
            # what is reported is why the swap failed; this says why nothing is served since
            logger.exception("index %s could not be opened again: nothing is live", version)

    def _write_current(self, version: str) -> bool:
        try:
            self._store.set_current(version)
        except (OSError, OpenbookError):
            logger.exception(
                "%s is live, but CURRENT could not be written: a restart will not come back on it", version
            )
            return False
        return True

    def _end(self) -> None:
        with self._lock:
            self._under_way = None


class _Stopwatch:
    """Seconds of each stage of a swap, in the order in which they began."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[name] = time.perf_counter() - started

    def all(self) -> dict[str, float]:
        return {**self._seconds, "total": sum(self._seconds.values())}
