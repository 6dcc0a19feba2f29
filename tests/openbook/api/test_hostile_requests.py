"""Malformed, huge, nested, cut-off and slow requests to a real server: refused or cut, and no other client feels it."""

import ctypes
import gc
import logging
import multiprocessing
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest

from openbook.api.app import create_app
from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.engine import RagEngine
from tests.openbook.api.conftest import BOTH_KINDS, get, hasty, post, settings_of
from tests.openbook.api.hostile import Hostile, answered, hostile_requests, statuses
from tests.waiting import PATIENCE_S

CLIENTS = 12
# What says that the inside shows.
TELLTALES = (b"Traceback", b'File "', b".py", b"site-packages", b"0x7f")
PAGE_BYTES = 4096
MAY_BE_GOOD = ("request line", "headers", "types", "reaching")
CONTINUE = 100


@pytest.fixture
def port(hasty_after: Callable[[float], str]) -> int:
    return int(hasty_after(1.0).rpartition(":")[2])


def fault_of(hostile: Hostile, received: bytes) -> str | None:
    """What is wrong with an answer to something hostile; None where it is as it should be."""
    for telltale in TELLTALES:
        if hostile.kind != "request line" and telltale in received:
            return f"{telltale!r} in the answer"
    found = statuses(received)
    # a line that differs from a good one by its address alone may lead to a page
    allowed: Collection[int] = range(200 if hostile.kind in MAY_BE_GOOD else 400, 500)
    if hostile.kind == "reaching":
        # no time, and a clock
        allowed = (*allowed, 504)
    wrong = [status for status in found if status not in allowed and status != CONTINUE]
    return f"answered with {wrong}" if wrong else None


def resident_bytes() -> int:
    """Without what is free again, and only kept by malloc."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def storm(port: int, number: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Send so many; how many answers of each status there were, and the faults."""
    counted: Counter[str] = Counter()
    faults = []

    def send(hostile: Hostile) -> tuple[Hostile, bytes]:
        return hostile, answered(port, hostile, patience_s=PATIENCE_S)

    with ThreadPoolExecutor(CLIENTS) as clients:
        for hostile, received in clients.map(send, hostile_requests(number, seed)):
            counted.update(str(status) for status in statuses(received) or ["closed"])
            if fault := fault_of(hostile, received):
                faults.append(f"{hostile.kind}: {fault}: {hostile.pieces[0][:200]!r}")
    return counted, faults


def is_well(port: int) -> None:
    server = f"http://127.0.0.1:{port}"
    assert get(f"{server}/readyz").status_code == 200
    answer = post(f"{server}/answer", json={"question": "who is the king ?", "max_new_tokens": 2, "num_beams": 1})
    assert answer.status_code == 200
    assert get(f"{server}/index").json()["live"] == {
        "version": "tiny-2016",
        "generation": 0,
        "snapshot_date": answer.json()["index"]["snapshot_date"],
    }
    running = [line for line in get(f"{server}/metrics").text.splitlines() if line.startswith("openbook_questions_run")]
    assert running == ["openbook_questions_running 0.0"]


@BOTH_KINDS
def test_three_hundred_hostile_requests_are_refused_or_cut(port: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        counted, faults = storm(port, 300, seed=1)
    assert faults == []
    assert sum(counted.values()) >= 300
    assert {"200", "400", "404", "408", "413", "422", "504", "closed"} - set(counted) <= {"408"}
    assert [record.getMessage() for record in caplog.records] == []
    is_well(port)


def bytes_after_storms(indexes: Path, checkpoint: Path) -> tuple[list[int], list[str]]:
    """What this process holds after each of eleven storms on a service of its own, and the faults.

    The same storm: each new length of a question is a new product, of which oneDNN keeps a thousand.
    """
    settings = settings_of(indexes, checkpoint)
    held, faults = [], []
    with hasty(create_app(settings, engine=RagEngine(load_checkpoint(checkpoint, bare=True))), settings, 1.0) as server:
        port = int(server.rpartition(":")[2])
        for _ in range(11):
            faults += storm(port, 1000, seed=100)[1]
            held.append(resident_bytes())
        is_well(port)
    return held, faults


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_thousand_leave_the_memory_where_it_was(
    indexes_folder: Path, tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a process of its own, begun as the image begins one: what other tests have left behind decides nothing
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        held, faults = process.submit(bytes_after_storms, indexes_folder, tiny_checkpoint).result()
    assert faults == []
    grown = held[-1] - held[1]
    assert grown < 32 * 2**20, f"MiB after each thousand: {[size >> 20 for size in held]}"
