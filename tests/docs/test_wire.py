"""What docs/wire.md tells to authors of clients is what the broker does."""

from __future__ import annotations

import inspect
import re

from tests.docs.pages import ROOT
from twinbus import errors, limits
from twinbus.amqp.connection import Connection
from twinbus.broker.nodes import management

PAGE = (ROOT / "docs" / "wire.md").read_text()


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def first_cells(text: str) -> list[str]:
    """The names in code type in the first column of a table."""
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| ")]
    return [name for cell in rows for name in re.findall(r"`([^`]+)`", cell)]


def test_every_condition_of_the_service_is_there_and_no_other() -> None:
    ours = {
        each.condition
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, errors.ServiceError)
    }
    assert set(first_cells(section("Errors"))) == ours


def test_every_operation_is_there_and_no_other() -> None:
    named = [name for name in first_cells(section("Requests")) if not name.startswith("com.microsoft")]
    assert set(named) == set(management._OPERATIONS)


def test_what_we_open_with() -> None:
    text = section("Connecting")
    assert f"| max-frame-size | {limits.FRAME_BYTES_MAX:,} |" in text
    assert f"| channel-max | {limits.CHANNEL_MAX:,} |" in text
    assert f"| idle-time-out | {limits.IDLE_TIMEOUT_MS:,} ms" in text
    assert set(re.findall(r"`([A-Z]+)`", text)) - {"AMQP"} == set(_offered())


def _offered() -> tuple[str, ...]:
    offered: tuple[str, ...] = inspect.signature(Connection).parameters["sasl_mechanisms"].default
    return offered


def test_numbers() -> None:
    assert f"begin at {limits.FIRST_DELIVERY_ID:,}" in PAGE
    assert f"else {limits.ACCEPT_SESSION_TIMEOUT_MS_DEFAULT // 1_000} s" in PAGE
    assert f"At most {limits.TRANSACTION_MESSAGES_MAX} messages" in PAGE
    assert f"{limits.TOKEN_EXPIRY_GRACE_MS // 1_000} s after its end" in PAGE
