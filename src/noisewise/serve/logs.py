"""Structured logs: a line of JSON for every event, in which nothing that came in can act."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from typing import Any

from noisewise.errors import printable

LONGEST = 500  # characters of a text in a log
LOGGER = logging.getLogger("noisewise.serve")


class JsonLines(logging.Formatter):
    """A record as one line of JSON; text is escaped, so that no terminal obeys it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        entry: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "pid": os.getpid(),
            "event": safe(record.getMessage()),
        }
        entry |= {name: safe(value) for name, value in getattr(record, "facts", {}).items()}
        if record.exc_info:
            entry["error"] = safe(self.formatException(record.exc_info), 8 * LONGEST)
        return json.dumps(entry)


def safe(value: Any, longest: int = LONGEST) -> Any:
    """Return text that is short and cannot act; numbers and the like as they are."""
    if value is None or isinstance(value, bool | int | float):
        return value
    return printable(str(value)[:longest])


def log(event: str, level: int = logging.INFO, *, trace: bool = False, **facts: Any) -> None:
    """Write an event, with facts by name."""
    LOGGER.log(level, event, extra={"facts": facts}, exc_info=trace)


def set_up(level: str = "info") -> None:
    """Send events to the standard error stream, a line of JSON each; uvicorn's errors too."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for logger in (LOGGER, logging.getLogger("uvicorn.error")):
        logger.handlers[:] = [handler]
        logger.propagate = False
    LOGGER.setLevel(level.upper())
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
