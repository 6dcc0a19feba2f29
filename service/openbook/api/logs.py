"""One line for each event on standard error: a JSON object, or for a terminal the same as text."""

import json
import logging
from datetime import UTC, datetime

FACTS = "facts"
# the answer, which spans describe and the access log leaves out
FOUND = "found"


class JsonFormatter(logging.Formatter):
    """Time, level, logger and message, and what the caller logs as `extra={"facts": {...}}`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, FACTS, {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextFormatter(logging.Formatter):
    """Time, level, logger, message and `name=value` for each fact; a traceback follows on lines of its own.

    What a client may have written is quoted as in JSON, so that a client cannot forge a line.
    """

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        line = f"{_time(record)} {record.levelname.lower():<7} {record.name}: "
        line += message if message.isprintable() else json.dumps(message)[1:-1]
        line += "".join(f" {name}={_quoted(value)}" for name, value in getattr(record, FACTS, {}).items())
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def configure_logging(level: str) -> None:
    """For a process that serves: text on a terminal, else JSON. A program that imports the app logs as it likes."""
    handler = logging.StreamHandler()
    handler.setFormatter(TextFormatter() if handler.stream.isatty() else JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # its one line a request says less than ours
    logging.getLogger("uvicorn.access").disabled = True


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _quoted(value: object) -> str:
    """One plain word stays as it is; anything else becomes JSON."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    plain = text and text.isascii() and text.isprintable() and not set(text) & set(' "=')
    return text if plain else json.dumps(text)
