import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from openbook.cli.serve import DEMO_TOKEN, OWN_QUESTION
from tests.fixtures.command_line import Run
from tests.places import ROOT


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


def test_it_serves_says_what_to_try_and_ends_with_status_0_when_told_to(
    indexes_folder: Path, tiny_checkpoint: Path
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    arguments = ["--demo", "--port", str(port), "--indexes", str(indexes_folder), "--checkpoint", str(tiny_checkpoint)]
    process = subprocess.Popen(
        [sys.executable, "-m", "openbook", "serve", *arguments],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBOOK_ADMIN_TOKEN": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until_ready(url, process)
        answer = httpx.post(f"{url}/answer", json={"question": OWN_QUESTION}).raise_for_status().json()
        swapped = httpx.post(
            f"{url}/index/swap", json={"version": "tiny-2018"}, headers={"authorization": f"Bearer {DEMO_TOKEN}"}
        )
    finally:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=250)
    assert answer["index"]["version"] == "tiny-2016"
    assert "reads tiny-2016 (" in out
    assert swapped.status_code == 200
    assert process.returncode == 0, err
    assert f"""curl {url}/answer -H 'content-type: application/json' -d '{{"question": "{OWN_QUESTION}"}}'""" in out
    assert f"""curl {url}/index/swap -H "authorization: Bearer {DEMO_TOKEN}" """ in out
    assert """-d '{"version": "tiny-2018"}'""" in out


def wait_until_ready(url: str, process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        try:
            if httpx.get(f"{url}/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"not ready; ended with {process.poll()}")
