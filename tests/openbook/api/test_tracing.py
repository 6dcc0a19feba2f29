"""Spans as a collector gets them, and that without a collector there is nothing of them."""

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from openbook.api.app import create_app
from openbook.api.tracing import Traces, traces_to
from openbook.errors import SettingInvalid
from openbook.rag.engine import RagEngine
from openbook.settings import Settings
from tests.openbook.api.conftest import ADMIN, client_of
from tests.places import ROOT
from tests.waiting import PATIENCE_S

export = pytest.importorskip("opentelemetry.sdk.trace.export", reason="the extra tracing is not installed")
sdk = pytest.importorskip("opentelemetry.sdk.trace")
memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")

FACTS = {
    "request_id": "id-1",
    "method": "POST",
    "route": "/answer",
    "status": 200,
    "outcome": "ok",
    "seconds": 2.0,
    "index": "wiki-2016",
    "generation": 3,
    "queue_s": 0.25,
    "encode_s": 0.5,
    "retrieve_s": 0.125,
    "generate_s": 1.0,
}
END_NS = 10_000_000_000
PARENT = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"


@pytest.fixture
def spans() -> Iterator[Callable[[Callable[[Traces], object]], dict[str, Any]]]:
    exporter = memory.InMemorySpanExporter()
    provider = sdk.TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    traces = Traces(provider, now_ns=lambda: END_NS)

    def made(work: Callable[[Traces], object]) -> dict[str, Any]:
        work(traces)
        return {span.name: span for span in exporter.get_finished_spans()}

    yield made
    traces.close()


def times(span: Any) -> tuple[float, float]:
    return (span.start_time - END_NS) / 1e9, (span.end_time - END_NS) / 1e9


def test_a_request_is_a_span_and_its_stages_lie_in_it_end_to_end(spans: Any) -> None:
    made = spans(lambda traces: traces.request(FACTS, {}))
    assert {name: times(span) for name, span in made.items()} == {
        "POST /answer": (-2.0, 0.0),
        "queue": (-2.0, -1.75),
        "encode": (-1.75, -1.25),
        "retrieve": (-1.25, -1.125),
        "generate": (-1.125, -0.125),
    }
    request = made["POST /answer"]
    assert all(span.parent == request.context for name, span in made.items() if name != "POST /answer")
    assert request.attributes["openbook.index.version"] == "wiki-2016"
    assert request.attributes["http.response.status_code"] == 200
    assert request.status.is_ok
    assert made["queue"].parent.span_id == request.context.span_id


def test_what_is_no_question_has_no_stages(spans: Any) -> None:
    few = {name: FACTS[name] for name in ("request_id", "method", "route", "status", "outcome", "seconds")}
    assert list(spans(lambda traces: traces.request(few, {}))) == ["POST /answer"]


def test_the_trace_of_a_caller_goes_on(spans: Any) -> None:
    made = spans(lambda traces: traces.request(FACTS, {"traceparent": PARENT}))
    assert f"{made['POST /answer'].context.trace_id:032x}" == "0123456789abcdef0123456789abcdef"
    assert f"{made['POST /answer'].parent.span_id:016x}" == "0123456789abcdef"


@pytest.mark.parametrize(("status", "failed"), [(200, False), (404, False), (499, False), (500, True), (503, True)])
def test_only_a_failure_of_the_service_is_an_error(spans: Any, status: int, failed: bool) -> None:
    made = spans(lambda traces: traces.request(FACTS | {"status": status, "outcome": "what"}, {}))
    assert (made["POST /answer"].status.description == "what") is failed


def test_a_swap_is_a_trace_of_its_own_with_its_stages(spans: Any) -> None:
    made = spans(lambda traces: traces.swap("ok", "wiki-2018", {"verify": 0.5, "flip": 0.25, "total": 0.75}))
    assert {name: times(span) for name, span in made.items()} == {
        "swap": (-0.75, 0.0),
        "swap.verify": (-0.75, -0.25),
        "swap.flip": (-0.25, 0.0),
    }
    assert made["swap"].parent is None
    assert made["swap"].attributes["openbook.index.version"] == "wiki-2018"
    assert made["swap"].status.is_ok


