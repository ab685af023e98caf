"""The broker's log: one line for each record, whatever clients put into it."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from twinbus.cli.log import JsonLines, TextLines

# What breaks a line, moves a cursor, reorders text, or ends a terminal's command.
HOSTILE = "orders\r\n2026-01-01 CRITICAL root: forged\x1b[2J\x9b31m\u202etxt.exe\u2028\x00\x7f"


def record(
    text: str, *, fields: dict[str, object] | None = None, error: BaseException | None = None
) -> logging.LogRecord:
    info = None if error is None else (type(error), error, error.__traceback__)
    made = logging.LogRecord("twinbus.broker.x", logging.WARNING, "x.py", 1, "refused %s", (text,), info)
    if fields is not None:
        made.fields = fields
    return made


def test_text_of_clients_stays_on_its_line_and_harmless() -> None:
    line = TextLines().format(record(HOSTILE))
    assert line.isprintable()
    assert "\\r\\n2026-01-01 CRITICAL root: forged\\x1b[2J\\x9b31m\\u202etxt.exe\\u2028\\x00\\x7f" in line


def test_a_traceback_follows_its_line() -> None:
    try:
        raise ValueError("wrong")
    except ValueError as error:
        first, *others = TextLines().format(record("it", error=error)).splitlines()
    assert first.endswith("WARNING twinbus.broker.x: refused it")
    assert others[0].startswith("Traceback")
    assert others[-1] == "ValueError: wrong"


def test_json_has_the_fields_of_a_record() -> None:
    line = JsonLines().format(record(HOSTILE, fields={"address": "127.0.0.1", "reason": "ExpiredToken"}))
    assert line.isprintable()
    assert line.isascii()
    told = json.loads(line)
    assert told["message"] == f"refused {HOSTILE}"
    assert (told["level"], told["logger"]) == ("warning", "twinbus.broker.x")
    assert (told["address"], told["reason"]) == ("127.0.0.1", "ExpiredToken")
    assert "traceback" not in told
    assert told["time"].endswith("+00:00")


def test_json_has_the_traceback() -> None:
    try:
        sys.exit("wrong")
    except SystemExit as error:
        told = json.loads(JsonLines().format(record("it", error=error)))
    assert told["traceback"].endswith("SystemExit: wrong")


@pytest.mark.parametrize("text", ["orders", "", "Bücher/日本", "a b"])
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert TextLines().format(record(text)).endswith(f"refused {text}")
