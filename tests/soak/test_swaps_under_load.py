"""Swaps under clients that never stop: none fails, none is answered by two books, and nothing is left behind."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from openbook.storage.index_store import IndexStore
from tests.soak.clients import COLOURS, QUESTIONS, Asked, Clients, body_of, mixture, p99_ms, publish_coloured
from tests.soak.conftest import Summary
from tests.soak.servers import Nursery, Server, until

CLIENTS = 8
FIRST_SWAPS = 10
# each size of a batch has memory of its own from its first time on, and with two workers some sizes are rare
FIRST_SWAPS_OF_MANY = 200
# Of memory and of open files, between the first ten swaps and the last.
GROWTH_ALLOWED = 0.02
# Of memory, where the largest batches and the last of oneDNN's programs may still be to come. A leak of megabytes a
# question would be five times as much.
GROWTH_OF_A_SHORT_RUN = 0.1
# Questions that make a server's allocators as large as they will be.
WARM_UP_QUESTIONS = 320
# Swaps and quiet take turns, so that whatever else the machine does falls on both.
SWAPS_A_TURN = 5
PAUSE_S = 0.05


@dataclass(frozen=True)
class State:
    resident_bytes: int
    open_files: int
    mapped_indexes: int


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    store = IndexStore(tmp_path / "indexes")
    for version in COLOURS:
        publish_coloured(store, version)
    store.set_current("book-red")
    return store.folder


def answers_of_each(server: Server) -> dict[tuple[str, str], str]:
    """What each version answers while nothing else happens; "book-red" is live afterwards."""
    found = {}
    for version in ("book-blue", "book-red"):
        assert server.swap(version).status == 200
        for question in QUESTIONS:
            answer = server.call("POST", "/answer", body_of(question)).body
            assert mixture(answer, None) is None
            found[version, question] = answer["answer"]
    assert any(found["book-blue", question] != found["book-red", question] for question in QUESTIONS)
    return found


def state(server: Server) -> State:
    return State(server.resident_bytes(), server.open_files(), server.mapped_indexes())


def soak(
    server: Server, swaps: int, policy_of: Callable[[int], str], *, first: int = FIRST_SWAPS
) -> tuple[str, list[Asked], State, State]:
    """`swaps` swaps after the `first`; returns what is to be said, every question, and the state before and after."""
    expected = answers_of_each(server)
    spans: list[tuple[float, float]] = []
    quiet: list[tuple[float, float]] = []
    generation = 2

    def swap() -> None:
        nonlocal generation
        version = ("book-blue", "book-red")[generation % 2]
        began = time.monotonic()
        reply = server.swap(version, policy=policy_of(generation))
        spans.append((began, time.monotonic()))
        generation += 1
        assert (reply.status, reply.body.get("generation")) == (200, generation), reply.body
        time.sleep(PAUSE_S)

    with Clients([server.port], CLIENTS, expected) as clients:
        until(lambda: len(clients.asked()) >= WARM_UP_QUESTIONS, what="the first questions")
        for _ in range(first):
            swap()
        before = state(server)
        spans.clear()
        for done in range(0, swaps, SWAPS_A_TURN):
            began = time.monotonic()
            for _ in range(min(SWAPS_A_TURN, swaps - done)):
                swap()
            turn_s = time.monotonic() - began
            began = time.monotonic()
            time.sleep(turn_s)
            quiet.append((began, time.monotonic()))
        after = state(server)
    asked = clients.asked()
    during = [one for one in asked if any(one.began <= end and one.ended >= start for start, end in spans)]
    without = [one for one in asked if any(start <= one.began and one.ended <= end for start, end in quiet)]
    answered = [[one for one in some if one.version is not None] for some in (during, without)]
    with_ms, without_ms = (p99_ms(some) for some in answered)
    said = (
        f"{swaps} swaps under {CLIENTS} clients: {len(asked)} questions, "
        f"{sum(one.failure is not None for one in asked)} failed or mixed, "
        f"{sum(one.told_to_wait for one in asked)} told to wait; "
        f"p99 {with_ms:.0f} ms during swaps, {without_ms:.0f} ms without, ratio {with_ms / without_ms:.2f} "
        f"(of {len(answered[0])} and {len(answered[1])}); "
        f"memory {before.resident_bytes / 1e6:.1f} -> {after.resident_bytes / 1e6:.1f} MB "
        f"({after.resident_bytes / before.resident_bytes - 1:+.2%}), "
        f"open files {before.open_files} -> {after.open_files}, "
        f"indexes mapped {before.mapped_indexes} -> {after.mapped_indexes}"
    )
    return said, asked, before, after


def check_soaked(
    asked: list[Asked], before: State, after: State, residents: int, *, growth: float = GROWTH_ALLOWED
) -> None:
    assert [one.failure for one in asked if one.failure is not None][:5] == []
    assert {one.version for one in asked if one.version is not None} == set(COLOURS)
    assert after.resident_bytes <= before.resident_bytes * (1 + growth)
    # a connection more or less is the client's doing
    assert after.open_files <= before.open_files + max(1, int(before.open_files * GROWTH_ALLOWED))
    assert after.mapped_indexes <= residents + 1


def alternating(generation: int) -> str:
    return ("availability", "resource")[generation // 2 % 2]


def always_available(generation: int) -> str:
    return "availability"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("residents", [1, 2])
def test_thirty_swaps_fail_nobody_mix_nothing_and_leave_nothing(
    residents: int, folder: Path, tiny_checkpoint: Path, nursery: Nursery, tmp_path: Path, summary: Summary
) -> None:
    server = nursery.begin(tmp_path / "log", indexes=folder, checkpoint=str(tiny_checkpoint), residents=residents)
    server.wait_until_ready()
    said, asked, before, after = soak(server, 20, alternating)
    summary(f"residents {residents}, both policies: {said}")
    check_soaked(asked, before, after, residents, growth=GROWTH_OF_A_SHORT_RUN)
    server.kill()


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("residents", "policy_of"), [(1, always_available), (2, always_available), (1, alternating), (2, alternating)]
)
def test_a_thousand_swaps_fail_nobody_mix_nothing_and_leave_nothing(
    residents: int,
    policy_of: Callable[[int], str],
    folder: Path,
    tiny_checkpoint: Path,
    nursery: Nursery,
    tmp_path: Path,
    summary: Summary,
) -> None:
    server = nursery.begin(tmp_path / "log", indexes=folder, checkpoint=str(tiny_checkpoint), residents=residents)
    server.wait_until_ready()
    said, asked, before, after = soak(server, 1000 - FIRST_SWAPS_OF_MANY, policy_of, first=FIRST_SWAPS_OF_MANY)
    policies = "policy availability" if policy_of is always_available else "both policies"
    summary(f"residents {residents}, {policies}: {said}")
    check_soaked(asked, before, after, residents)
    if policy_of is always_available:
        assert not any(one.told_to_wait for one in asked)
    server.kill()
