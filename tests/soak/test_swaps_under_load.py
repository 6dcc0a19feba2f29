"""Swaps under clients that never stop: none fails, none is answered by two books, and nothing is left behind."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.fixtures.summary import Summary
from tests.soak.clients import COLOURS, QUESTIONS, Asked, Clients, body_of, mixture, p99_ms
from tests.soak.conftest import Serve
from tests.soak.servers import Server
from tests.waiting import until

CLIENTS = 8
# Of memory and of open files, between the first swaps and the last.
GROWTH_ALLOWED = 0.02
# Of memory, where the largest batches and the last of oneDNN's programs may still be to come. A leak of megabytes a
# question would be five times as much.
GROWTH_OF_A_SHORT_RUN = 0.1
# Swaps and quiet take turns, so that whatever else the machine does falls on both.
SWAPS_A_TURN = 5
PAUSE_S = 0.05


@dataclass(frozen=True)
class Length:
    """How many swaps, after how many questions and swaps that make a server as large as it will be.

    Each size of a batch has memory of its own from its first time on, and with two workers some sizes are rare.
    """

    swaps: int
    first_swaps: int
    first_questions: int
    growth: float


# index.faiss and passages.arrow
FILES_OF_A_VERSION = 2

# a fixture with the folder of a checkpoint
BART = "tiny_checkpoint"

SHORT = Length(10, 6, 160, GROWTH_OF_A_SHORT_RUN)
LONG = Length(800, 200, 320, GROWTH_ALLOWED)


@dataclass(frozen=True)
class State:
    resident_bytes: int
    open_files: int
    mapped_indexes: int


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


def alternating(generation: int) -> str:
    return ("availability", "resource")[generation // 2 % 2]


def always_available(generation: int) -> str:
    return "availability"


def slowly(residents: int, policy_of: Callable[[int], str], length: Length = LONG, serve: str = BART) -> object:
    marks = [pytest.mark.slow, pytest.mark.timeout(7200)]
    return pytest.param(serve, residents, policy_of, length, marks=marks)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("serve", "residents", "policy_of", "length"),
    [
        (BART, 2, alternating, SHORT),
        slowly(1, alternating, SHORT),
        slowly(2, alternating, SHORT, "tiny_causal_checkpoint"),
        slowly(1, always_available),
        slowly(2, always_available),
        slowly(1, alternating),
        slowly(2, alternating),
    ],
    indirect=["serve"],
)
def test_swaps_under_load_fail_no_question_mix_no_versions_and_leave_nothing(
    residents: int, policy_of: Callable[[int], str], length: Length, serve: Serve, summary: Summary
) -> None:
    server = serve(residents=residents)
    server.wait_until_ready()
    said, asked, before, after = soak(server, length, policy_of)
    policies = "policy availability" if policy_of is always_available else "both policies"
    summary(f"residents {residents}, {policies}: {said}")
    assert [one.failure for one in asked if one.failure is not None][:5] == []
    assert {one.version for one in asked if one.version is not None} == set(COLOURS)
    assert after.resident_bytes <= before.resident_bytes * (1 + length.growth)
    # a connection more or less is the client's doing
    # an open version holds a lock on each of its files
    locked = FILES_OF_A_VERSION * (after.mapped_indexes - before.mapped_indexes)
    assert after.open_files <= before.open_files + locked + max(1, int(before.open_files * GROWTH_ALLOWED))
    assert after.mapped_indexes <= residents + 1
    if policy_of is always_available:
        assert not any(one.told_to_wait for one in asked)
    server.kill()


def soak(server: Server, length: Length, policy_of: Callable[[int], str]) -> tuple[str, list[Asked], State, State]:
    """What is to be said, every question, and the state after the first swaps and after all of them."""
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
        until(lambda: len(clients.asked()) >= length.first_questions, what="the first questions")
        for _ in range(length.first_swaps):
            swap()
        before = state(server)
        spans.clear()
        for _ in range(length.swaps // SWAPS_A_TURN):
            began = time.monotonic()
            for _ in range(SWAPS_A_TURN):
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
        f"{length.swaps} swaps under {CLIENTS} clients: {len(asked)} questions, "
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
