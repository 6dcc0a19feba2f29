"""Clients that never stop, and what they were answered."""

import json
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from http.client import HTTPException
from typing import Any

from openbook.entities import Passage
from openbook.storage.index_store import IndexStore
from tests.fixtures.indexes import ENCODER, tiny_vectors
from tests.fixtures.publishing import publish
from tests.soak.servers import Connection

COLOURS = {"book-red": "red", "book-blue": "blue"}
N_PASSAGES = 2000
QUESTIONS = tuple(
    f"{start} {end} ?"
    for start in ("who is the leader of", "what is the capital of")
    for end in ("peru", "france", "kenya", "the island")
)


@dataclass(frozen=True, slots=True)
class Asked:
    """One question. `failure` says what was wrong with its answer; `told_to_wait` is a 503 with Retry-After.

    With `lost` there was no whole answer: the connection ended first.
    """

    began: float
    ended: float
    version: str | None
    failure: str | None = None
    told_to_wait: bool = False
    port: int = 0
    lost: bool = False


def publish_coloured(store: IndexStore, version: str) -> None:
    """A version whose every passage names it, or its colour, in its id and in its text; vectors follow the text."""
    colour = COLOURS.get(version, version)
    words = ("river", "house", "king", "city", "island", "party", "border", "sea")
    passages = [
        Passage(
            f"{version}-{row}",
            f"the {colour} {words[row % 8]}",
            f"the {colour} {words[row % 8]} of {words[row // 8 % 8]} {row} is {colour} .",
        )
        for row in range(N_PASSAGES)
    ]
    publish(
        store,
        version,
        vectors=tiny_vectors(passages),
        passages=passages,
        index_type="flat",
        encoder_name=ENCODER,
        encoder_fingerprint=ENCODER,
    )


def body_of(question: str) -> dict[str, object]:
    return {"question": question, "n_docs": 3, "num_beams": 1, "max_new_tokens": 6}


def request(body: dict[str, object]) -> bytes:
    """A question over a connection of its own."""
    content = json.dumps(body).encode()
    head = (
        "POST /answer HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n"
        f"content-length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


class Clients:
    """`number` threads that ask one question after the other, each over a connection of its own, until `close`.

    `expected` has the answer to each question by version: an answer of another text than its version's is a failure,
    as is a passage of another version than the one that the answer names. Each waits `pause_s` after an answer.
    """

    def __init__(
        self, ports: Sequence[int], number: int, expected: dict[tuple[str, str], str], *, pause_s: float = 0.0
    ) -> None:
        self._expected = expected
        self._pause_s = pause_s
        self._ended = threading.Event()
        self._asked: list[list[Asked]] = [[] for _ in range(number)]
        self._threads = [
            threading.Thread(target=self._ask_on, args=(ports[client % len(ports)], client), daemon=True)
            for client in range(number)
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> "Clients":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def asked(self) -> list[Asked]:
        """What all of them asked so far, in no order."""
        return [one for asked in self._asked for one in list(asked)]

    def _ask_on(self, port: int, client: int) -> None:
        connection = Connection(port)
        turn = client
        while not self._ended.is_set():
            question = QUESTIONS[turn % len(QUESTIONS)]
            turn += 1
            asked = replace(self._ask(connection, question), port=port)
            self._asked[client].append(asked)
            if asked.told_to_wait or asked.failure is not None:
                # as Retry-After asks, but for the patience of a test
                self._ended.wait(0.02)
            self._ended.wait(self._pause_s)
        connection.close()

    def _ask(self, connection: Connection, question: str) -> Asked:
        began = time.monotonic()
        try:
            reply = connection.call("POST", "/answer", body_of(question))
        except (OSError, HTTPException) as error:
            return Asked(began, time.monotonic(), None, failure=repr(error), lost=True)
        ended = time.monotonic()
        if reply.status == 503 and reply.body.get("code") == "not_ready" and "retry-after" in reply.headers:
            return Asked(began, ended, None, told_to_wait=True)
        if reply.status != 200:
            return Asked(began, ended, None, failure=f"{reply.status}: {reply.body}")
        version = str(reply.body["index"]["version"])
        return Asked(began, ended, version, failure=mixture(reply.body, self._expected.get((version, question))))


def mixture(answer: dict[str, Any], expected: str | None) -> str | None:
    """What in an answer does not belong to the version that it names."""
    version = answer["index"]["version"]
    ids = [passage["passage_id"] for passage in answer["passages"]]
    if not ids or not all(one.startswith(f"{version}-") for one in ids):
        return f"{version} with the passages {ids}"
    if not all(COLOURS.get(version, version) in passage["text"] for passage in answer["passages"]):
        return f"{version} with the texts {[passage['text'] for passage in answer['passages']]}"
    if expected is not None and answer["answer"] != expected:
        return f"{version} with the answer {answer['answer']!r} where it says {expected!r}"
    return None


def p99_ms(asked: Sequence[Asked]) -> float:
    seconds = sorted(one.ended - one.began for one in asked)
    return 1000 * seconds[math.ceil(0.99 * len(seconds)) - 1] if seconds else math.nan
