"""A language model behind a server that is killed, beside swaps and clients that hang up: each question has an answer
of one version, or an error that says what happened.

OPENBOOK_TEST_LLM_COMMAND starts another server than the tiny one, and then the test takes half an hour:

    OPENBOOK_TEST_LLM_COMMAND='llama-server -m SmolLM2-135M.Q4_1.gguf --port {port} -np 8 -c 32768 -t 1'
"""

import json
import os
import shlex
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from itertools import count
from pathlib import Path

import pytest

from tests.fixtures.causal import PROMPT
from tests.fixtures.summary import Summary
from tests.places import ROOT
from tests.soak.clients import QUESTIONS, body_of, mixture
from tests.soak.conftest import Serve
from tests.soak.servers import Connection, free_port
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

COMMAND = os.environ.get("OPENBOOK_TEST_LLM_COMMAND", "")
LENGTH_S, KILL_EVERY_S = (1800, 60) if COMMAND else (60, 6)
CLIENTS, HANG_UPS = 3, 2
WAYS = ({"decoding": "fast"}, {"decoding": "thorough"}, {"model": "single-prompt"})
# Well below a client's patience: a question that is asked again after each kill takes as long as it may.
DEADLINE_S = 60.0
# What a client can tell from a bug: the model is away, broke off in the middle, or is too slow beside all this.
TYPED = {"generator_unreachable": 503, "generator_failed": 502, "deadline_exceeded": 504}


@contextmanager
def language_server(folder: Path, port: int) -> Iterator[None]:
    """A server of its own process, which is killed in the end, whatever it is doing."""
    own = f"{sys.executable} -m tests.fixtures.language_servers {folder} {{port}}"
    with (folder.parent / "language-server.log").open("ab") as log:
        process = subprocess.Popen(shlex.split((COMMAND or own).format(port=port)), cwd=ROOT, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.kill()
            process.wait()


def question(turn: int) -> dict[str, object]:
    asked = {**body_of(QUESTIONS[turn % len(QUESTIONS)]), "model": "sequence", "abstain": "never"}
    return asked | WAYS[turn % len(WAYS)]


def test_a_model_that_is_killed_beside_swaps_and_hang_ups_loses_and_mixes_nothing(
    serve: Serve, plain_causal_checkpoint: Path, tmp_path: Path, summary: Summary
) -> None:
    port = free_port()
    prompt = tmp_path / "prompt.json"
    prompt.write_text(json.dumps(PROMPT.content()), encoding="utf-8")
    ended = threading.Event()
    outcomes: Counter[str] = Counter()
    wrong: list[str] = []

    def ask_on(client: int) -> None:
        connection = Connection(server.port)
        for turn in count(client):
            if ended.is_set():
                connection.close()
                return
            try:
                reply = connection.call("POST", "/answer", question(turn))
            except (OSError, HTTPException) as error:
                wrong.append(f"lost: {error!r}")
                continue
            code = str(reply.body.get("code", "answered"))
            outcomes[code] += 1
            # not at once: while the model is away, each refusal takes no time
            ended.wait(0 if reply.status == 200 else 0.1)
            if reply.status == 200 and (mixed := mixture(reply.body, None)):
                wrong.append(mixed)
            elif reply.status != 200 and TYPED.get(code) != reply.status:
                wrong.append(f"{reply.status}: {reply.body}")

    def hang_up(client: int) -> None:
        for turn in count(client):
            if ended.wait(0.1):
                return
            # it leaves at any moment of an answer
            connection = Connection(server.port, patience_s=0.02 * (1 + turn % 7))
            with suppress(OSError, HTTPException):
                connection.call("POST", "/answer", question(turn))
            connection.close()
            outcomes["left"] += 1

    with language_server(plain_causal_checkpoint, port):
        server = serve(
            generator=f"http://127.0.0.1:{port}/v1",
            prompt=prompt,
            single_prompt=prompt,
            audit=False,
            residents=2,
            timeout_s=DEADLINE_S,
        )
        server.wait_until_ready()
        clients = [
            *(threading.Thread(target=ask_on, args=(number,)) for number in range(CLIENTS)),
            *(threading.Thread(target=hang_up, args=(number,)) for number in range(HANG_UPS)),
        ]
        for client in clients:
            client.start()
        until(lambda: outcomes["answered"] >= CLIENTS, what="the first answers")
        open_files = server.open_files()
    ends = time.monotonic() + LENGTH_S
    kills = swaps = 0
    try:
        while time.monotonic() < ends:
            kills += 1
            with language_server(plain_causal_checkpoint, port):
                until(lambda: server.call("GET", "/readyz").status == 200, what="a model that is back")
                killed_at = time.monotonic() + KILL_EVERY_S
                while time.monotonic() < killed_at:
                    swaps += 1
                    reply = server.swap(("book-blue", "book-red")[swaps % 2])
                    assert reply.status == 200, reply.body
                    time.sleep(1)
    finally:
        ended.set()
        for client in clients:
            client.join()
    summary(f"{LENGTH_S} s, {swaps} swaps, {kills} kills of the model: {dict(outcomes)}, {len(wrong)} lost or mixed")
    assert wrong[:5] == []
    assert outcomes["answered"] > kills
    with language_server(plain_causal_checkpoint, port):
        until(lambda: server.call("GET", "/readyz").status == 200, what="a model that is back")
        assert all(server.call("POST", "/answer", question(turn)).status == 200 for turn in range(len(WAYS)))
        # the connections of those that left are gone
        until(lambda: server.open_files() <= open_files + 2, what="connections that are closed")
