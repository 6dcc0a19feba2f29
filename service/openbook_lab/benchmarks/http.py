"""What the service costs beside the engine, and what it gains by answering waiting questions together.

One client: the bare engine and the service over HTTP answer each question one right after the other, so that other work
of the machine slows both alike. Many clients: rounds of all numbers of
clients, one after the other, for the same reason; a rate is compared within its round.

Clients run in a process of their own, so that they take no time of the service. That process imports this file:
imports here are light, and the model's are for types alone.
"""

import json
import math
import random
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPConnection
from itertools import chain
from typing import TYPE_CHECKING, Any

from openbook.cli.client import quieten_libraries
from openbook.cli.options import option
from openbook.cli.progress import ProgressBar
from openbook.entities import AnswerOptions, MarginalKind
from openbook.settings import Settings
from openbook_client import Refused, results
from openbook_lab.benchmarks.children import Child, Progress
from openbook_lab.evaluation.reports import Report, Rows, Table, machine

if TYPE_CHECKING:
    from openbook.api.composition import Services
    from openbook.application.telemetry import Telemetry

TIMEOUT_S = 600.0
# Questions that do not count.
WARM_UP = 3
# A refused client waits so long before it asks again, whatever Retry-After says: rates are measured.
REFUSED_PAUSE_S = 0.05
OK, REFUSED = 200, 503
BARE, HTTP = "bare engine call", "HTTP on loopback"
BATCHES = re.compile(r"^openbook_batch_size_(sum|count) (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """How many clients ask, how long, and what."""

    clients: tuple[int, ...] = option(
        (1, 2, 4, 8, 16), "Clients at once; give it again for more. Default: 1, 2, 4, 8, 16.", min=1
    )
    seconds: float = option(5.0, "How long each number of clients asks in a round.", min=0.1)
    rounds: int = option(3, "Rounds of all numbers of clients.", min=1)
    questions: int = option(60, "Questions that one client asks in each way.", min=1)
    n_docs: int = option(5, "K: passages to retrieve and marginalise over.", min=1)
    model: MarginalKind = option("token", "RAG-Token or RAG-Sequence.")
    num_beams: int = option(4, "Width of the beam search; 1 is greedy.", min=1)
    max_new_tokens: int = option(32, "Tokens of an answer at most.", min=1)

    @property
    def fields(self) -> dict[str, Any]:
        """Of the bodies of POST /answer."""
        return {name: getattr(self, name) for name in ("n_docs", "model", "num_beams", "max_new_tokens")}


def measure_http(settings: Settings, asked: Clients) -> Report:
    """Serve the index of the settings in this process, and ask it as one client and as many."""
    # the process of the clients imports this file too
    import torch

    from openbook.api.app import create_app
    from openbook.api.server import serving
    from openbook_lab.evaluation.leaders import leader_questions

    quieten_libraries()
    texts = [one.text for one in leader_questions()]
    random.Random(0).shuffle(texts)
    bodies = [{"question": text, **asked.fields} for text in texts]
    settings = settings.model_copy(update={"host": "127.0.0.1", "port": 0, "follow_s": 0.0})
    app = create_app(settings)
    with serving(app, settings) as port, ClientProcess(port, bodies) as clients, ProgressBar() as progress:
        services: Services = app.state.services
        engine = BareEngine(services, texts, AnswerOptions(**asked.fields))
        waits = measure_one(engine, clients, asked.questions, progress.update)
        loads = measure_load(app.state.telemetry, clients, asked, progress.update)
        index = services.live.now()
    facts = {
        "checkpoint": services.engine.facts.checkpoint,
        "index": index.version if index is not None else "",
        **asked.fields,
        "workers": settings.workers,
        "max_batch": settings.max_batch,
        "threads": torch.get_num_threads(),
        "dtype": settings.dtype,
        "machine": machine(),
    }
    return Report("bench http", facts, (one_client_table(waits), load_table(loads)))


@dataclass(frozen=True, slots=True)
class BareEngine:
    """Answers the questions by number, without the application and HTTP."""

    services: "Services"
    questions: Sequence[str]
    options: AnswerOptions

    def answer(self, number: int) -> None:
        question = self.questions[number % len(self.questions)]
        with self.services.live.lease() as lease:
            self.services.engine.answer([question], lease.snapshot, self.options)


@dataclass(frozen=True, slots=True)
class Reply:
    """One question as a client saw it; `problem` is the body of an error."""

    status: int
    began: float
    seconds: float
    problem: str = ""


class ClientProcess(Child):
    """Asks the service on loopback at `port` the questions `bodies`, one after the other and again from the first."""

    def __init__(self, port: int, bodies: Sequence[dict[str, Any]]) -> None:
        super().__init__(_client, port, [json.dumps(body).encode() for body in bodies])

    def ask(self, number: int) -> float:
        """The seconds of one answer, over a connection that stays open. Raises Refused without an answer."""
        reply: Reply = self.request((number,))
        if reply.status != OK:
            raise Refused(results.Problem.model_validate_json(reply.problem))
        return reply.seconds

    def load(self, n_clients: int, seconds: float, *, first: int = 0) -> list[Reply]:
        """As many clients at once, each of which asks again as soon as it has its answer; in no order.

        Ends when all questions asked before `seconds` had passed are answered.
        """
        replies: list[Reply] = self.request((first, n_clients, seconds))
        return replies


def _client(_: Progress, port: int, requests: list[bytes]) -> Callable[[tuple[Any, ...]], object]:
    connection = _connect(port)

    def answer(asked: tuple[Any, ...]) -> Reply | list[Reply]:
        number, *load = asked
        return _load(port, requests, number, *load) if load else _ask(connection, requests[number % len(requests)])

    return answer


def _load(port: int, requests: list[bytes], first: int, n_clients: int, seconds: float) -> list[Reply]:
    until = time.perf_counter() + seconds

    def client(number: int) -> list[Reply]:
        replies: list[Reply] = []
        with closing(_connect(port)) as connection:
            while time.perf_counter() < until:
                turn = first + number + n_clients * len(replies)
                replies.append(_ask(connection, requests[turn % len(requests)]))
                if replies[-1].status == REFUSED:
                    time.sleep(REFUSED_PAUSE_S)
        return replies

    with ThreadPoolExecutor(n_clients) as clients:
        return list(chain.from_iterable(clients.map(client, range(n_clients))))


def _ask(connection: HTTPConnection, request: bytes) -> Reply:
    began = time.perf_counter()
    connection.request("POST", "/answer", request, {"content-type": "application/json"})
    response = connection.getresponse()
    content = response.read()
    problem = "" if response.status == OK else content.decode(errors="replace")
    return Reply(response.status, began, time.perf_counter() - began, problem)


def _connect(port: int) -> HTTPConnection:
    return HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)


def measure_one(
    engine: BareEngine, clients: ClientProcess, questions: int, progress: Progress
) -> dict[str, list[float]]:
    """The seconds of so many answers of the bare engine and over HTTP. Raises Refused for a service that does not
    answer them."""
    found: dict[str, list[float]] = {name: [] for name in (BARE, HTTP)}

    def bare(number: int) -> float:
        began = time.perf_counter()
        engine.answer(number)
        return time.perf_counter() - began

    for number in range(-WARM_UP, questions):
        progress(max(0, number), questions, "one client")
        # each comes first every other time
        ways = [(BARE, bare), (HTTP, clients.ask)]
        seconds = {name: ask(number) for name, ask in (ways if number % 2 else reversed(ways))}
        if number >= 0:
            for name, value in seconds.items():
                found[name].append(value)
    progress(questions, questions, "one client")
    return found


def one_client_table(found: dict[str, list[float]]) -> Table:
    """`added`: the time over the same question's bare call."""
    bare = found[BARE]
    rows: Rows = []
    for name, seconds in found.items():
        added = [one - other for one, other in zip(seconds, bare, strict=True)] if name == HTTP else []
        middle = statistics.median(added) if added else math.nan
        share = 100 * middle / statistics.median(bare)
        rows.append((name, *(1000 * at(seconds, part) for part in (0.5, 0.9, 0.99)), 1000 * middle, share))
    return Table("One client, milliseconds a question", ("way", "p50", "p90", "p99", "added p50", "added %"), rows, 2)


@dataclass(slots=True)
class Load:
    """What so many clients saw in all rounds."""

    answers_a_second: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    refused: int = 0
    failed: int = 0
    batches: Counter[str] = field(default_factory=Counter)  # how many, and the "sum" of their questions


def measure_load(telemetry: "Telemetry", clients: ClientProcess, asked: Clients, progress: Progress) -> dict[int, Load]:
    """So many rounds of each number of clients, as long as the options say."""
    found = {number: Load() for number in asked.clients}
    clients.load(max(asked.clients), min(asked.seconds, 1.0))
    steps = asked.rounds * len(found)
    for step in range(steps):
        number = asked.clients[step % len(asked.clients)]
        progress(step, steps, "clients")
        load, before = found[number], batch_counts(telemetry.render().decode())
        replies = clients.load(number, asked.seconds, first=step)
        after = batch_counts(telemetry.render().decode())
        answered = [one.seconds for one in replies if one.status == OK]
        took = max(one.began + one.seconds for one in replies) - min(one.began for one in replies)
        load.answers_a_second.append(len(answered) / took)
        load.seconds += answered
        load.refused += sum(one.status == REFUSED for one in replies)
        load.failed += sum(one.status not in (OK, REFUSED) for one in replies)
        load.batches.update(after - before)
    progress(steps, steps, "clients")
    return found


def load_table(found: dict[int, Load]) -> Table:
    """Rates are medians of the rounds; "times one" is against the same round's smallest number of clients."""
    alone = found[min(found)].answers_a_second
    rows: Rows = []
    for number, load in found.items():
        ratios = [rate / one if one else math.nan for rate, one in zip(load.answers_a_second, alone, strict=True)]
        rows.append(
            (
                number,
                statistics.median(load.answers_a_second),
                statistics.median(ratios),
                *(1000 * at(load.seconds, share) for share in (0.5, 0.9, 0.99)),
                load.batches["sum"] / load.batches["count"] if load.batches["count"] else math.nan,
                load.refused,
                load.failed,
            )
        )
    columns = (
        *("clients", "answers/s", f"times {min(found)}", "p50 ms", "p90 ms", "p99 ms"),
        *("batch mean", "refused", "failed"),
    )
    return Table("Clients at once", columns, rows, digits=2)


def batch_counts(metrics: str) -> Counter[str]:
    """The "count" of batches that a scrape of the metrics tells of, and the "sum" of the questions in them."""
    return Counter({name: int(float(number)) for name, number in BATCHES.findall(metrics)})


def at(values: Sequence[float], share: float) -> float:
    """The quantile: the smallest value that `share` of the values do not exceed; nan without any."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan
