"""Two replicas on one folder under any order of swaps, rollbacks, loads, deletions, looks, restarts and leases."""

import errno
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from openbook.application.live_index import Lease
from openbook.application.swap_index import SwapReport
from openbook.entities import Passage
from openbook.errors import IndexNotResident, NoLiveIndex, OpenbookError, ShuttingDown, SwapInProgress
from openbook.storage.current import CurrentMark
from openbook.storage.index_store import IndexStore
from openbook.storage.placing import delete_version
from tests.fixtures.replicas import Replica
from tests.openbook.application.conftest import samples
from tests.openbook.storage.mappings import until_unmapped
from tests.soak.books import publish_book
from tests.waiting import PATIENCE_S, until

VERSIONS = ("v0", "v1", "v2")
ACTOR = "ann"
# The thread of a follower never wakes: only the rule `look` follows CURRENT.
NEVER_S = 3600.0
Step = tuple[str, int, str]
NUMBERS, NAMES = st.sampled_from((0, 1)), st.sampled_from(VERSIONS)
STEPS = st.none() | st.tuples(st.sampled_from(("swap", "swap", "swap", "rollback", "delete")), NUMBERS, NAMES)


class InterruptedStore(IndexStore):
    """Another step happens right after CURRENT is read, and right before it is written."""

    after_read: Callable[[], None] | None = None
    before_write: Callable[[], None] | None = None
    full_disk = False

    def current(self) -> str | None:
        found = super().current()
        then, self.after_read = self.after_read, None
        if then is not None:
            then()
        return found

    def set_current(self, version: str, *, since: CurrentMark | None = None) -> CurrentMark:
        then, self.before_write = self.before_write, None
        if then is not None:
            then()
        if self.full_disk:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().set_current(version)


@dataclass(eq=False)
class Serving:
    """A replica from its start to its end. The first waits for its readers in a drain; the second never waits."""

    number: int
    replica: Replica
    store: InterruptedStore
    first: str | None
    # CURRENT at the end of a swap that could not write it: what is live then stands until CURRENT changes
    stands: CurrentMark | None = None
    waiting: "Future[SwapReport] | None" = None
    leases: int = 0
    name: str = field(default="", kw_only=True)


@dataclass(eq=False)
class Held:
    serving: Serving
    lease: Lease
    passages: tuple[Passage, ...]
    ending: AbstractContextManager[Lease]


