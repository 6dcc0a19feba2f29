"""The commands on the index of a running service, against a real one on loopback."""

import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from openbook.api.app import create_app
from openbook.cli import swap
from openbook.cli.swap import show_history, show_status
from openbook.settings import Settings
from openbook.storage.index_store import IndexStore
from tests.fixtures.command_line import QUESTION, TOKEN, Run
from tests.openbook.api.conftest import SlowSearch, get, post, serving
from tests.waiting import until


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch, bare: None) -> None:
    monkeypatch.setenv("OPENBOOK_ADMIN_TOKEN", TOKEN)


@pytest.fixture
def slow_search(monkeypatch: pytest.MonkeyPatch) -> SlowSearch:
    return SlowSearch(monkeypatch)


@pytest.fixture
def small_service(bare: None, service_settings: Settings) -> Iterator[str]:
    """The address of a service that has no version open beside the live one."""
    settings = service_settings.model_copy(update={"residents": 1})
    with serving(create_app(settings), settings) as address:
        yield address


def live(service: str) -> str:
    version: str = get(f"{service}/index").json()["live"]["version"]
    return version


def test_swap_makes_a_version_live_and_current(run: Run, service: str, token: None, indexes_folder: Path) -> None:
    ended = run("index", "swap", "tiny-2018", "--url", service)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("tiny-2018 is live, generation 1 (before: tiny-2016), after ")
    assert IndexStore(indexes_folder).current() == "tiny-2018"
    back = run("index", "swap", "tiny-2016", "--url", service, "--policy", "resource", "--verify", "checksum", "--json")
    assert back.json["generation"] == 2


