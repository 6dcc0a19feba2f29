"""strace, attached to a process that runs: chosen system calls fail as they would on a bad disk or a full machine."""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE_S = 30.0
# strace is gone within milliseconds of its signal
DETACH_S = 10.0


def why_no_strace() -> str:
    """Why no process can be traced here; empty where one can."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        with injected(sleeper.pid, "fsync", "error=EIO:when=1000+1000"):
            pass
    except AssertionError as error:
        return f"strace may not attach: {error}"
    finally:
        sleeper.kill()
        sleeper.wait()
    return ""


@contextmanager
def injected(pid: int, calls: str, fault: str, paths: tuple[Path, ...] = ()) -> Iterator[None]:
    """While the block runs, all threads of `pid` get `fault` from `calls`, if `paths` are given from those alone."""
    command = ["strace", "-qqq", "-f", "-p", str(pid), "-o", "/dev/null", "-e", f"inject={calls}:{fault}"]
    for path in paths:
        command += ["-P", str(path)]
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + PATIENCE_S
        while not _traced(pid):
            if tracer.poll() is not None or time.monotonic() > until:
                tracer.kill()
                raise AssertionError((tracer.communicate()[1] or "no thread is traced").strip())
            time.sleep(0.005)
        yield
    finally:
        tracer.send_signal(signal.SIGINT)
        try:
            tracer.communicate(timeout=DETACH_S)
        except subprocess.TimeoutExpired:
            tracer.kill()
            tracer.communicate()


def _traced(pid: int) -> bool:
    """Whether every thread is traced. One that ends meanwhile does not count."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            if "TracerPid:\t0\n" in (task / "status").read_text():
                return False
        except OSError:
            continue
    return True
