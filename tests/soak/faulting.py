"""A process that forks a child for each fault, lets a system call of the child fail, and looks at what is left.

`python -m tests.soak.faulting OPERATION FOLDER` does an operation of `tests.soak.killing`, or `openbook index bm25`,
once for each fault of `FAULTS` and each place in `PLACES`. After each it looks at the folder as the next process would.
It writes one JSON object: how many times it was done, how many of these failed, and what was wrong.
Torch is not imported and no thread runs before a fork, so that a child costs milliseconds.
"""

import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from openbook.cli.app import build
from openbook.cli.app import main as openbook
from openbook.errors import OpenbookError
from tests.soak.killing import KEPT, OPERATIONS, in_child, look, prepare, said_by_child
from tests.soak.tracing import injected

# a child imports nothing while files cannot be opened or mapped
build()

FAULTS: dict[str, tuple[str, ...]] = {
    "openat": ("EMFILE", "EIO", "ENOSPC", "EINTR"),
    "read": ("EIO", "EINTR"),
    "pread64": ("EIO",),
    "mmap": ("ENOMEM",),
    "fstat,newfstatat": ("EIO", "ENOMEM"),
    "getdents64": ("EIO",),
    "write,pwrite64": ("ENOSPC", "EIO", "EINTR"),
    "fsync,fdatasync": ("EIO", "ENOSPC"),
    "rename,renameat,renameat2": ("ENOSPC", "EIO"),
    "mkdir,mkdirat": ("ENOSPC",),
    "link,linkat": ("EMLINK", "EIO"),
    "unlink,unlinkat,rmdir": ("EIO",),
    "ftruncate": ("EIO",),
    "flock": ("ENOLCK", "EIO", "EINTR"),
    "clone3,clone": ("EAGAIN",),
}
# The n-th call, or every call; no system says EINTR for ever.
PLACES = ("1", "2", "3", "4", "5", "7", "9", "12", "15", "20", "1+1")
FAILED = 3
STUCK_AFTER_S = 40


def bm25(folder: Path) -> None:
    try:
        openbook(["index", "bm25", "old", "--indexes", str(folder)])
    except SystemExit as ended:
        if ended.code:
            raise OSError("the command failed") from ended


# What each does, what may be there after it failed, and what must be there after it did not: see `OPERATIONS`.
Left = tuple[dict[str, tuple[str | None, ...]], tuple[str, ...]]
ACTS: dict[str, tuple[Callable[[Path], object], Left, Left]] = {
    name: (act, (contents, current), ({version: kept[-1:] for version, kept in contents.items()}, current[-1:]))
    for name, (act, contents, current) in OPERATIONS.items()
    # a service does these: see test_system_faults.py
    if not name.startswith("swap")
}
ACTS["bm25"] = (bm25, (KEPT, ("old",)), (KEPT, ("old",)))
# the last of its contents is that the version stays
ACTS["delete"] = (*ACTS["delete"][:2], (KEPT | {"other": (None,)}, ("old",)))


def sweep(name: str, template: Path) -> dict[str, Any]:
    act, after_failure, after_success = ACTS[name]
    place = template.with_name("place")
    done = failed = 0
    wrong = []
    for calls, errors in FAULTS.items():
        for error in errors:
            for when in PLACES[:-1] if error == "EINTR" else PLACES:
                shutil.rmtree(place, ignore_errors=True)
                shutil.copytree(template, place)
                ended = faulted(lambda: act(place), calls, f"error={error}:when={when}")
                done += 1
                failed += ended == FAILED
                left = after_success if ended == 0 else after_failure
                _, complaint = said_by_child(lambda left=left: look(place, *left))
                if ended not in (0, FAILED):
                    complaint = f"the child ended with {ended}; {complaint}"
                if complaint:
                    wrong.append(f"{calls} {error} {when}: {complaint}")
    return {"done": done, "failed": failed, "wrong": wrong}


def faulted(act: Callable[[], object], calls: str, fault: str) -> int:
    """How a child ended that did `act` with this fault: 0, FAILED for an error that says what it is, or else."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.kill(os.getpid(), signal.SIGSTOP)
            act()
            status = 0
        except (OSError, OpenbookError, MemoryError):
            status = FAILED
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.waitpid(pid, os.WUNTRACED)
    with injected(pid, calls, fault):
        os.kill(pid, signal.SIGCONT)
        until = time.monotonic() + STUCK_AFTER_S
        while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0:
            if time.monotonic() > until:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.002)
    return os.waitstatus_to_exitcode(ended[1])


def main(name: str, folder: Path) -> None:
    template = folder / "template"
    in_child(lambda: prepare(template))
    sys.stdout.write(json.dumps(sweep(name, template)))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
