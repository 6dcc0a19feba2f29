"""One JSON object a line, on standard error."""

import json
import logging
from datetime import UTC, datetime

FACTS = "facts"


class JsonFormatter(logging.Formatter):
    """Time, level, logger and message, and whatever was logged as `extra={"facts": {...}}`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, FACTS, {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure_logging(level: str) -> None:
    """For a process that serves. A library that only imports the app keeps its own logging."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # its one line a request says less than ours
    logging.getLogger("uvicorn.access").disabled = True
