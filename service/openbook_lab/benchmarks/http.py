"""What the service costs beside the engine, and what it gains by answering waiting questions together.

One client: the bare engine, the application in this process and the service over HTTP answer each question one right
after the other and each time in another order, so that other work of the machine slows all three alike. The same client
then hears answers as events, and asks for each without them in turn: what it waits for the first token, and for the
whole. Many clients:
rounds of all numbers of clients, one after the other, for the same reason; a rate is compared within its round.

Clients run in a process of their own, so that they take no time of the service. That process imports this file:
imports here are light, and the model's are for types alone.
"""

import asyncio
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
from itertools import chain, cycle
from typing import TYPE_CHECKING, Any

from openbook.cli.client import quieten_libraries
from openbook.cli.options import option
from openbook.cli.progress import ProgressBar
from openbook.entities import AnswerOptions, ModelKind, StageSeconds
from openbook.settings import Settings
from openbook_client import Refused
from openbook_lab.benchmarks.children import Child, Progress
from openbook_lab.evaluation.reports import Report, Rows, Table, machine

if TYPE_CHECKING:
    from openbook.api.composition import Services
    from openbook.application.telemetry import Telemetry

WAYS = ("bare engine call", "application, same process", "HTTP on loopback")
TIMEOUT_S = 600.0
# Questions in each way that do not count.
WARM_UP = 3
# A refused client waits so long before it asks again, whatever Retry-After says: rates are measured.
REFUSED_PAUSE_S = 0.05
OK, REFUSED = 200, 503
EVENTS = "text/event-stream"
# Of a stream, until when a client waits; the last is the same answer asked for without events.
MOMENTS = ("passages", "token", "answer", "answer without events")
BATCHES = re.compile(r'^openbook_batch_size_(sum|count|bucket)(?:\{le="([^"]+)"\})? (\S+)$', re.MULTILINE)


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
    model: ModelKind = option("token", "RAG-Token or RAG-Sequence.")
    num_beams: int = option(4, "Width of the beam search; 1 is greedy.", min=1)
    max_new_tokens: int = option(32, "Tokens of an answer at most.", min=1)

    @property
    def fields(self) -> dict[str, Any]:
        """Of the bodies of POST /answer."""
        return {name: getattr(self, name) for name in ("n_docs", "model", "num_beams", "max_new_tokens")}


def measure_http(settings: Settings, options: Clients) -> Report:
    """Serve the index of the settings in this process, and ask it as one client and as many."""
    # the process of the clients imports this file too
    import torch

    from openbook.api.app import create_app
    from openbook.api.server import serving
    from openbook_lab.evaluation.leaders import leader_questions

    quieten_libraries()
    texts = [one.text for one in leader_questions()]
    random.Random(0).shuffle(texts)
    bodies = [{"question": text, **options.fields} for text in texts]
    settings = settings.model_copy(update={"host": "127.0.0.1", "port": 0, "follow_s": 0.0})
    app = create_app(settings)
    with serving(app, settings) as port, ClientProcess(port, bodies) as clients, ProgressBar() as progress:
        services: Services = app.state.services
        overhead = measure_overhead(services, clients, texts, options, progress.update)
        heard = measure_streams(clients, options, progress.update)
        loads = measure_load(app.state.telemetry, services, clients, texts, options, progress.update)
        index = services.live.now()
    return Report(
        "bench http",
        {
            "checkpoint": services.engine.checkpoint_name,
            "index": index.version if index is not None else "",
            **options.fields,
            "workers": settings.workers,
            "max_batch": settings.max_batch,
            "threads": torch.get_num_threads(),
            "dtype": settings.dtype,
            "machine": machine(),
        },
        (overhead.table(), streams_table(heard), load_table(loads)),
    )


# --- clients -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reply:
    """One question as a client saw it. `computed_s` are the engine's stages as the service tells them; `problem` is the
    body of an error."""

    status: int
    began: float
    seconds: float
    computed_s: float = 0.0
    problem: str = ""


