"""One admitted question, as its own deadline and its own client see it."""

import threading
import time

from openbook.errors import DeadlineExceeded


class Abandoned(Exception):
    """Nobody waits for this work any more. Ends it between two steps; no client ever sees it."""


class Turn:
    """One admitted piece of work, as it sees itself from its thread."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.submitted = time.monotonic()
        self.queue_seconds = 0.0
        self.last_beat = self.submitted
        self._abandoned = threading.Event()

    def begin(self) -> None:
        """The wait is over: a thread has taken it up."""
        self.queue_seconds = self.seconds()
        self.last_beat = time.monotonic()

    def check(self) -> None:
        """To be called between steps. Raises DeadlineExceeded when the time is up, Abandoned when nobody waits."""
        self.last_beat = time.monotonic()
        if self._abandoned.is_set():
            raise Abandoned
        if self.seconds_left() <= 0:
            raise DeadlineExceeded(timeout_s=self.timeout_s)

    def abandon(self) -> None:
        self._abandoned.set()

    def seconds(self) -> float:
        """Since the question was admitted."""
        return time.monotonic() - self.submitted

    def seconds_left(self) -> float:
        return self.timeout_s - self.seconds()
