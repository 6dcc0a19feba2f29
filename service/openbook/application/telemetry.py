"""Every Prometheus instrument, in a registry of this object's own. The only import of prometheus_client.

Label sets are bounded: routes are the templates that the service declares, outcomes are "ok", "cancelled" and the
codes of errors, versions are those that are open.
"""

import logging
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from openbook.application.admission import WorkPool
from openbook.application.live_index import LiveIndex
from openbook.entities import Answer, StageSeconds

# A retrieval takes milliseconds, an answer of a large generator on a small machine half a minute.
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.6, 1.0, 2.0, 4.0, 8.0, 15.0, 20.0, 30.0, 60.0)
SWAP_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
NATS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
# A checkpoint that knows when it cannot answer gives mostly next to nothing.
NO_ANSWER = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
LOG_PROBS = (-50.0, -30.0, -20.0, -15.0, -10.0, -7.5, -5.0, -4.0, -3.0, -2.0, -1.5, -1.0, -0.5, -0.25, -0.1, 0.0)
BATCHES = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0)
# From a thread that is free to a queue in front of a slow generator.
WAITS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

# When each number began: a series for every series, which nothing of ours reads.
CREATED = re.compile(rb"^(?:# \w+ )?openbook_\w+_created[ {].*\n", re.MULTILINE)

# receives the outcome, the version and the seconds of each stage
SwapListener = Callable[[str, str | None, Mapping[str, float]], None]

logger = logging.getLogger(__name__)