class ClientProcess(Child):
    """Asks the service on loopback at `port` the questions `bodies`, one after the other and again from the first."""

    def __init__(self, port: int, bodies: Sequence[dict[str, Any]]) -> None:
        super().__init__(_client, port, [json.dumps(body).encode() for body in bodies])

    def ask(self, number: int) -> Reply:
        """One question, over a connection that stays open."""
        reply: Reply = self.request((number,))
        return reply

    def hear(self, number: int) -> dict[str, float]:
        """The seconds until the first event of each name in one answer. Raises Refused without an answer."""
        heard: dict[str, float] = self.request((number, EVENTS))
        if "answer" not in heard:
            raise Refused("stream", f"A stream ended without an answer: {', '.join(heard)}.")
        return heard

    def load(self, n_clients: int, seconds: float, *, first: int = 0) -> list[Reply]:
        """As many clients at once, each of which asks again as soon as it has its answer; in no order.

        Ends when all questions asked before `seconds` had passed are answered.
        """
        replies: list[Reply] = self.request((first, n_clients, seconds))
        return replies


def _client(_: Progress, port: int, requests: list[bytes]) -> Callable[[tuple[Any, ...]], object]:
    connection = _connect(port)

    def answer(asked: tuple[Any, ...]) -> Reply | list[Reply] | dict[str, float]:
        number, *load = asked
        if load == [EVENTS]:
            return _hear(connection, requests[number % len(requests)])
        return _load(port, requests, number, *load) if load else _ask(connection, requests[number % len(requests)])

    return answer


def _load(port: int, requests: list[bytes], first: int, n_clients: int, seconds: float) -> list[Reply]:
    until = time.perf_counter() + seconds

    def client(number: int) -> list[Reply]:
        replies = []
        turn = first + number
        with closing(_connect(port)) as connection:
            while time.perf_counter() < until:
                replies.append(_ask(connection, requests[turn % len(requests)]))
                turn += n_clients
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
    seconds = time.perf_counter() - began
    if response.status != OK:
        return Reply(response.status, began, seconds, problem=content.decode(errors="replace"))
    stages = json.loads(content)["seconds"]
    return Reply(OK, began, seconds, sum(stages[stage] for stage in ("encode", "retrieve", "generate")))


def _hear(connection: HTTPConnection, request: bytes) -> dict[str, float]:
    began = time.perf_counter()
    connection.request("POST", "/answer", request, {"content-type": "application/json", "accept": EVENTS})
    heard: dict[str, float] = {}
    name = ""
    response = connection.getresponse()
    for line in response:
        if line.startswith(b"event: "):
            name = line.decode().removeprefix("event: ").strip()
        if line.startswith(b"data: "):
            heard.setdefault(name, time.perf_counter() - began)
    response.close()
    return heard


def _connect(port: int) -> HTTPConnection:
    return HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)


