"""Spans of requests and of swaps for an OpenTelemetry collector.

OpenTelemetry is imported only when a collector is named, which is an error without the extra `tracing`.
A span is made once its request or swap has ended, from the times in the access log: no thread that computes knows of
tracing, and a span cannot differ from the log. A stage that runs twice, as `encode` does for the question and then for
its passages, is one span; the stages lie end to end.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from openbook import __version__
from openbook.entities import Answer, Retrieval, Scores
from openbook.errors import SettingInvalid

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

# The stages of a question in the order in which they begin, as the access log names them.
STAGES = ("queue", "encode", "retrieve", "generate")
# Outcomes that are no fault of the service.
NO_FAULT = ("ok", "not_durable", "cancelled")
# The attribute that tells Phoenix, and others that read OpenInference, what a span is.
KIND = "openinference.span.kind"
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

    def request(
        self, facts: Mapping[str, Any], headers: Mapping[str, str], found: Answer | Scores | Retrieval | None = None
    ) -> str:
        """The span of a request that has just ended, with a child for each of its stages. Returns the trace's id.

        `facts` are the facts of the access log, `found` is what one question came to. A `traceparent` among the headers
        names the span's parent.
        """
        from opentelemetry.trace import SpanKind, format_trace_id

        span = self._ended_span(
            f"{facts['method']} {facts['route']}",
            facts["seconds"],
            {stage: facts.get(f"{stage}_s", 0.0) for stage in STAGES},
            failure=facts["outcome"] if facts["status"] >= FIRST_FAULT_STATUS else None,
            context=self._propagator.extract(headers),
            described=_described(found) if found else {},
            kind=SpanKind.SERVER,
            attributes=_attributes(facts) | ({KIND: "CHAIN"} if found else {}),
        )
        trace_id: str = format_trace_id(span.get_span_context().trace_id)
        return trace_id

    def swap(self, outcome: str, version: str | None, seconds: Mapping[str, float]) -> None:
        """The span of a swap that has just ended, with a child for each stage.

        It is a trace of its own: a swap outlives its request, and a swap that follows CURRENT has none.
        """
        from opentelemetry.context import Context

        self._ended_span(
            "swap",
            seconds.get("total", 0.0),
            {f"swap.{stage}": spent for stage, spent in seconds.items() if stage != "total"},
            failure=outcome if outcome not in NO_FAULT else None,
            # empty: a span that is current in this thread is not the parent
            context=Context(),
            attributes={"openbook.index.version": version or "", "openbook.outcome": outcome},
        )

    def close(self) -> None:
        """Send what is left, for a few seconds at most."""
        self._provider.shutdown()

    def _ended_span(
        self,
        name: str,
        seconds: float,
        stages: Mapping[str, float],
        *,
        failure: str | None,
        described: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
        **given: Any,
    ) -> Any:
        """A span of so many seconds that ends now. Each stage is a child, with its attributes in `described`."""
        from opentelemetry.trace import Status, StatusCode, set_span_in_context

        ended = self._now_ns()
        begun = ended - _ns(seconds)
        span = self._tracer.start_span(name, start_time=begun, **given)
        inside = set_span_in_context(span)
        for stage, spent in stages.items():
            # exactly zero is a stage that this kind of request does not have
            if spent:
                child = self._tracer.start_span(
                    stage, context=inside, start_time=begun, attributes=described.get(stage)
                )
                begun += _ns(spent)
                child.end(begun)
        if failure is not None:
            span.set_status(Status(StatusCode.ERROR, failure))
        span.end(ended)
        return span


def traces_to(url: str | None) -> Traces | None:
    """Traces that go to the OTLP collector at `url`; None without one. Raises SettingInvalid without the extra.

    A thread of its own sends them, and drops them where the collector does not keep up.
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
    # not the process's provider: other code in the process sends its spans elsewhere
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


def _described(found: Answer | Scores | Retrieval) -> dict[str, dict[str, Any]]:
    """The attributes of each stage's span, by OpenTelemetry's GenAI names and OpenInference's. They hold no text."""
    model = found.source.checkpoint
    ranked = [{"id": one.passage.passage_id, "score": one.doc_score} for one in found.passages]
    named = {"gen_ai.provider.name": "openbook", "gen_ai.request.model": model}
    retrieval = {
        "gen_ai.operation.name": "retrieval",
        "gen_ai.data_source.id": found.source.index.version,
        "gen_ai.retrieval.documents": json.dumps(ranked),
    }
    documents = {
        f"retrieval.documents.{number}.document.{name}": value
        for number, one in enumerate(ranked)
        for name, value in one.items()
    }
    generation: dict[str, Any] = {"gen_ai.operation.name": "text_completion", "llm.model_name": model}
    if isinstance(found, Answer):
        read, written = found.n_read, len(found.tokens)
        generation |= {"gen_ai.usage.input_tokens": read, "gen_ai.usage.output_tokens": written}
        generation |= {"llm.token_count.prompt": read, "llm.token_count.completion": written}
    return {
        "encode": {KIND: "EMBEDDING", "gen_ai.operation.name": "embeddings", "embedding.model_name": model, **named},
        # a span keeps its last 128 attributes: where passages are many, their own go
        "retrieve": {**documents, KIND: "RETRIEVER", **retrieval, **named},
        "generate": {KIND: "LLM", **generation, **named},
    }


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