class Telemetry:
    """What the service tells Prometheus. Safe to call from any thread; two objects never share a number."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
            return Histogram(name, text, labels, buckets=buckets, registry=registry)

        self._requests = counter("openbook_requests", "Requests by route and outcome", "route", "outcome")
        self._stages = histogram("openbook_stage_seconds", "Seconds of a question in each stage", SECONDS, "stage")
        self._first_token = histogram(
            "openbook_first_token_seconds", "Seconds until a streamed answer had its first token", SECONDS
        )
        self._batch = histogram("openbook_batch_size", "Questions computed together", BATCHES)
        self._waits = histogram(
            "openbook_queue_wait_seconds",
            "Seconds from the admission of a question until a thread took it up, whatever became of it",
            WAITS,
        )
        self._swaps = counter("openbook_swaps", "Swaps of the index by outcome", "outcome")
        self._swap_seconds = histogram(
            "openbook_swap_seconds", "Seconds of a swap in each stage", SWAP_SECONDS, "stage"
        )
        self._follow_failures = counter(
            "openbook_current_follow_failures", "Attempts to serve what CURRENT names that failed, by code", "code"
        )
        self._pulled = counter("openbook_pulled_bytes", "Bytes of index versions that came from the store")
        self._entropy = histogram(
            "openbook_posterior_entropy_nats",
            "Entropy of the document posterior, mean over the tokens of an answer",
            NATS,
        )
        self._top = histogram(
            "openbook_top_passage_posterior", "Posterior of the passage that an answer owes most to", SHARES
        )
        self._log_prob = histogram("openbook_answer_log_prob", "Log-probability of the answer given", LOG_PROBS)
        self._no_answer = histogram("openbook_no_answer", "Probability that no passage answers", NO_ANSWER)
        self._abstained = counter(
            "openbook_abstained", "Answers withheld because no_answer was above the question's limit"
        )
        self._swap_listeners: list[SwapListener] = []
        # by name: what is read at each scrape
        self._watched: dict[str, Collector] = {}

    def counter(self, name: str, text: str, *labels: str) -> Callable[..., None]:
        """Count for a plug-in: call what is returned with a value of each label. Their sets must be bounded."""
        counter = Counter(name, text, labels, registry=self._registry)
        return lambda *values: counter.labels(*values).inc()

    def watch(self, live: LiveIndex, pool: WorkPool) -> None:
        """Read the index and the queue at each scrape, so that no gauge can lag behind the truth.

        What an earlier start let this watch is watched no more.
        """
        for collector in self._watched.values():
            self._registry.unregister(collector)
        self._watched.clear()
        self._watch("index", _LiveIndexCollector(live))
        self._gauge("openbook_queue_depth", "Questions that wait for a thread", pool.waiting)
        self._gauge("openbook_questions_running", "Questions being computed", pool.running)

    def watch_following(self, problem: Callable[[], object | None]) -> None:
        """Tell at each scrape whether what CURRENT names is served; `problem` is None where it is."""
        text = "1 while what CURRENT names is served, 0 while it cannot be"
        self._gauge("openbook_following_ok", text, lambda: problem() is None)

    def watch_memory(self, free: Callable[[], int]) -> None:
        """Tell at each scrape how many bytes one more index might take."""
        text = "Bytes that the system, or the limit on this container, leaves; pages of files count as left"
        self._gauge("openbook_memory_free_bytes", text, free)

    def _gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        gauge = Gauge(name, text, registry=None)
        gauge.set_function(read)
        self._watch(name, gauge)

    def _watch(self, name: str, collector: Collector) -> None:
        if name in self._watched:
            self._registry.unregister(self._watched[name])
        self._registry.register(collector)
        self._watched[name] = collector

    def on_swap(self, listener: SwapListener) -> None:
        """Call `listener` at the end of every swap that is counted, in the swap's thread. Its errors are logged."""
        self._swap_listeners.append(listener)

    def count_request(self, route: str, outcome: str) -> None:
        self._requests.labels(route, outcome).inc()

    def observe_stages(self, seconds: StageSeconds) -> None:
        for stage, value in asdict(seconds).items():
            # exactly zero is a stage that this kind of question does not have
            if value:
                self._stages.labels(stage).observe(value)

    def observe_first_token(self, seconds: float) -> None:
        self._first_token.observe(seconds)

    def observe_batch(self, waits: Sequence[float]) -> None:
        """A batch is begun of questions that waited so many seconds each."""
        self._batch.observe(len(waits))
        for wait in waits:
            self._waits.observe(wait)

    def observe_answer(self, answer: Answer) -> None:
        """How sure the answer is, and of which passage."""
        self._log_prob.observe(answer.answers[0].log_prob)
        self._no_answer.observe(answer.no_answer)
        if answer.abstained:
            self._abstained.inc()
        if answer.passages:
            self._top.observe(max(passage.posterior for passage in answer.passages))
        if answer.tokens:
            entropies = [_entropy(token.posterior) for token in answer.tokens]
            self._entropy.observe(sum(entropies) / len(entropies))

    def count_swap(self, outcome: str, seconds: Mapping[str, float], *, version: str | None = None) -> None:
        """A swap to `version` has ended. The version is no label: a client may ask for any name."""
        self._swaps.labels(outcome).inc()
        for stage, value in seconds.items():
            self._swap_seconds.labels(stage).observe(value)
        for listener in self._swap_listeners:
            try:
                listener(outcome, version, seconds)
            except Exception:
                # the swap has ended as it has ended
                logger.exception("a listener of swaps failed")

    def count_follow_failure(self, code: str) -> None:
        self._follow_failures.labels(code).inc()

    def count_pulled(self, n_bytes: int) -> None:
        self._pulled.inc(n_bytes)

    def render(self) -> bytes:
        """The text that a scrape reads, of type `content_type`."""
        return CREATED.sub(b"", generate_latest(self._registry))


class _LiveIndexCollector(Collector):
    """Gauges whose labels come and go with the versions that are open."""

    def __init__(self, live: LiveIndex) -> None:
        self._live = live

    def collect(self) -> Iterable[Metric]:
        now = self._live.now()
        info = GaugeMetricFamily(
            "openbook_index_info", "1 for the version that is live", labels=["version", "snapshot_date"]
        )
        if now is not None:
            info.add_metric([now.version, now.snapshot_date or ""], 1)
            yield GaugeMetricFamily("openbook_index_generation", "Swaps so far", now.generation)
        yield info
        held = GaugeMetricFamily("openbook_index_resident_bytes", "Bytes held by each open version", labels=["version"])
        sizes: defaultdict[str, int] = defaultdict(int)
        for resident in self._live.residents():
            # a version that was swapped for itself is open twice for a while
            sizes[resident.index.version] += resident.bytes
        for version, size in sizes.items():
            held.add_metric([version], size)
        yield held


def _entropy(posterior: Iterable[float]) -> float:
    return -sum(share * math.log(share) for share in posterior if share > 0)
