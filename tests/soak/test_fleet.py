"""Many replicas on one object store, under load, while some are killed, cut off from the store, or slow.

OPENBOOK_TEST_REPLICAS says how many; without it there are ten.
"""

import os
import random
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPException
from pathlib import Path

import pytest

from openbook.plugins.objects.copying import push
from openbook.plugins.objects.fsspec_store import FsspecStore
from openbook.storage.index_store import IndexStore
from tests import waiting
from tests.fixtures.stores import Line
from tests.fixtures.summary import Summary
from tests.soak.clients import Asked, Clients, publish_coloured
from tests.soak.servers import Nursery, Server

N_REPLICAS = int(os.environ.get("OPENBOOK_TEST_REPLICAS", "10"))
URL = "s3://books/indexes"
# Of the replicas, in each round so many are killed, as many are cut off, and as many have a slow line to the store.
SHARE = 5
ROUNDS = 4
# How long the pages of a version take to come: long enough for a client to see that there is no index.
DISK_S, SLOW_DISK_S, SLOW_LINE_S = 0.4, 1.5, 0.03
FOLLOW_S, PAUSE_S = 1.0, 0.1
# Longer than a fleet takes on a machine that is busy with other things.
LIMIT_S = 240.0

until = partial(waiting.until, limit_s=LIMIT_S, every_s=0.1)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@dataclass
class Member:
    """A replica, its line to the store, and when it was down: from a kill until it was ready again."""

    server: Server
    line: Line
    down: list[tuple[float, float]] = field(default_factory=list)

    def live(self) -> str | None:
        try:
            return self.server.live()
        except (OSError, HTTPException):
            return None

    def is_running(self) -> bool:
        try:
            return bool(self.server.call("GET", "/index/swap").body["state"] == "running")
        except (OSError, HTTPException):
            return False

    def complains(self) -> bool:
        """Whether it says, to people and to Prometheus, that it cannot see what CURRENT names."""
        following = self.server.call("GET", "/readyz").body.get("following", {})
        metrics = self.server.call("GET", "/metrics").body["text"].splitlines()
        return following.get("code") == "store_unreachable" and "openbook_following_ok 0.0" in metrics

    def die_and_come_back(self) -> None:
        began = time.monotonic()
        self.server.kill()
        # until it is ready, which `came_back` waits for
        self.down.append((began, float("inf")))
        self.server.pid = self.server.begin_again()

    def came_back(self) -> None:
        if self.down and self.down[-1][1] == float("inf"):
            self.server.wait_until_ready()
            self.down[-1] = (self.down[-1][0], time.monotonic())

    def was_down(self, began: float, ended: float) -> bool:
        return any(began <= up and ended >= down for down, up in self.down)

    def proportional_bytes(self) -> int:
        """Its share of the memory, what it shares with others divided among them."""
        lines = Path(f"/proc/{self.server.pid}/smaps_rollup").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("Pss:")).split()[1]) * 1024


