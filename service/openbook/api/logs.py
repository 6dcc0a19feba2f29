"""One line for each event on standard error: a JSON object, or for a terminal the same as text."""

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal

FACTS = "facts"

LogFormat = Literal["json", "text"]


class JsonFormatter(logging.Formatter):
    """Time, level, logger and message, and whatever was logged as `extra={"facts": {...}}`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_facts(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextFormatter(logging.Formatter):
    """Time, level, logger, message and `name=value` for each fact; a traceback follows on lines of its own.

    Whatever a client may have written is quoted as in JSON, so that nobody can write a line that was never logged.
    """

    def format(self, record: logging.LogRecord) -> str:
        facts = "".join(f" {name}={_quoted(value)}" for name, value in _facts(record).items())
        line = f"{_time(record)} {record.levelname.lower():<7} {record.name}: {_one_line(record.getMessage())}{facts}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def configure_logging(level: str, log_format: LogFormat = "json") -> None:
    """For a process that serves. A library that only imports the app keeps its own logging."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # its one line a request says less than ours
    logging.getLogger("uvicorn.access").disabled = True


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _facts(record: logging.LogRecord) -> Mapping[str, object]:
    facts: Mapping[str, object] = getattr(record, FACTS, {})
    return facts


def _quoted(value: object) -> str:
    """As it is where it is one plain word, else as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if text.isascii() and text.isprintable() and not set(text) & set(' "=') and text else json.dumps(text)


def _one_line(message: str) -> str:
    return message if message.isprintable() else json.dumps(message)[1:-1]
