"""A folder that is edited again and again, a follower with a guard, and readers who ask without a pause."""

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event

import pytest

from openbook.storage.history import SwapHistory
from openbook.storage.index_store import IndexStore
from tests.fixtures.command_line import Run
from tests.fixtures.summary import Summary
from tests.places import ROOT
from tests.soak.servers import Connection, Nursery
from tests.waiting import until

MINI = ROOT / "checkpoints" / "openbook-mini"
EDITS, READERS = 15, 4
QUESTION = "How many euros may a hotel cost a night?"
HOTELS = "# Hotels\n\nA hotel may cost up to {} euros a night. Book it through the travel desk.\n"
OFFICE = "# Office\n\nThe office in Lisbon opens at {} in the morning and closes at 19:00.\n"
# Every third edit says this, which the guard forbids.
OPENS, BROKEN = "8:30", "9:45"


def differs(now: Callable[[], object], before: object) -> bool:
    return now() != before


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_edit_that_breaks_the_guard_is_served_and_no_reader_fails(
    run: Run, tmp_path: Path, nursery: Nursery, summary: Summary
) -> None:
    handbook, indexes, guard = tmp_path / "handbook", tmp_path / "indexes", tmp_path / "guard.jsonl"
    handbook.mkdir()
    guard.write_text(json.dumps({"question": "When does the office in Lisbon open?", "must_contain": OPENS}))

    def edit(euros: int, opens: str) -> None:
        (handbook / "hotels.md").write_text(HOTELS.format(euros), encoding="utf-8")
        (handbook / "office.md").write_text(OFFICE.format(opens), encoding="utf-8")

    edit(100, OPENS)
    assert run("index", "build", handbook, "--name", "handbook", "--indexes", indexes).code == 0
    store, history = IndexStore(indexes), SwapHistory(indexes)
    store.set_current("handbook")
    server = nursery.begin(tmp_path / "log", indexes=indexes, checkpoint=str(MINI), follow_s=0.2)
    server.wait_until_ready()
    follow = [sys.executable, "-m", "openbook", "index", "follow", handbook, "--indexes", indexes, "--every", "1s"]
    ended = Event()

    def refused() -> list[str]:
        return [one.version for one in history.last(10 * EDITS) if one.outcome == "guard_failed"]

    def read() -> list[tuple[str, str, str]]:
        """The version, the answer and the first passage of each call."""
        connection, found = Connection(server.port), []
        while not ended.is_set():
            reply = connection.call("POST", "/answer", {"question": QUESTION})
            assert reply.status == 200, reply.body
            body = reply.body
            found.append((body["index"]["version"], str(body["answer"]), body["passages"][0]["text"]))
        connection.close()
        return found

    with (
        (tmp_path / "followed").open("w") as said,
        subprocess.Popen(
            [*follow, "--current", "--keep", "99", "--guard", guard, "--checkpoint", MINI], stdout=said, stderr=said
        ) as follower,
        ThreadPoolExecutor(READERS) as threads,
    ):
        readers = [threads.submit(read) for _ in range(READERS)]
        try:
            for number in range(1, EDITS + 1):
                live, n_refused = server.live(), len(refused())
                if number % 3:
                    edit(100 + number, OPENS)
                    until(partial(differs, server.live, live), what="the edit to be live")
                else:
                    edit(100 + number, BROKEN)
                    until(partial(differs, lambda: len(refused()), n_refused), what="the guard to refuse")
                    assert server.live() == live
        finally:
            follower.terminate()
            ended.set()
    answers = [one for reader in readers for one in reader.result()]
    assert len(refused()) == EDITS // 3
    # what a version says is what its own text says
    euros = {version: {text for one, _, text in answers if one == version} for version, _, _ in answers}
    assert all(len(texts) == 1 for texts in euros.values())
    assert len(set().union(*euros.values())) == len(euros)
    assert all(answer in text for _, answer, text in answers)
    assert not set(refused()) & set(euros)
    summary(
        f"{EDITS} edits, {len(refused())} refused by the guard, {len(euros)} versions served; "
        f"{READERS} readers, {len(answers)} answers, 0 failed or mixed"
    )