@dataclass
class Fleet:
    """All replicas, the store as the one who publishes sees it, and what has happened."""

    members: list[Member]
    objects: FsspecStore
    folder: IndexStore
    random: random.Random
    seconds: list[float] = field(default_factory=list)

    def publish(self, version: str) -> None:
        publish_coloured(self.folder, version)
        push(self.objects, self.folder, version, lambda share: None)

    def some(self, among: list[Member]) -> list[Member]:
        return self.random.sample(among, max(1, len(self.members) // SHARE))

    def swap(self, version: str, kill: list[Member]) -> None:
        """Have some replica that sees the store swap to `version`, and kill these meanwhile, until CURRENT names it."""
        while self.objects.current() != version:
            told = self.random.choice([one for one in self.members if not one.line.refusing and not one.line.silent])
            with suppress(OSError, HTTPException):
                told.server.call("POST", "/index/swap", {"version": version, "wait": False})
            time.sleep(self.random.uniform(0.0, 3.0))
            for one in kill:
                one.die_and_come_back()
            kill = []
            until(lambda told=told: not told.is_running(), what="the end of the swap that was asked for")  # type: ignore[misc]
            for one in self.members:
                one.came_back()

    def converges(self, members: list[Member]) -> None:
        """Wait until these serve what CURRENT names."""
        wanted = self.objects.current()
        for one in members:
            until(lambda one=one: one.live() == wanted, what=f"{wanted}, see {one.server.log}")  # type: ignore[misc]


@pytest.fixture
def fleet(s3: Line, s3_server: int, nursery: Nursery, tiny_checkpoint: Path, tmp_path: Path) -> Iterator[Fleet]:
    """Replicas that serve round-0, each over a line of its own; the disk of every fifth is slow."""
    objects, folder = FsspecStore(URL), IndexStore(tmp_path / "indexes")
    publish_coloured(folder, "round-0")
    push(objects, folder, "round-0", lambda share: None)
    objects.write_current("round-0", None)
    given = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    members = []
    for number in range(N_REPLICAS):
        line = Line()
        line.open(s3_server)
        server = nursery.begin(
            tmp_path / f"log-{number}",
            environment={**given, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{line.port}"},
            slow_disk_s=SLOW_DISK_S if number % SHARE == 0 else DISK_S,
            indexes=URL,
            cache=tmp_path / f"cache-{number}",
            checkpoint=str(tiny_checkpoint),
            residents=1,
            workers=1,
            follow_s=FOLLOW_S,
        )
        members.append(Member(server, line))
    yield Fleet(members, objects, folder, random.Random(24))
    for one in members:
        one.line.heal()
        one.server.kill()


def test_a_fleet_converges_on_current_whatever_happens_to_some_of_it(fleet: Fleet, summary: Summary) -> None:
    members = fleet.members
    for one in members:
        one.server.wait_until_ready()
    with Clients([one.server.port for one in members], len(members), {}, pause_s=PAUSE_S) as clients:
        until(lambda: len(clients.asked()) >= len(members), what="the first questions")
        for number in range(1, ROUNDS + 1):
            before, version = fleet.objects.current(), f"round-{number}"
            fleet.publish(version)
            cut, slow = fleet.some(members), fleet.some(members)
            for one in slow:
                one.line.delay_s = SLOW_LINE_S
            for one in cut:
                one.line.refusing = True
            began = time.monotonic()
            fleet.swap(version, kill=fleet.some(members))
            reached = [one for one in members if one not in cut]
            fleet.converges(reached)
            fleet.seconds.append(time.monotonic() - began)
            for one in cut:
                until(one.complains, what=f"a word on the store, see {one.server.log}")
                assert one.live() == before
            for one in members:
                one.line.heal()
            fleet.converges(members)
            until(lambda: not any(one.complains() for one in members), what="no complaint")
        proportional = [one.proportional_bytes() for one in members]
        asked = clients.asked()
    unexcused, lost = failures(fleet, asked)
    assert unexcused == []
    assert {one.version for one in asked} >= {f"round-{number}" for number in range(ROUNDS + 1)}
    assert absences(fleet, asked) == []
    summary(
        f"{len(members)} replicas on a store: {ROUNDS} swaps, "
        f"{sum(len(one.down) for one in members)} kills; {len(asked)} questions, 0 failed or mixed, {lost} lost with a "
        f"killed process, {sum(one.told_to_wait for one in asked)} told to wait; all that reach the store converged "
        f"after {' '.join(f'{one:.0f}' for one in fleet.seconds)} s; no replica was without an index; "
        f"{sum(proportional) / 1e6:.0f} MB in all"
    )


def failures(fleet: Fleet, asked: list[Asked]) -> tuple[list[Asked], int]:
    """The questions that failed, but for those whose process was killed; and how many of these there are."""
    members = {one.server.port: one for one in fleet.members}
    failed = [one for one in asked if one.failure is not None]
    lost = [one for one in failed if one.lost and members[one.port].was_down(one.began, one.ended)]
    return [one for one in failed if one not in lost], len(lost)


@dataclass(frozen=True)
class Absence:
    """A replica has told its client to wait, from its first such answer to the last in a row."""

    port: int
    began: float
    ended: float


def absences(fleet: Fleet, asked: list[Asked]) -> list[Absence]:
    """When replicas had no index although no kill took it from them."""
    found = []
    for member in fleet.members:
        began: float | None = None
        for one in sorted((one for one in asked if one.port == member.server.port), key=lambda one: one.began):
            if one.told_to_wait and not member.was_down(one.began, one.ended):
                began = one.began if began is None else began
                ended = one.ended
            elif began is not None:
                found.append(Absence(member.server.port, began, ended))
                began = None
    return found
