"""The turn in an object store, which knows no locks: an object that its holder writes again and again."""

import logging
import os
import time
from secrets import token_hex

from openbook.errors import StoreUnreachable, TurnRefused
from openbook.storage.current import StoreMark
from openbook.storage.object_store import Conflict, ObjectStore
from openbook.storage.turn import holder_in

# A turn ends so long after its holder last wrote it, by the clock of who waits for it.
EXPIRES_S = 30.0
# A holder writes so often. What lies between the two is for a slow store.
KEEP_S = 5.0

logger = logging.getLogger(__name__)


class StoreTurn:
    """An object that names its holder, and that the holder writes again and again; each write is bound to the last.

    A waiting service takes the turn when the object stays unchanged for EXPIRES_S seconds. It measures them with its
    own clock alone.
    """

    def __init__(self, objects: ObjectStore, name: str) -> None:
        self._objects = objects
        self._name = name
        self._id = token_hex(8)
        self._mark: StoreMark | None = None
        self._kept_at = 0.0
        self._seen: bytes | None = None
        self._seen_at = 0.0

    def take(self) -> str | None:
        try:
            return self._take()
        except OSError as error:
            # of file://
            raise TurnRefused(reason=error.strerror or os.strerror(error.errno or 0)) from error

    def _take(self) -> str | None:
        # the mark first: where another process writes after it, the write below is refused
        mark, found = self._objects.turn_mark(), self._objects.turn()
        if found != self._seen:
            self._seen, self._seen_at = found, time.monotonic()
        holder = holder_in(found or b"")
        if holder and time.monotonic() - self._seen_at < EXPIRES_S:
            return holder
        if holder:
            logger.warning("%s has not kept its turn for %.0f s: it is taken from it", holder, EXPIRES_S)
        try:
            self._write(self._name, mark)
        except Conflict:
            return "another service"
        return None

    def keep(self) -> None:
        if self._mark is None or time.monotonic() - self._kept_at < KEEP_S:
            return
        try:
            self._write(self._name, self._mark)
        except Conflict:
            self._mark = None
            logger.warning("another service has taken the turn: this one did not keep it in time")
        except (StoreUnreachable, OSError) as error:
            logger.warning("the turn is not kept: %s", error)

    def give_back(self) -> None:
        if self._mark is not None:
            try:
                self._write("", self._mark)
            except (Conflict, StoreUnreachable, OSError) as error:
                logger.warning("the turn is not given back and ends by itself: %s", error)
            self._mark = None

    def _write(self, name: str, mark: StoreMark | None) -> None:
        """Raises Conflict where another service has written since `mark`."""
        # no two writings are the same, so that who waits sees each
        content = f"{name}\n{self._id} {token_hex(4)}\n".encode()
        try:
            self._mark = self._objects.write_turn(content, mark)
        except Conflict:
            mark, found = self._objects.turn_mark(), self._objects.turn() or b""
            if self._id not in found.decode(errors="replace"):
                raise
            # the answer to a writing of this service was lost
            self._mark = mark
        self._kept_at = time.monotonic()
