import json
import logging
import sys

from service.api.logs import JsonFormatter


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