# --- one client --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Overhead:
    """By way, the seconds of each question, and how many of them pass outside the engine's stages."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: {way: [] for way in WAYS})
    outside: dict[str, list[float]] = field(default_factory=lambda: {way: [] for way in WAYS})

    def table(self) -> Table:
        """`added`: the time over the same question's bare call. `outside`: the time over the engine's stages for the
        same answer, without the noise between two calls."""
        bare = self.seconds[WAYS[0]]
        rows: Rows = []
        for way in WAYS:
            seconds = self.seconds[way]
            added = [one - other for one, other in zip(seconds, bare, strict=True)]
            middle = statistics.median(added)
            rows.append(
                (
                    way,
                    *(1000 * at(seconds, share) for share in (0.5, 0.9, 0.99)),
                    1000 * statistics.fmean(seconds),
                    1000 * middle,
                    1000 * statistics.fmean(added),
                    100 * middle / statistics.median(bare),
                    1000 * statistics.median(self.outside[way]),
                    100 * statistics.median(self.outside[way]) / statistics.median(bare),
                )
            )
        return Table(
            "One client, milliseconds a question",
            ("way", "p50", "p90", "p99", "mean", "added p50", "added mean", "added %", "outside p50", "outside %"),
            rows,
            digits=2,
        )


def measure_overhead(
    services: "Services", clients: ClientProcess, questions: Sequence[str], asked: Clients, progress: Progress
) -> Overhead:
    """Ask so many questions in all three ways. Raises Refused for a service that does not answer them."""
    found = Overhead()
    rounds, options = asked.questions, AnswerOptions(**asked.fields)

    def bare(number: int) -> tuple[float, float]:
        with services.live.lease() as lease:
            began = time.perf_counter()
            (answer,) = services.engine.answer([questions[number % len(questions)]], lease.snapshot, options)
            return time.perf_counter() - began, stages_s(answer.source.seconds)

    def over_http(number: int) -> tuple[float, float]:
        reply = clients.ask(number)
        check_answered(reply)
        return reply.seconds, reply.computed_s

    with asyncio.Runner() as runner:

        def in_process(number: int) -> tuple[float, float]:
            question = questions[number % len(questions)]
            began = time.perf_counter()
            answer = runner.run(services.answer_question.answer(question, options, timeout_s=TIMEOUT_S))
            return time.perf_counter() - began, stages_s(answer.source.seconds)

        ways = list(zip(WAYS, (bare, in_process, over_http), strict=True))
        for number in range(-WARM_UP, rounds):
            if number >= 0:
                progress(number, rounds, "one client")
            first = number % len(ways)
            for way, ask in [*ways[first:], *ways[:first]]:
                seconds, computed = ask(number)
                if number >= 0:
                    found.seconds[way].append(seconds)
                    found.outside[way].append(seconds - computed)
    progress(rounds, rounds, "one client")
    return found


def stages_s(seconds: StageSeconds) -> float:
    """The engine's stages, without the queue."""
    return seconds.encode + seconds.retrieve + seconds.generate


# --- streams -----------------------------------------------------------------------------------------------


def measure_streams(clients: ClientProcess, asked: Clients, progress: Progress) -> dict[str, list[float]]:
    """The seconds until each of MOMENTS, of so many answers; a moment that a stream does not have is missing."""
    found: dict[str, list[float]] = {moment: [] for moment in MOMENTS}
    for number in range(-WARM_UP, asked.questions):
        heard = clients.hear(number)
        reply = clients.ask(number)
        check_answered(reply)
        if number >= 0:
            progress(number, asked.questions, "streams")
            for moment, seconds in {**heard, MOMENTS[-1]: reply.seconds}.items():
                found[moment].append(seconds)
    progress(asked.questions, asked.questions, "streams")
    return found


def streams_table(found: dict[str, list[float]]) -> Table:
    """`share`: of the median until the whole answer of the stream."""
    whole = statistics.median(found["answer"])
    rows: Rows = [
        (
            moment if moment != "token" else "first token",
            *(1000 * at(seconds, share) for share in (0.5, 0.9, 0.99)),
            100 * statistics.median(seconds) / whole,
        )
        for moment, seconds in found.items()
        if seconds
    ]
    return Table("One client's stream, milliseconds until", ("moment", "p50", "p90", "p99", "share %"), rows, digits=2)


# --- many clients ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Load:
    """What so many clients saw in all rounds."""

    answers_a_second: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    refused: int = 0
    failed: int = 0
    batches: Counter[str] = field(default_factory=Counter)  # as batch_counts names them
    # of the processor, for an answer: by the service, and by the bare engine in batches of the same size
    service_s: list[float] = field(default_factory=list)
    engine_s: list[float] = field(default_factory=list)


def measure_load(
    telemetry: "Telemetry",
    services: "Services",
    clients: ClientProcess,
    questions: Sequence[str],
    options: Clients,
    progress: Progress,
) -> dict[int, Load]:
    """So many rounds of each number of clients, as long as the options say; after each the bare engine answers for a
    while. Seconds of the processor compare both: other work of the machine does not count."""
    numbers = options.clients
    found = {number: Load() for number in numbers}
    check_answered(clients.ask(0))
    clients.load(max(numbers), min(options.seconds, 1.0))
    steps = options.rounds * len(numbers)
    for step in range(steps):
        number = numbers[step % len(numbers)]
        progress(step, steps, "clients")
        load, before = found[number], telemetry.render().decode()
        began = time.process_time()
        replies = clients.load(number, options.seconds, first=step)
        spent = time.process_time() - began
        after = telemetry.render().decode()
        _add(load, replies, before, after)
        answered = sum(one.status == OK for one in replies)
        sizes = batch_sizes(batch_counts(after) - batch_counts(before))
        load.service_s.append(spent / answered if answered else math.nan)
        load.engine_s.append(_bare_seconds(services, [*questions[step:], *questions[:step]], sizes, options))
    progress(steps, steps, "clients")
    return found


