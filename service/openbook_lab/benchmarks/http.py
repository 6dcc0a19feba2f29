"""What the service costs beside the engine, and what it gains by answering together what waits together.

One client: each question is put to the bare engine, to the application in this process and to the service over HTTP,
one right after the other and each time in another order, so that whatever else the machine does meets all three.
Many clients: rounds of all numbers of clients, one after the other, for the same reason; a rate is compared within its
round.
"""

import asyncio
import math
import re
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from openbook.application.answer_question import AnswerQuestion
from openbook.application.live_index import LiveIndex
from openbook.application.telemetry import Telemetry
from openbook.entities import Answer, AnswerOptions
from openbook.errors import ServerRefused
from openbook.rag.engine import RagEngine
from openbook_lab.benchmarks.http_clients import OK, REFUSED, Asked, ClientProcess
from openbook_lab.evaluation.tables import Cell, Table

Progress = Callable[[int, int | None, str], None]

WAYS = ("bare engine call", "application, same process", "HTTP on loopback")
TIMEOUT_S = 600.0
# Each way, before anything counts.
WARM_UP = 3
BATCHES = re.compile(r'^openbook_batch_size_bucket\{le="([^"]+)"\} (\S+)$', re.MULTILINE)
BATCH_TOTALS = re.compile(r"^openbook_batch_size_(sum|count) (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Subject:
    """A service that runs in this process, and what it is made of."""

    engine: RagEngine
    live: LiveIndex
    answer_question: AnswerQuestion
    telemetry: Telemetry


# --- one client --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Overhead:
    """Seconds of each question by way, and what was spent on each outside the engine's own stages."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: {way: [] for way in WAYS})
    outside: dict[str, list[float]] = field(default_factory=lambda: {way: [] for way in WAYS})

    def table(self) -> Table:
        """`added`: of each question what it took more than the bare call. `outside`: what it took more than the
        stages that its own answer tells, which the noise between two calls does not blur."""
        bare = self.seconds[WAYS[0]]
        rows: list[tuple[Cell, ...]] = []
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
            tuple(rows),
            digits=2,
        )


def computed_s(answer: Answer) -> float:
    """Seconds of the engine alone."""
    parts = answer.source.seconds
    return parts.encode + parts.retrieve + parts.generate


def measure_overhead(
    subject: Subject,
    clients: ClientProcess,
    questions: Sequence[str],
    options: AnswerOptions,
    *,
    rounds: int,
    progress: Progress,
) -> Overhead:
    """Ask `rounds` questions in all three ways. Raises ServerRefused for a service that does not answer them."""
    found = Overhead()

    def bare(number: int) -> tuple[float, float]:
        with subject.live.lease() as lease:
            began = time.perf_counter()
            (answer,) = subject.engine.answer([questions[number % len(questions)]], lease.snapshot, options)
            seconds = time.perf_counter() - began
        return seconds, computed_s(answer)

    def over_http(number: int) -> tuple[float, float]:
        asked = _answered([clients.ask(number)])[0]
        return asked.seconds, asked.computed_s

    with asyncio.Runner() as runner:

        def in_process(number: int) -> tuple[float, float]:
            question = questions[number % len(questions)]
            began = time.perf_counter()
            answer: Answer = runner.run(subject.answer_question.answer(question, options, timeout_s=TIMEOUT_S))
            seconds = time.perf_counter() - began
            return seconds, computed_s(answer)

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


# --- many clients ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Load:
    """What so many clients saw in all rounds."""

    answers_a_second: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    refused: int = 0
    failed: int = 0
    batches: dict[str, float] = field(default_factory=dict)  # how many of each size, by bucket
    questions: float = 0.0
    n_batches: float = 0.0


def measure_load(
    subject: Subject,
    clients: ClientProcess,
    numbers: Sequence[int],
    *,
    seconds: float,
    rounds: int,
    progress: Progress,
) -> dict[int, Load]:
    """`rounds` times each of these numbers of clients for `seconds`."""
    found = {number: Load() for number in numbers}
    _answered([clients.ask(0)])
    clients.load(max(numbers), min(seconds, 1.0))
    steps = rounds * len(numbers)
    for step in range(steps):
        number = numbers[step % len(numbers)]
        progress(step, steps, "clients")
        before = subject.telemetry.render().decode()
        asked = clients.load(number, seconds, first=step)
        _add(found[number], asked, before, subject.telemetry.render().decode())
    progress(steps, steps, "clients")
    return found


def load_table(found: dict[int, Load]) -> Table:
    """Rates are medians of the rounds; "times one" is against the same round's smallest number of clients."""
    alone = found[min(found)].answers_a_second
    rows: list[tuple[Cell, ...]] = []
    for number, load in found.items():
        ratios = [rate / one if one else math.nan for rate, one in zip(load.answers_a_second, alone, strict=True)]
        rows.append(
            (
                number,
                statistics.median(load.answers_a_second),
                statistics.median(ratios),
                *(1000 * at(load.seconds, share) for share in (0.5, 0.9, 0.99)),
                load.questions / load.n_batches if load.n_batches else math.nan,
                ", ".join(f"{size}: {count:.0f}" for size, count in load.batches.items() if count),
                load.refused,
                load.failed,
            )
        )
    return Table(
        "Clients at once",
        (
            "clients",
            "answers/s",
            f"times {min(found)}",
            "p50 ms",
            "p90 ms",
            "p99 ms",
            "batch mean",
            "batches by size",
            "refused",
            "failed",
        ),
        tuple(rows),
        digits=2,
    )


def _add(load: Load, asked: Sequence[Asked], before: str, after: str) -> None:
    answered = [one for one in asked if one.status == OK]
    ended = max(one.began + one.seconds for one in asked)
    load.answers_a_second.append(len(answered) / (ended - min(one.began for one in asked)))
    load.seconds += [one.seconds for one in answered]
    load.refused += sum(one.status == REFUSED for one in asked)
    load.failed += sum(one.status not in (OK, REFUSED) for one in asked)
    sizes_before, sizes_after = batch_sizes(before), batch_sizes(after)
    for size, count in sizes_after.items():
        load.batches[size] = load.batches.get(size, 0.0) + count - sizes_before[size]
    totals_before, totals_after = dict(BATCH_TOTALS.findall(before)), dict(BATCH_TOTALS.findall(after))
    load.questions += float(totals_after["sum"]) - float(totals_before["sum"])
    load.n_batches += float(totals_after["count"]) - float(totals_before["count"])


def _answered(asked: Sequence[Asked]) -> Sequence[Asked]:
    for one in asked:
        if one.status != OK:
            raise ServerRefused(code=str(one.status), detail=one.problem)
    return asked


def batch_sizes(metrics: str) -> dict[str, float]:
    """How many batches of each size a scrape tells: "1", "2", "5-6" and so on, as its buckets have it."""
    sizes: dict[str, float] = {}
    smallest, so_far = 1, 0.0
    for bound, text in BATCHES.findall(metrics):
        count = float(text)
        if bound == "+Inf":
            name = f"{smallest}-"
        else:
            largest = int(float(bound))
            name = str(largest) if largest == smallest else f"{smallest}-{largest}"
            smallest = largest + 1
        sizes[name] = count - so_far
        so_far = count
    return sizes


def at(values: Sequence[float], share: float) -> float:
    """The smallest value that is not exceeded by `share` of the values; nan without any."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan
