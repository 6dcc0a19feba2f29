import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from openbook.cli.serve import DEMO_TOKEN, OWN_QUESTION
from tests.fixtures.command_line import Run
from tests.openbook.api.conftest import post
from tests.openbook.api.test_server import is_ready
from tests.places import ROOT
from tests.soak.servers import free_port
from tests.waiting import PATIENCE_S, until


def test_without_an_index_it_says_what_to_run(run: Run) -> None:
    ended = run("serve")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("error [no_indexes]: ")
    assert "openbook demo" in ended.err


def test_a_port_that_is_taken_is_found_out_before_anything_is_loaded(run: Run, indexes_folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = run("serve", "--indexes", indexes_folder, "--port", port)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == (
        f"error [setting_invalid]: --port: cannot listen on 127.0.0.1:{port}: Address already in use\n"
    )


def test_the_public_token_does_not_go_on_the_network(run: Run, indexes_folder: Path) -> None:
    ended = run("serve", "--demo", "--indexes", indexes_folder, "--host", "0.0.0.0")
    assert ended.code == 2
    assert "its token is public" in ended.err


def test_a_token_that_no_client_can_send_is_found_out_before_anything_is_loaded(
    run: Run, indexes_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENBOOK_ADMIN_TOKEN", "open\tsesame")
    ended = run("serve", "--indexes", indexes_folder)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == (
        "error [setting_invalid]: OPENBOOK_ADMIN_TOKEN: holds a control character, which no HTTP header can carry\n"
    )


@pytest.mark.parametrize("token", ["schlüssel", "鍵"])
def test_a_token_that_browsers_cannot_send_is_said_at_the_start(
    run: Run, indexes_folder: Path, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setenv("OPENBOOK_ADMIN_TOKEN", token)
    ended = run("serve", "--indexes", indexes_folder, "--index", "tiny-2020")
    assert ended.err.splitlines()[0] == (
        "OPENBOOK_ADMIN_TOKEN holds characters outside ASCII: clients must send them as UTF-8, and browsers cannot."
    )
    assert token not in ended.err


@dataclass
class Served:
    """What a process serves, and, once it has ended, what it has said."""

    url: str
    out: str = ""
    err: str = ""


@contextmanager
def served(*arguments: object, **environment: str) -> Iterator[Served]:
    """`openbook` with these arguments until it is ready; told to end, it ends with status 0."""
    port = free_port()
    one = Served(f"http://127.0.0.1:{port}")
    process = subprocess.Popen(
        [sys.executable, "-m", "openbook", *map(str, arguments), "--port", str(port)],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until(lambda: process.poll() is not None or is_ready(one.url))
        yield one
    finally:
        process.send_signal(signal.SIGTERM)
        one.out, one.err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, one.err


def test_it_serves_says_what_to_try_and_ends_with_status_0_when_told_to(
    indexes_folder: Path, tiny_checkpoint: Path
) -> None:
    arguments = ("serve", "--demo", "--indexes", indexes_folder, "--checkpoint", tiny_checkpoint)
    with served(*arguments, OPENBOOK_ADMIN_TOKEN="") as one:
        answer = post(f"{one.url}/answer", json={"question": OWN_QUESTION}).raise_for_status().json()
        admin = {"authorization": f"Bearer {DEMO_TOKEN}"}
        swapped = post(f"{one.url}/index/swap", json={"version": "tiny-2018"}, headers=admin)
    assert answer["index"]["version"] == "tiny-2016"
    assert "reads tiny-2016 (" in one.out
    assert swapped.status_code == 200
    assert (
        f"""curl {one.url}/answer -H 'content-type: application/json' -d '{{"question": "{OWN_QUESTION}"}}'"""
        in one.out
    )
    assert f"""curl {one.url}/index/swap -H "authorization: Bearer {DEMO_TOKEN}" """ in one.out
    assert """-d '{"version": "tiny-2018"}'""" in one.out
