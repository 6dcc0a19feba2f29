"""Many streams at once: none is mixed or lost when the index is swapped, and one that is left behind leaves nothing.

A client here is an asyncio stream, so that hundreds of them cost less than the service does.
"""

import asyncio
import json
import re
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from tests.fixtures.summary import Summary
from tests.soak.clients import COLOURS, QUESTIONS, body_of, mixture, request
from tests.soak.conftest import Serve
from tests.soak.servers import Server
from tests.waiting import until

PLACES = 256
GROWTH_ALLOWED = 0.05

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


async def hear(port: int, turn: int, ended: list[int]) -> Stream:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request(body_of(QUESTIONS[turn % len(QUESTIONS)]) | {"stream": True}))
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


def at_rest(server: Server) -> bool:
    resident = server.call("GET", "/index").body["resident"]
    gauges = (sample(server, f"openbook_{name}") for name in ("questions_running", "queue_depth"))
    return not any(gauges) and not any(one["leases"] or one["retiring"] for one in resident)


def sample(server: Server, name: str) -> float:
    lines = server.call("GET", "/metrics").body["text"].splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))