def batch_sizes(counts: Counter[str]) -> list[int]:
    """The size of each batch that `batch_counts` tells of, in no order; the largest of its bucket."""
    buckets = (
        (name.split("-")[-1] or name.rstrip("-"), n) for name, n in counts.items() if name not in ("sum", "count")
    )
    sizes = [int(size) for size, n in buckets for _ in range(n)]
    random.Random(0).shuffle(sizes)
    return sizes


def _bare_seconds(services: "Services", questions: Sequence[str], sizes: Sequence[int], asked: Clients) -> float:
    """Of the processor, for an answer of the bare engine in batches of these sizes."""
    answered, options, following = 0, AnswerOptions(**asked.fields), cycle(sizes or [1])
    with services.live.lease() as lease:
        began = time.process_time()
        while time.process_time() - began < asked.seconds / 2:
            batch = [questions[(answered + number) % len(questions)] for number in range(next(following))]
            answered += len(services.engine.answer(batch, lease.snapshot, options))
        return (time.process_time() - began) / answered


def load_table(found: dict[int, Load]) -> Table:
    """Rates are medians of the rounds; "times one" is against the same round's smallest number of clients. `engine`:
    the processor's time for an answer that the bare engine takes in batches of the same sizes, as a share of the
    service's."""
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
                ", ".join(f"{size}: {n}" for size, n in load.batches.items() if n and size not in ("sum", "count")),
                load.refused,
                load.failed,
                1000 * statistics.median(load.service_s),
                100 * statistics.median(b / a for a, b in zip(load.service_s, load.engine_s, strict=True)),
            )
        )
    return Table(
        "Clients at once",
        (
            *("clients", "answers/s", f"times {min(found)}", "p50 ms", "p90 ms", "p99 ms"),
            *("batch mean", "batches by size", "refused", "failed", "processor ms an answer", "engine %"),
        ),
        rows,
        digits=2,
    )


def _add(load: Load, replies: Sequence[Reply], before: str, after: str) -> None:
    answered = [one for one in replies if one.status == OK]
    ended = max(one.began + one.seconds for one in replies)
    load.answers_a_second.append(len(answered) / (ended - min(one.began for one in replies)))
    load.seconds += [one.seconds for one in answered]
    load.refused += sum(one.status == REFUSED for one in replies)
    load.failed += sum(one.status not in (OK, REFUSED) for one in replies)
    load.batches.update(batch_counts(after))
    load.batches.subtract(batch_counts(before))


def check_answered(reply: Reply) -> None:
    """Raise Refused for a reply that is not an answer."""
    if reply.status != OK:
        raise Refused(str(reply.status), reply.problem, status=reply.status)


def batch_counts(metrics: str) -> Counter[str]:
    """How many batches of each size a scrape of the metrics holds, by bucket: "1", "2", "5-6" and so on.

    "count" is all batches, "sum" the questions in them.
    """
    counts: Counter[str] = Counter()
    smallest, so_far = 1, 0
    for name, bound, text in BATCHES.findall(metrics):
        number = int(float(text))
        if name != "bucket":
            counts[name] = number
            continue
        size = f"{smallest}-"
        if bound != "+Inf":
            largest = int(float(bound))
            size = str(largest) if largest == smallest else f"{smallest}-{largest}"
            smallest = largest + 1
        counts[size] = number - so_far
        so_far = number
    return counts


def at(values: Sequence[float], share: float) -> float:
    """The quantile: the smallest value that `share` of the values do not exceed; nan without any."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan
