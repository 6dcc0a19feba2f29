"""What the history of swaps is told, and what it tells a rollback."""

import logging

from openbook.application.swap_progress import SwapWatch, utc_now
from openbook.storage.history import SwapHistory, SwapRecord

# How far back a rollback looks for the swap that made the live version live.
ROLLBACK_RECORDS = 1000

logger = logging.getLogger(__name__)


class SwapLog:
    """Writes to a history, where there is one, under the name of this replica."""

    def __init__(self, history: SwapHistory | None, replica: str) -> None:
        self._history = history
        self._replica = replica

    def record(self, watch: SwapWatch, outcome: str, generation: int | None, detail: str) -> None:
        """Write down how a swap ended. One that cannot be written is logged: the swap stands all the same."""
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
        except OSError:
            logger.exception("the history of swaps could not be written")

    def version_before(self, live: str | None) -> str | None:
        """The version that was live before the last swap to `live`, by any replica; None where nothing tells."""
        for record in self._history.last(ROLLBACK_RECORDS) if self._history is not None else ():
            if record.succeeded() and record.version == live and record.previous not in (None, live):
                return record.previous
        return None
