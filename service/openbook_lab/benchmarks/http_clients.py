"""Clients of a service, in a process of their own: what they cost is not taken from the service that is measured.

Only the standard library is imported here, so that the process is there at once and holds no model.
"""

import json
import multiprocessing
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPConnection
from multiprocessing.connection import Connection
from typing import Any, Self

PATIENCE_S = 600.0
# As long as a client that was refused waits before it asks again, whatever Retry-After says: rates are measured.
REFUSED_PAUSE_S = 0.05
OK, REFUSED = 200, 503


@dataclass(frozen=True, slots=True)
class Asked:
    """One question: what a client saw of it.

    `computed_s` is what the service says of its stages but the queue; `problem` is what it said instead of an answer.
    """

    status: int
    began: float
    seconds: float
    computed_s: float = 0.0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _Load:
    n_clients: int
    seconds: float
    first: int


class ClientProcess:
    """Asks the service on loopback at `port` the `bodies`, one after the other and again from the first."""

    def __init__(self, port: int, bodies: Sequence[dict[str, Any]]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other, port, list(bodies)), daemon=True)
        self._process.start()
        other.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.send(None)
        self._process.join()
        self._pipe.close()

    def ask(self, number: int) -> Asked:
        """One question, over a connection that stays open."""
        self._pipe.send(number)
        return self._answer()[0]

    def load(self, n_clients: int, seconds: float, *, first: int = 0) -> list[Asked]:
        """So many clients at once, each of which asks on as soon as it has its answer; in no order.

        Ends when the questions that were asked before `seconds` had passed are answered.
        """
        self._pipe.send(_Load(n_clients, seconds, first))
        return self._answer()

    def _answer(self) -> list[Asked]:
        answer = self._pipe.recv()
        if isinstance(answer, BaseException):
            raise answer
        return list(answer)


def _serve(pipe: Connection, port: int, bodies: list[dict[str, Any]]) -> None:
    requests = [json.dumps(body).encode() for body in bodies]
    connection = _connect(port)
    while (told := pipe.recv()) is not None:
        try:
            if isinstance(told, _Load):
                pipe.send(_load(port, requests, told))
            else:
                pipe.send([_ask(connection, requests[told % len(requests)])])
        except Exception as error:
            pipe.send(error)


def _load(port: int, requests: list[bytes], load: _Load) -> list[Asked]:
    asked: list[list[Asked]] = [[] for _ in range(load.n_clients)]
    failures: list[Exception] = []
    until = time.perf_counter() + load.seconds

    def client(number: int) -> None:
        connection = _connect(port)
        turn = load.first + number
        try:
            while time.perf_counter() < until:
                asked[number].append(_ask(connection, requests[turn % len(requests)]))
                turn += load.n_clients
                if asked[number][-1].status == REFUSED:
                    time.sleep(REFUSED_PAUSE_S)
        except Exception as error:
            failures.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=client, args=(number,)) for number in range(load.n_clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return [one for of_client in asked for one in of_client]


def _ask(connection: HTTPConnection, request: bytes) -> Asked:
    began = time.perf_counter()
    connection.request("POST", "/answer", request, {"content-type": "application/json"})
    response = connection.getresponse()
    content = response.read()
    seconds = time.perf_counter() - began
    if response.status != OK:
        return Asked(response.status, began, seconds, problem=content.decode(errors="replace"))
    stages = json.loads(content)["seconds"]
    return Asked(OK, began, seconds, sum(stages[stage] for stage in ("encode", "retrieve", "generate")))


def _connect(port: int) -> HTTPConnection:
    return HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
