import json
import logging
import sys
from collections.abc import Callable

import pytest
from starlette.testclient import TestClient

from openbook.api.logs import JsonFormatter, TextFormatter


def line_of(**changed: object) -> dict[str, object]:
    record = logging.LogRecord("a.logger", logging.WARNING, "file.py", 1, "%d things", (3,), None)
    vars(record).update(changed)
    line: dict[str, object] = json.loads(JsonFormatter().format(record))
    return line


def test_a_line_is_one_json_object_with_its_facts() -> None:
    line = line_of(facts={"request_id": "id-1", "seconds": 0.5})
    assert str(line.pop("time")).endswith("+00:00")
    assert line == {
        "level": "warning",
        "logger": "a.logger",
        "message": "3 things",
        "request_id": "id-1",
        "seconds": 0.5,
    }


def test_an_exception_stays_on_its_line() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        text = JsonFormatter().format(logging.LogRecord("a", logging.ERROR, "file.py", 1, "broken", (), sys.exc_info()))
    assert "\n" not in text
    assert "ValueError: two\nlines" in json.loads(text)["exception"]


def test_what_json_cannot_say_is_said_as_text() -> None:
    assert line_of(facts={"path": object})["path"] == "<class 'object'>"


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


def test_the_line_of_a_question_has_its_version_and_its_times_and_not_what_was_asked(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    facts = facts_of_a_question(client, caplog)
    assert {"request_id", "status", "outcome", "seconds", "index", "generation"} <= set(facts)
    assert {"queue_s", "encode_s", "retrieve_s", "generate_s"} <= set(facts)
    assert "the secret king" not in str(caplog.records[-1].__dict__)


def test_the_question_is_logged_where_the_setting_says_so(
    make_client: Callable[..., TestClient], caplog: pytest.LogCaptureFixture
) -> None:
    assert facts_of_a_question(make_client(log_questions=True), caplog)["question"] == "the secret king ?"


def test_probes_that_go_well_are_no_news(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "openbook.access"):
        for path in ("/healthz", "/readyz", "/metrics", "/index", "/nowhere"):
            client.get(path)
        client.post("/readyz")
    levels = [
        (record.levelname, vars(record)["facts"]["status"]) for record in caplog.records if "facts" in vars(record)
    ]
    assert levels == [("DEBUG", 200)] * 3 + [("INFO", 200), ("INFO", 404), ("INFO", 405)]


def facts_of_a_question(client: TestClient, caplog: pytest.LogCaptureFixture) -> dict[str, object]:
    with caplog.at_level(logging.INFO, "openbook.access"):
        assert client.post("/retrieve", json={"question": "the secret king ?"}).status_code == 200
    (record,) = [one for one in caplog.records if one.name == "openbook.access"]
    facts: dict[str, object] = vars(record)["facts"]
    return facts
