from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from openbook.application.telemetry import Telemetry
from openbook_client import Refused
from openbook_lab.benchmarks.http import (
    BARE,
    HTTP,
    OK,
    ClientProcess,
    Load,
    batch_counts,
    load_table,
    one_client_table,
)

PROBLEM = (
    '{"type": "t", "title": "Overloaded", "status": 503, "detail": "overloaded", "code": "overloaded", '
    '"request_id": null}'
)


class Parrot(BaseHTTPRequestHandler):
    """Answers every third question of a busy service with a refusal."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    asked = 0

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        Parrot.asked += 1
        refused = Parrot.asked % 3 == 0
        content = PROBLEM.encode() if refused else b"{}"
        self.send_response(503 if refused else 200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def clients() -> Iterator[ClientProcess]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Parrot)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    with ClientProcess(server.server_address[1], [{"question": "a"}, {"question": "b"}]) as clients:
        yield clients
    server.shutdown()
    thread.join()
    server.server_close()


def test_clients_ask_on_until_the_time_is_up_and_keep_what_they_were_told(clients: ClientProcess) -> None:
    asked = clients.load(3, 0.1)
    assert {one.status for one in asked} == {200, 503}
    assert {one.problem for one in asked if one.status != OK} == {PROBLEM}
    assert len(asked) > 6
    assert all(one.seconds > 0 for one in asked)


def test_a_refused_question_is_no_answer_to_be_timed(clients: ClientProcess) -> None:
    Parrot.asked = 0
    assert all(clients.ask(number) > 0 for number in range(2))
    with pytest.raises(Refused, match="overloaded"):
        clients.ask(2)


def test_batches_and_their_questions_are_counted() -> None:
    telemetry = Telemetry()
    for size in (1, 1, 2, 5, 8, 100):
        telemetry.observe_batch([0.0] * size)
    assert batch_counts(telemetry.render().decode()) == {"count": 6, "sum": 117}


def test_what_is_added_is_told_question_by_question() -> None:
    bare = [0.1, 0.2, 0.9]
    found = {BARE: bare, HTTP: [one + 0.004 for one in bare]}
    table = one_client_table(found)
    rows = {str(row[0]): dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert list(rows) == [BARE, HTTP]
    assert rows[HTTP]["added p50"] == pytest.approx(4)
    assert rows[HTTP]["added %"] == pytest.approx(2)
    assert rows[BARE]["p99"] == pytest.approx(900)


def test_rates_are_compared_within_their_round() -> None:
    found = {
        1: Load([10.0, 5.0, 20.0], [0.1], batches=Counter({"sum": 3, "count": 3})),
        8: Load([30.0, 15.0, 30.0], [0.1, 0.3], refused=1, batches=Counter({"sum": 8, "count": 2})),
    }
    table = load_table(found)
    eight = dict(zip(table.columns, table.rows[1], strict=True))
    assert (eight["times 1"], eight["batch mean"], eight["refused"], eight["p90 ms"]) == (3.0, 4.0, 1, 300)
