"""Spans of requests and of swaps for an OpenTelemetry collector. Nothing of OpenTelemetry is imported before one is
named, and without the extra `tracing` naming one is an error.

A span is made when what it tells of is over, from the times that the answer carries: no thread that computes knows of
tracing, and the spans of a question cannot differ from its access log. A stage that is entered twice, as `encode` is
for the question and then for its passages, is one span of both together; the stages lie end to end.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from openbook import __version__
from openbook.errors import SettingInvalid

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

# The stages of a question in the order in which they begin, as the access log names them.
STAGES = ("queue", "encode", "retrieve", "generate")
# As outcomes of requests: none of these is a fault of the service.
NO_FAULT = ("ok", "not_durable", "cancelled")
EXPORT_TIMEOUT_S = 5
FIRST_FAULT_STATUS = 500

logger = logging.getLogger(__name__)


class Traces:
    """Turns what was measured into spans. Safe to call from any thread."""

    def __init__(self, provider: "TracerProvider", now_ns: Callable[[], int] = time.time_ns) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("openbook", __version__)
        self._propagator = TraceContextTextMapPropagator()
        self._now_ns = now_ns

    def request(self, facts: Mapping[str, Any], headers: Mapping[str, str]) -> str:
        """The span of a request that has just ended, with a child for each of its stages. Returns the trace's id.

        `facts` are those of the access log. A caller that sends `traceparent` is the parent of the span.
        """
        from opentelemetry.trace import SpanKind, format_trace_id

        ended = self._now_ns()
        begun = ended - _ns(facts["seconds"])
        span = self._tracer.start_span(
            f"{facts['method']} {facts['route']}",
            context=self._propagator.extract(headers),
            kind=SpanKind.SERVER,
            start_time=begun,
            attributes=_attributes(facts),
        )
        self._add_stages(span, {stage: facts.get(f"{stage}_s", 0.0) for stage in STAGES}, begun)
        if facts["status"] >= FIRST_FAULT_STATUS:
            self._fail(span, facts["outcome"])
        span.end(ended)
        trace_id: str = format_trace_id(span.get_span_context().trace_id)
        return trace_id

    def swap(self, outcome: str, version: str | None, seconds: Mapping[str, float]) -> None:
        """The span of a swap that has just ended, with a child for each stage.

        It is a trace of its own: a swap outlives the request that asked for it, and one that follows CURRENT had none.
        """
        from opentelemetry.context import Context

        ended = self._now_ns()
        begun = ended - _ns(seconds.get("total", 0.0))
        attributes = {"openbook.index.version": version or "", "openbook.outcome": outcome}
        # an empty context: what happens to be current in this thread is not its parent
        span = self._tracer.start_span("swap", context=Context(), start_time=begun, attributes=attributes)
        self._add_stages(span, {f"swap.{stage}": spent for stage, spent in seconds.items() if stage != "total"}, begun)
        if outcome not in NO_FAULT:
            self._fail(span, outcome)
        span.end(ended)

    def close(self) -> None:
        """Send what is left, for a few seconds at most."""
        self._provider.shutdown()

    def _add_stages(self, parent: Any, seconds: Mapping[str, float], begun: int) -> None:
        from opentelemetry.trace import set_span_in_context

        context = set_span_in_context(parent)
        for stage, spent in seconds.items():
            # exactly zero is a stage that this kind of request does not have
            if spent:
                span = self._tracer.start_span(stage, context=context, start_time=begun)
                begun += _ns(spent)
                span.end(begun)

    def _fail(self, span: Any, outcome: str) -> None:
        from opentelemetry.trace import Status, StatusCode

        span.set_status(Status(StatusCode.ERROR, outcome))


def traces_to(url: str | None) -> Traces | None:
    """Traces that go to the OTLP collector at `url`; None without one. Raises SettingInvalid without the extra.

    They are sent by a thread of their own, and dropped where the collector does not keep up.
    """
    if not url:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        reason = "needs the extra `tracing`: pip install 'openbook[tracing]'"
        raise SettingInvalid(setting="OPENBOOK_TRACES_URL", reason=reason) from error
    if not url.startswith(("http://", "https://")):
        raise SettingInvalid(setting="OPENBOOK_TRACES_URL", reason="must begin with http:// or https://")
    resource = Resource.create({SERVICE_NAME: "openbook", SERVICE_VERSION: __version__})
    # its own, and not the process's: what else in the process makes spans has its own place to send them
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint=f"{url.rstrip('/')}/v1/traces", timeout=EXPORT_TIMEOUT_S)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    logger.info("traces go to %s", url)
    return Traces(provider)


def _attributes(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Under OpenTelemetry's names where it has one. Never the question."""
    named = {
        "http.request.method": facts["method"],
        "http.route": facts["route"],
        "http.response.status_code": facts["status"],
        "openbook.request_id": facts["request_id"],
        "openbook.outcome": facts["outcome"],
    }
    if "index" in facts:
        named |= {"openbook.index.version": facts["index"], "openbook.index.generation": facts["generation"]}
    return named


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
