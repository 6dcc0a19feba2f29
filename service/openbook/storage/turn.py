"""The turn: of all services on one folder or store, the one that has it may be without an index (policy resource)."""

import fcntl
import os
from pathlib import Path
from typing import Protocol

from openbook.errors import TurnRefused
from openbook.storage.durable import open_regular

TURN = ".turn"
MOST_BYTES = 256


class SwapTurn(Protocol):
    """One thread at a time calls it. `take` raises StoreUnreachable, and TurnRefused; the others log what fails."""

    def take(self) -> str | None:
        """Take the turn, and return None; or return who has it."""
        ...

    def keep(self) -> None:
        """Call this every second while the turn is needed."""
        ...

    def give_back(self) -> None: ...


class FolderTurn:
    """A lock on a file of the folder. The system gives it back when the holder ends, however that happens."""

    def __init__(self, folder: Path, name: str) -> None:
        self._path = folder / TURN
        self._name = name
        self._descriptor: int | None = None

    def take(self) -> str | None:
        try:
            # over NFS a lock needs a file that is open for writing
            descriptor = open_regular(self._path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{self._name}\n".encode(), 0)
            except BlockingIOError:
                holder = os.pread(descriptor, MOST_BYTES, 0)
                os.close(descriptor)
                return holder_in(holder) or "another service"
            except BaseException:
                os.close(descriptor)
                raise
        except OSError as error:
            raise TurnRefused(reason=error.strerror) from error
        self._descriptor = descriptor
        return None

    def keep(self) -> None:
        """The lock needs nothing."""

    def give_back(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def holder_in(content: bytes) -> str:
    """The first line; empty where nobody has the turn."""
    return content.decode(errors="replace").partition("\n")[0].strip()
