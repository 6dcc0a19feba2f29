"""Many streams at once: none is mixed or lost when the index is swapped, and one that is left behind leaves nothing.

A client here is an asyncio stream, so that hundreds of them cost less than the service does.
"""

import asyncio
import json
import random
import re
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from tests.fixtures.summary import Summary
from tests.soak.clients import COLOURS, QUESTIONS, body_of, mixture
from tests.soak.conftest import Serve
from tests.soak.servers import Server, until

PLACES = 256
GROWTH_ALLOWED = 0.05
# Of an answer with so many tokens at most, most clients see only the beginning.
LONG = {"n_docs": 10, "num_beams": 4, "max_new_tokens": 48}
AT_ONCE = 30
# Of these streams the service computes so many at a time.
COMPUTED = 8

Event = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Stream:
    status: int
    events: tuple[Event, ...]

    def fault(self) -> str | None:
        """What is wrong with it: something missing, out of order, or of another version than the rest."""
        if self.status != 200 or not self.events or self.events[-1][0] != "answer":
            return f"{self.status}: {[name for name, _ in self.events]}"
        (first, passages), *tokens, (_, answer) = self.events
        if first != "passages" or [token for _, token in tokens] != answer["tokens"]:
            return f"{[name for name, _ in self.events]} for {len(answer['tokens'])} tokens"
        if passages["index"] != answer["index"]:
            return f"passages of {passages['index']}, answer of {answer['index']}"
        found = [[one["passage_id"] for one in body["passages"]] for body in (passages, answer)]
        if found[0] != found[1]:
            return f"passages {found[0]} and then {found[1]}"
        return mixture(answer, None)

    @property
    def version(self) -> str:
        return str(self.events[-1][1]["index"]["version"])


@pytest.fixture(scope="module")
def server(serve: Serve) -> Server:
    server = serve(max_queue=PLACES, residents=2)
    server.wait_until_ready()
    return server


def request(body: dict[str, object]) -> bytes:
    content = json.dumps({**body, "stream": True}).encode()
    head = (
        "POST /answer HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n"
        f"content-length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


async def hear(port: int, turn: int, ended: list[int]) -> Stream:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request(body_of(QUESTIONS[turn % len(QUESTIONS)])))
    head, _, chunks = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    ended.append(turn)
    # each event is a chunk of its own, whose length stands on a line before it
    found = re.findall(rb"event: (\w+)\ndata: (.*)\n\n", chunks)
    return Stream(int(head.split()[1]), tuple((name.decode(), json.loads(data)) for name, data in found))


async def a_round(server: Server, streams: int, version: str) -> list[Stream]:
    """So many streams at once, and a swap when a quarter of them have ended."""
    ended: list[int] = []
    heard = [asyncio.create_task(hear(server.port, turn, ended)) for turn in range(streams)]
    while len(ended) < streams // 4:
        await asyncio.sleep(0.002)
    swapped = await asyncio.to_thread(server.swap, version)
    assert swapped.status == 200, swapped.body
    return await asyncio.gather(*heard)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("streams", "rounds"), [(40, 2), pytest.param(200, 30, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_streams_across_swaps_are_whole_and_of_one_version_each(
    streams: int, rounds: int, server: Server, summary: Summary
) -> None:
    turns = [("book-blue", "book-red")[turn % 2] for turn in range(rounds)]
    # each size of a batch has memory of its own from its first time on
    for version in turns:
        asyncio.run(a_round(server, streams, version))
    before = server.resident_bytes()
    began = time.monotonic()
    heard = [stream for version in turns for stream in asyncio.run(a_round(server, streams, version))]
    seconds = time.monotonic() - began
    grown = server.resident_bytes() / before - 1
    versions = Counter(stream.version for stream in heard if stream.fault() is None)
    summary(
        f"{rounds} times {streams} streams at once with a swap in between, {seconds:.1f} s: {dict(versions)}, "
        f"{len(heard) - versions.total()} lost or mixed, memory {grown:+.2%}"
    )
    assert [stream.fault() for stream in heard if stream.fault()][:5] == []
    assert len(heard) == streams * rounds
    assert versions.keys() == COLOURS.keys()
    if rounds > 2:
        assert grown <= GROWTH_ALLOWED
    until(lambda: at_rest(server), what="every place and every lease")


async def leave(port: int, turn: int, moment_s: float, turns: asyncio.Semaphore) -> str:
    """Ask for a stream, and hang up after `moment_s`, in good order or not; what was heard by then."""
    async with turns:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        heard = b""
        with suppress(TimeoutError):
            async with asyncio.timeout(moment_s):
                writer.write(request({**body_of(QUESTIONS[turn % len(QUESTIONS)]), **LONG}))
                while piece := await reader.read(65_536):
                    heard += piece
        if turn % 2:
            writer.transport.abort()
        writer.close()
    names = re.findall(rb"event: (\w+)", heard)
    return names[-1].decode() if names else "nothing"


async def seconds_alone(port: int) -> float:
    """Of a whole stream while nothing else is asked, the second of two."""
    for _ in range(2):
        began = time.monotonic()
        assert await leave(port, 0, 600, asyncio.Semaphore()) == "answer"
    return time.monotonic() - began


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("clients", [80, pytest.param(1000, marks=pytest.mark.slow)], ids=["few", "many"])
def test_clients_that_hang_up_at_any_moment_leave_no_place_and_no_lease_taken(
    clients: int, server: Server, summary: Summary
) -> None:
    moments = random.Random(clients)
    latest = 2 * AT_ONCE / COMPUTED * asyncio.run(seconds_alone(server.port))

    async def all_of_them() -> list[str]:
        turns = asyncio.Semaphore(AT_ONCE)
        leaving = (leave(server.port, turn, moments.uniform(0.0, latest), turns) for turn in range(clients))
        return await asyncio.gather(*leaving)

    files = server.open_files()
    heard = Counter(asyncio.run(all_of_them()))
    seconds = until(lambda: at_rest(server), what="every place and every lease")
    cancelled = sample(server, 'openbook_requests_total{outcome="cancelled",route="/answer"}')
    summary(
        f"{clients} clients hang up within {latest:.1f} s, having heard last: {dict(heard)}; "
        f"{cancelled:.0f} requests cancelled in all, all at rest {seconds:.1f} s after the last"
    )
    assert heard.total() == clients
    assert cancelled > 0
    # not too early for all, nor too late
    assert {"nothing", "token"} <= heard.keys()
    until(lambda: server.open_files() <= files + 1, what="the last socket to close")
    whole = asyncio.run(a_round(server, PLACES // 4, server.live() or ""))
    assert [stream.fault() for stream in whole if stream.fault()][:5] == []


def at_rest(server: Server) -> bool:
    resident = server.call("GET", "/index").body["resident"]
    gauges = (sample(server, f"openbook_{name}") for name in ("questions_running", "queue_depth"))
    return not any(gauges) and not any(one["leases"] or one["retiring"] for one in resident)


def sample(server: Server, name: str) -> float:
    lines = server.call("GET", "/metrics").body["text"].splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))
