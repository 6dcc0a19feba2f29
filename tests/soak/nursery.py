"""A process that has imported the service once and forks one server for each line of settings that it reads.

Importing torch takes seconds and forking takes none. Each server is a process of its own in every other way: it loads
its checkpoint, opens its index and listens. Reads JSON objects, writes the number of the process for each.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable

from openbook.api.server import serve
from openbook.settings import settings_class
from openbook.storage.snapshot import IndexSnapshot


def main() -> None:
    # a server that ended does not stay as a zombie
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os.environ.update(order["environment"])
            slow_the_disk(order["slow_disk_s"])
            serve_until_told(order["settings"], order["log"])
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


def slow_the_disk(seconds: float) -> None:
    """The pages of every version that is warmed take so many seconds longer, and every sync a fifth of that."""
    sync, warm = os.fsync, IndexSnapshot.warm

    def sync_slowly(descriptor: int) -> None:
        time.sleep(seconds / 5)
        sync(descriptor)

    def warm_slowly(snapshot: IndexSnapshot, report: Callable[[float], None] | None = None) -> None:
        time.sleep(seconds)
        warm(snapshot, report)

    if seconds:
        os.fsync = sync_slowly  # type: ignore[assignment]
        IndexSnapshot.warm = warm_slowly  # type: ignore[method-assign]


def serve_until_told(settings: dict[str, object], log: str) -> None:
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        opened = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(opened, stream)
        os.close(opened)
        os.close(0)
        status = serve(settings_class()(**settings))  # type: ignore[arg-type]
    finally:
        os._exit(status)


if __name__ == "__main__":
    main()