class Swaps(RuleBasedStateMachine):
    template: Path

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp(prefix="openbook-model-"))
        self.folder = Path(shutil.copytree(self.template, self.place / "indexes"))
        self.store = IndexStore(self.folder)
        self.names = count()
        self.served: list[Serving] = []
        self.serving = [self.start(number) for number in (0, 1)]
        self.held: list[Held] = []
        self.asked = 0

    def start(self, number: int) -> Serving:
        store, name = InterruptedStore(self.folder), f"{number}.{next(self.names)}"
        replica = Replica.start(
            self.folder,
            residents=1 + number,
            drain_s=(PATIENCE_S, 0.0)[number],
            name=name,
            store=store,
            follow_every_s=NEVER_S,
        )
        self.served.append(Serving(number, replica, store, replica.version(), name=name))
        return self.served[-1]

    # --- steps -----------------------------------------------------------------------------------------------

    @rule(number=NUMBERS, version=NAMES | st.none(), policy=st.sampled_from(("availability", "resource")), also=STEPS)
    def swap(self, number: int, version: str | None, policy: str, also: Step | None) -> None:
        """Or a rollback. `also` happens between the flip and the writing of CURRENT."""
        serving = self.serving[number]
        if also is not None and also[1] != number:
            serving.store.before_write = lambda: self.take(also)
        swap = self.ask(serving, version, policy)
        if swap is None:
            return
        waits = number == 0 and policy == "resource" and serving.leases > 0
        if waits:
            until(lambda: swap.done() or serving.replica.swap_index.progress().stage == "drain")
            serving.waiting = None if swap.done() else swap
        if serving.waiting is None:
            self.end(serving, swap)

    @rule(number=NUMBERS, also=STEPS)
    def look(self, number: int, also: Step | None) -> None:
        """`also` happens between reading CURRENT and following it."""
        serving = self.serving[number]
        follower = serving.replica.follower
        assert follower is not None
        if also is not None:
            serving.store.after_read = lambda: self.take(also)
        follower.look()
        serving.store.after_read = None
        follower.look()
        if serving.waiting is None and follower.problem() is None and serving.stands != self.store.current_mark():
            assert serving.replica.version() == self.store.current()

    @rule(number=NUMBERS, version=NAMES)
    def load(self, number: int, version: str) -> None:
        with suppress(OpenbookError):
            self.serving[number].replica.swap_index.load(version).result(PATIENCE_S)

    @rule(version=NAMES)
    def delete(self, version: str) -> None:
        with suppress(OpenbookError):
            delete_version(self.store, version)

    @rule(version=NAMES, content=st.sampled_from(("first", "second")))
    def publish(self, version: str, content: str) -> None:
        publish_book(self.store, version, f"{version} {content}", replace=True)

    @rule(number=NUMBERS, full=st.booleans())
    def fill_disk(self, number: int, full: bool) -> None:
        self.serving[number].store.full_disk = full

    @rule(number=NUMBERS)
    def restart(self, number: int) -> None:
        serving = self.serving[number]
        serving.replica.close(within_s=0)
        if serving.waiting is not None:
            assert isinstance(serving.waiting.exception(0), ShuttingDown)
        self.serving[number] = self.start(number)

    @rule(number=NUMBERS, version=NAMES | st.none())
    def take_lease(self, number: int, version: str | None) -> None:
        serving = self.serving[number]
        lease = serving.replica.live.lease(version)
        with suppress(NoLiveIndex, IndexNotResident):
            given = lease.__enter__()
            passages = given.snapshot.passages(range(len(given.snapshot)))
            self.held.append(Held(serving, given, passages, lease))
            serving.leases += 1

    @rule(which=st.integers(0, 9))
    def end_lease(self, which: int) -> None:
        if not self.held:
            return
        held = self.held.pop(which % len(self.held))
        held.ending.__exit__(None, None, None)
        serving = held.serving
        serving.leases -= 1
        if serving.waiting is not None and not serving.leases and serving in self.serving:
            swap, serving.waiting = serving.waiting, None
            self.end(serving, swap)

    # --- what is always so -----------------------------------------------------------------------------------

    @invariant()
    def current_names_a_version_that_exists(self) -> None:
        current = self.store.current()
        assert current is not None
        self.store.info(current)

    @invariant()
    def leases_read_open_snapshots_that_never_change(self) -> None:
        for held in self.held:
            snapshot = held.lease.snapshot
            assert snapshot.passages(range(len(snapshot))) == held.passages
            assert snapshot.search(snapshot.vectors([1]), 1).tolist() == [[1]]
            assert snapshot.info.version == held.lease.index.version

    @invariant()
    def the_history_is_whole(self) -> None:
        records = self.served[0].replica.history.last(10_000)[::-1]
        n_waiting = sum(one.waiting is not None for one in self.serving)
        assert sum(record.actor == ACTOR for record in records) == self.asked - n_waiting
        for serving in self.served:
            swapped = [record for record in records if record.replica == serving.name and record.succeeded()]
            assert [record.generation for record in swapped] == list(range(1, len(swapped) + 1))
            versions = [serving.first, *(record.version for record in swapped)]
            assert [record.previous for record in swapped] == versions[:-1]
            counted = samples(serving.replica.telemetry)
            outcomes = (f'openbook_swaps_total{{outcome="{one}"}}' for one in ("ok", "not_durable"))
            assert sum(counted.get(name, 0) for name in outcomes) == len(swapped)
            if serving in self.serving and serving.waiting is None:
                now = serving.replica.live.now()
                assert now is not None
                assert (now.version, now.generation) == (versions[-1], len(swapped))

    def teardown(self) -> None:
        try:
            while self.held:
                self.end_lease(0)
            for number in (0, 1, 0):
                self.look(number, None)
        finally:
            for serving in self.serving:
                serving.replica.close(within_s=0)
        until_unmapped(self.folder)
        shutil.rmtree(self.place)

    # --- parts of steps --------------------------------------------------------------------------------------

    def ask(self, serving: Serving, version: str | None, policy: str) -> "Future[SwapReport] | None":
        self.asked += 1
        try:
            return serving.replica.swap_index.begin(version, policy=policy, actor=ACTOR)  # type: ignore[arg-type]
        except SwapInProgress:
            return None

    def end(self, serving: Serving, swap: "Future[SwapReport]") -> None:
        with suppress(OpenbookError):
            if not swap.result(PATIENCE_S).durable:
                serving.stands = self.store.current_mark()
        serving.store.before_write = None

    def take(self, step: Step) -> None:
        what, number, version = step
        if what == "delete":
            self.delete(version)
            return
        serving = self.serving[number]
        swap = self.ask(serving, None if what == "rollback" else version, "availability")
        if swap is not None:
            self.end(serving, swap)


@pytest.fixture(scope="module", autouse=True)
def template(tmp_path_factory: pytest.TempPathFactory) -> None:
    Swaps.template = tmp_path_factory.mktemp("model")
    store = IndexStore(Swaps.template)
    for version in VERSIONS:
        publish_book(store, version)
    store.set_current("v0")


@pytest.mark.parametrize("examples", [8, pytest.param(2000, marks=[pytest.mark.slow, pytest.mark.timeout(7200)])])
def test_replicas_come_together_and_lose_nothing_whatever_happens(examples: int) -> None:
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Swaps,
        settings=settings(max_examples=examples, stateful_step_count=25, suppress_health_check=checks),
    )
