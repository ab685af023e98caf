"""The broker's log on standard error: one line for each record, as text or as JSON.

Rules:
- Clients choose some of the text: entity names, addresses, key names. Control characters in it are shown by their code,
  so that nobody forges a line or commands a terminal.
- A traceback is ours; in text it follows its line, in JSON it is a field.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from enum import StrEnum

from twinbus.cli.view import one_line


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


def open_log(level: LogLevel, form: LogFormat) -> None:
    """Send every record from this level on to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if form is LogFormat.JSON else TextLines())
    logging.basicConfig(level=level.value.upper(), handlers=[handler])


class TextLines(logging.Formatter):
    """A line for people."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        return one_line(super().formatMessage(record))


class JsonLines(logging.Formatter):
    """A line for programs that collect logs."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            # What a record says about its subject, by name: address, policy, entity, reason.
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        # ASCII only, so every control character is escaped.
        return json.dumps(line, default=str)