def test_a_swap_that_failed_is_an_error(spans: Any) -> None:
    made = spans(lambda traces: traces.swap("index_corrupt", "wiki-2018", {"total": 0.1}))
    assert made["swap"].status.description == "index_corrupt"


@pytest.fixture
def collector() -> Iterator[tuple[str, list[bytes]]]:
    """Where OTLP goes, and what came."""
    came: list[bytes] = []

    class Collect(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            came.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Collect)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", came
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_collector_gets_the_spans_of_questions_and_swaps_and_no_question(
    settings: Settings, engine: RagEngine, collector: tuple[str, list[bytes]]
) -> None:
    url, came = collector
    app = create_app(settings.model_copy(update={"traces_url": url, "log_questions": True}), engine=engine)
    # what is left is sent at the end
    with client_of(app) as client:
        answered = client.post("/answer", json={"question": "the secret king ?", "max_new_tokens": 2})
        swapped = client.post("/index/swap", json={"version": "tiny-2018"}, headers=ADMIN)
        assert (answered.status_code, swapped.status_code) == (200, 200)
    said = attributes_in(came)
    assert {"POST /answer", "queue", "encode", "retrieve", "generate", "POST /index/swap", "swap", "swap.flip"} <= set(
        said
    )
    kinds = {"POST /answer": "CHAIN", "encode": "EMBEDDING", "retrieve": "RETRIEVER", "generate": "LLM"}
    assert {name: one.get("openinference.span.kind") for name, one in said.items() if name in kinds} == kinds
    answer = answered.json()
    ranked = [{"id": one["passage_id"], "score": one["doc_score"]} for one in answer["passages"]]
    assert json.loads(said["retrieve"]["gen_ai.retrieval.documents"]) == ranked
    assert said["retrieve"]["retrieval.documents.1.document.id"] == ranked[1]["id"]
    assert said["retrieve"]["gen_ai.data_source.id"] == answer["index"]["version"]
    assert said["generate"]["gen_ai.request.model"] == said["generate"]["llm.model_name"] == answer["checkpoint"]
    assert said["generate"]["gen_ai.usage.output_tokens"] == len(answer["tokens"])
    assert said["generate"]["llm.token_count.prompt"] > 0
    assert "openinference.span.kind" not in said["swap"]
    assert b"the secret king" not in b"".join(came)
    assert answer["passages"][0]["text"].encode() not in b"".join(came)
    assert b"tiny-2018" in b"".join(came)


def attributes_in(came: Sequence[bytes]) -> dict[str, dict[str, Any]]:
    """The attributes of each span that the collector got, under the span's name."""
    protocol = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    return {
        span.name: {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}
        for message in came
        for resource in protocol.ExportTraceServiceRequest.FromString(message).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    }


def test_a_collector_that_is_away_costs_the_spans_and_little_else(monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter").OTLPSpanExporter
    recorded, send = threading.Event(), exporter.export

    def late(self: object, spans: object) -> object:
        assert recorded.wait(PATIENCE_S)
        return send(self, spans)

    monkeypatch.setattr(exporter, "export", late)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        traces = traces_to(f"http://127.0.0.1:{closed.getsockname()[1]}")
        assert traces is not None
        # it does not wait for the collector
        traces.request(FACTS, {})
        recorded.set()
        began = time.monotonic()
        traces.close()
        assert time.monotonic() - began < PATIENCE_S


@pytest.mark.parametrize("url", ["127.0.0.1:4318", "grpc://127.0.0.1:4317"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(SettingInvalid, match="OPENBOOK_TRACES_URL"):
        traces_to(url)


def test_without_a_collector_nothing_of_opentelemetry_is_imported() -> None:
    asked = (
        "import sys; from openbook.api.tracing import traces_to; assert traces_to(None) is traces_to('') is None; "
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    ended = subprocess.run([sys.executable, "-c", asked], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.stdout.strip() == "[]", ended.stderr


def test_without_the_extra_the_setting_is_an_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(SettingInvalid, match=r"pip install 'openbook\[tracing\]'"):
        traces_to("http://127.0.0.1:4318")