def test_swap_without_the_right_token_changes_nothing(
    run: Run, service: str, indexes_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = run("index", "swap", "tiny-2018", "--url", service)
    monkeypatch.setenv("OPENBOOK_ADMIN_TOKEN", "guess")
    wrong = run("index", "swap", "tiny-2018", "--url", service)
    assert (missing.code, wrong.code) == (1, 1)
    assert missing.err.startswith("error [unauthorized]: ")
    assert "wrong" in wrong.err
    assert IndexStore(indexes_folder).current() == "tiny-2016"


@pytest.mark.parametrize("command", [("swap", "tiny-2018"), ("rollback",), ("load", "tiny-2018"), ("history",)])
def test_a_token_that_no_header_carries_is_wrong_use_and_not_repeated(
    run: Run, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENBOOK_ADMIN_TOKEN", "open\nsesame")
    ended = run("index", *command, "--url", "http://127.0.0.1:9")
    reason = "holds a control character, which no HTTP header can carry"
    assert (ended.code, ended.err) == (2, f"error [setting_invalid]: OPENBOOK_ADMIN_TOKEN: {reason}\n")


def test_a_name_that_cannot_be_printed_is_wrong_use(run: Run) -> None:
    ended = run("index", "rollback", "--url", "http://127.0.0.1:9", "--actor", "a\tb")
    assert (ended.code, ended.err.split(": ")[1]) == (2, "--actor")


def test_rollback_leads_back_and_without_a_swap_before_it_nowhere(run: Run, service: str, token: None) -> None:
    nowhere = run("index", "rollback", "--url", service)
    assert nowhere.code == 1
    assert nowhere.err.startswith("error [no_previous_index]: ")
    run("index", "swap", "tiny-2018", "--url", service)
    ended = run("index", "rollback", "--url", service)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("tiny-2016 is live, generation 2 (before: tiny-2018), after ")


def test_load_opens_and_leaves_the_live_one(run: Run, service: str, token: None) -> None:
    ended = run("index", "load", "tiny-2018", "--url", service)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("tiny-2018 is open, after ")
    assert live(service) == "tiny-2016"


def test_what_is_not_waited_for_says_where_to_look(run: Run, service: str, token: None) -> None:
    ended = run("index", "swap", "tiny-2018", "--url", service, "--no-wait")
    assert (ended.code, ended.out) == (0, "")
    assert ended.err == "tiny-2018: begun; openbook index status tells how it goes and ends\n"
    until(lambda: get(f"{service}/index/swap").json()["state"] == "done")
    assert "tiny-2018: done after " in run("index", "status", "--url", service).out


def test_ctrl_c_ends_the_waiting_and_not_the_swap(
    run: Run, small_service: str, token: None, slow_search: SlowSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = threading.Thread(target=lambda: post(f"{small_service}/answer", json={"question": QUESTION}))
    asking.start()
    slow_search.wait(1)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(swap, "_look", interrupt)
    ended = run("index", "swap", "tiny-2018", "--url", small_service, "--policy", "resource")
    assert ended.code == 130
    assert ended.err == "the swap continues without this command; openbook index status shows the progress\n"
    assert "swap to tiny-2018: drain, for " in run("index", "status", "--url", small_service).out
    slow_search.go_on.set()
    asking.join()
    until(lambda: get(f"{small_service}/readyz").status_code == 200)
    assert live(small_service) == "tiny-2018"


def test_status_needs_no_token_and_says_what_is_live_open_and_on_disk(
    run: Run, service: str, indexes_folder: Path
) -> None:
    (indexes_folder / "tiny-2018").rename(indexes_folder / "tiny-2019")
    lines = run("index", "status", "--url", service).out.splitlines()
    assert lines[0].startswith("tiny-2016 is live, generation 0, tiny@")
    rows = {row[0]: row[1:] for row in map(str.split, lines[1:]) if row and row[0].startswith("tiny-")}
    assert rows["tiny-2016"][:3] == ["2016-12-21", "live", "0"]
    assert rows["tiny-2018"][:3] == ["2018-12-20", "open", "0"]
    assert rows["tiny-2019"] == ["on", "disk"]
    assert "CURRENT is followed" in lines
    as_json = run("index", "status", "--url", service, "--json").json
    assert as_json["index"]["live"]["version"] == "tiny-2016"
    assert as_json["following"]["ok"] is True


def test_history_lists_who_did_what(run: Run, service: str, token: None) -> None:
    empty = run("index", "history", "--url", service)
    assert (empty.code, empty.out, empty.err) == (0, "", "no swap so far\n")
    run("index", "swap", "tiny-2018", "--url", service, "--actor", "jos\u00e9 of the night shift")
    run("index", "swap", "wiki-1999", "--url", service)
    refused, swapped = [line for line in run("index", "history", "--url", service).out.splitlines() if "20" in line]
    assert "wiki-1999" in refused
    assert "unknown_index" in refused
    assert "127.0.0.1" in refused
    assert swapped.split()[1:5] == ["tiny-2016", "tiny-2018", "availability", "ok"]
    assert "jos\u00e9 of the night shift" in swapped
    [newest] = run("index", "history", "--url", service, "--limit", "1", "--json").json["swaps"]
    assert newest["version"] == "wiki-1999"


def test_a_service_that_cannot_be_reached_is_said_once(run: Run, token: None) -> None:
    for command in (("swap", "x"), ("rollback",), ("load", "x"), ("status",), ("history",)):
        ended = run("index", *command, "--url", "http://127.0.0.1:9")
        assert ended.code == 1
        assert ended.err.startswith("error [server_unreachable]: No Openbook answers at http://127.0.0.1:9: ")
        assert ended.err.count("\n") == 1


def test_a_failed_swap_and_an_unservable_current_are_shown_with_their_codes() -> None:
    written = io.StringIO()
    content: dict[str, Any] = {
        "index": {"live": None, "resident": [], "versions": ["wiki-2018"], "checkpoint": "openbook-mini@0"},
        "swap": {
            "state": "failed",
            "version": "wiki-2018",
            "policy": "resource",
            "stage": "verify",
            "fraction": None,
            "seconds": {"verify": 0.5, "total": 0.5},
            "started_at": "2020-01-02T03:04:05+00:00",
            "code": "index_corrupt",
            "detail": "a file \x1b[31mis broken",
        },
        "following": {
            "ok": False,
            "wanted": "wiki-2018",
            "code": "index_corrupt",
            "detail": "a file is broken",
            "since": "2020-01-02T03:04:05+00:00",
        },
    }
    show_status(content, Console(file=written, width=1000, highlight=False))
    text = written.getvalue()
    assert text.startswith("nothing is live\n")
    assert "swap to wiki-2018: failed in verify [index_corrupt]: a file \ufffd[31mis broken\n" in text
    assert text.splitlines()[-1] == (
        "CURRENT names wiki-2018, which cannot be served since 2020-01-02T03:04:05+00:00 "
        "[index_corrupt]: a file is broken"
    )
    content["swap"] |= {"state": "running", "stage": "warm", "fraction": 0.42}
    content["following"] = None
    written = io.StringIO()
    show_status(content, Console(file=written, width=1000, highlight=False))
    assert "swap to wiki-2018: warm 42%, for 0.500 s\n" in written.getvalue()


def test_what_a_terminal_would_obey_does_not_reach_it_through_the_history() -> None:
    record: dict[str, Any] = dict.fromkeys(("time", "version", "policy", "outcome", "replica"), "x")
    record |= {"previous": None, "seconds": 0.1, "actor": "\x1b[2J"}
    written = io.StringIO()
    show_history([record], Console(file=written, width=200, highlight=False))
    assert "\x1b" not in written.getvalue()
