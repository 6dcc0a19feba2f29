import json
import logging
import os
import pty
import subprocess
import sys

import pytest
from starlette.testclient import TestClient

from openbook.api.logs import JsonFormatter, TextFormatter
from tests.openbook.api.conftest import MakeClient


def line_of(**changed: object) -> dict[str, object]:
    record = logging.LogRecord("a.logger", logging.WARNING, "file.py", 1, "%d things", (3,), None)
    vars(record).update(changed)
    line: dict[str, object] = json.loads(JsonFormatter().format(record))
    return line


def test_a_line_is_one_json_object_with_its_facts() -> None:
    line = line_of(facts={"request_id": "id-1", "seconds": 0.5})
    assert str(line.pop("time")).endswith("+00:00")
    said = {"level": "warning", "logger": "a.logger", "message": "3 things"}
    assert line == {**said, "request_id": "id-1", "seconds": 0.5}


def test_an_exception_stays_on_its_line() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        text = JsonFormatter().format(logging.LogRecord("a", logging.ERROR, "file.py", 1, "broken", (), sys.exc_info()))
    assert "\n" not in text
    assert "ValueError: two\nlines" in json.loads(text)["exception"]


def test_what_json_cannot_say_is_said_as_text() -> None:
    assert line_of(facts={"path": object})["path"] == "<class 'object'>"


def test_a_terminal_gets_text_and_all_else_json() -> None:
    command = (sys.executable, "-c", "from openbook.api.logs import *; configure_logging('info'); logging.info('up')")
    master, terminal = pty.openpty()
    try:
        subprocess.run(command, stderr=terminal, check=True)
        shown = os.read(master, 1000).decode()
    finally:
        os.close(terminal)
        os.close(master)
    assert shown.split(" ", 1)[1] == "info    root: up\r\n"
    piped = subprocess.run(command, stderr=subprocess.PIPE, check=True)
    assert json.loads(piped.stderr)["message"] == "up"


def text_of(message: str, **facts: object) -> str:
    record = logging.LogRecord("a.logger", logging.WARNING, "file.py", 1, message, (), None)
    record.facts = facts
    return TextFormatter().format(record)


def test_a_line_of_text_says_the_same() -> None:
    time, _, rest = text_of("3 things", request_id="id-1", seconds=0.5).partition(" ")
    assert time.endswith("+00:00")
    assert rest == "warning a.logger: 3 things request_id=id-1 seconds=0.5"


@pytest.mark.parametrize("said", ["a\nb", "a\rb", "a\x1b[31mb", "a\u2028b", "a b=c", 'a"b', ""])
def test_nobody_can_write_a_line_of_text_that_was_never_logged(said: str) -> None:
    line = text_of("asked", question=said)
    assert line.isprintable()
    assert line.endswith(f" question={json.dumps(said)}")
    assert text_of(said or "-").isprintable()


@pytest.mark.parametrize("log_questions", [False, True])
def test_the_access_log_has_the_question_only_where_the_setting_says_so(
    make_client: MakeClient, caplog: pytest.LogCaptureFixture, log_questions: bool
) -> None:
    client = make_client(log_questions=log_questions)
    with caplog.at_level(logging.INFO, "openbook.access"):
        client.post("/answer", json={"question": "the secret king ?"}, headers={"x-request-id": "id-1"})
        client.post("/answer", json={"question": ""}, headers={"x-request-id": "id-2"})
    answered, refused = (vars(record)["facts"] for record in caplog.records if record.name == "openbook.access")
    expected = {"request_id": "id-1", "method": "POST", "route": "/answer", "status": 200, "outcome": "ok"}
    expected |= {"index": "tiny-2016", "generation": 0}
    assert answered | expected == answered
    assert {"seconds", "queue_s", "encode_s", "retrieve_s", "generate_s"} <= set(answered)
    assert answered["generate_s"] > 0
    assert (refused["request_id"], refused["status"], refused["outcome"]) == ("id-2", 422, "invalid_request")
    assert answered.get("question") == ("the secret king ?" if log_questions else None)
    assert ("the secret king" in str([vars(record) for record in caplog.records])) is log_questions


def test_probes_polls_and_static_files_that_go_well_are_no_news(
    reader: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    quiet = ("/healthz", "/health", "/readyz", "/metrics", "/index", "/index/swap", "/static/main.js")
    with caplog.at_level(logging.DEBUG, "openbook.access"):
        for path in (*quiet, "/", "/nowhere", "/static/nothing.js"):
            reader.get(path)
        reader.post("/readyz")
        # a swap is news, however it ends
        reader.post("/index/swap", json={"version": "tiny-2018"})
    lines = [record for record in caplog.records if "facts" in vars(record)]
    levels = [(record.levelname, vars(record)["facts"]["status"]) for record in lines]
    info = [("INFO", status) for status in (200, 404, 404, 405, 401)]
    assert levels == [("DEBUG", 200)] * len(quiet) + info
