"""What the broker reads from a message on arrival is what the client reads from it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from twinbus.amqp import Char, Symbol, Timestamp, UInt, ULong
from twinbus.amqp.codec import encode
from twinbus.amqp.reader import read_fields
from twinbus.broker.messages.intake import Intake
from twinbus.limits import TIME_MS_MAX, UNLIMITED_MS

LONG = "x" * 300
IDS: dict[str, Any] = {
    "string": "id",
    "long string": LONG,
    "symbol": Symbol("id"),
    "long symbol": Symbol(LONG),
    "binary": b"id",
    "binary that is not UTF-8": b"\xff\xfe",
    "uuid": UUID(int=5),
    "ulong": ULong(7),
    "long": 7,
    "boolean": True,
    "double": 1.5,
    "char": Char("x"),
    "timestamp": Timestamp(5),
}


def payload(**fields: Any) -> bytes:
    names = ["message_id", "user_id", "to", "subject", "reply_to", "correlation_id", "content_type"]
    names += ["content_encoding", "absolute_expiry_time", "creation_time", "group_id"]
    return b"\x00\x53\x73" + encode([fields.get(name) for name in names]) + b"\x00\x53\x75\xa0\x01x"


@pytest.mark.parametrize("kind", IDS)
def test_ids_of_every_type_are_the_same_text_to_broker_and_client(kind: str) -> None:
    sent = payload(message_id=IDS[kind], group_id=IDS[kind])
    taken = Intake(lambda: "made").message(sent, 0, UNLIMITED_MS)
    read = read_fields(sent)
    assert taken.message_id != "made"
    assert taken.message_id == taken.session_id
    assert (read.message_id, read.session_id) == (taken.message_id, taken.session_id)


NOW_MS = 1_700_000_000_000
LONG_TTL = b"\x00\x53\x70" + encode([None, None, UInt(0xFFFFFFFF)])


@pytest.mark.parametrize("created_ms", [-(2**63), -1, 0, NOW_MS])
@pytest.mark.parametrize("expires_ms", [-(2**63), 0, NOW_MS + 2**40, TIME_MS_MAX - 1, TIME_MS_MAX, 2**63 - 1])
def test_a_time_to_live_of_any_two_times_is_taken(created_ms: int, expires_ms: int) -> None:
    sent = LONG_TTL + payload(
        message_id="id", absolute_expiry_time=Timestamp(expires_ms), creation_time=Timestamp(created_ms)
    )
    taken = Intake(lambda: "made").message(sent, NOW_MS, UNLIMITED_MS)
    assert taken.message_id == "id"
    # After the year 9999 means never, because clients cannot represent it.
    lives_ms = max(expires_ms - created_ms, 0)
    never = expires_ms >= TIME_MS_MAX or NOW_MS + lives_ms > TIME_MS_MAX
    assert taken.ttl_ms == (None if never else lives_ms)


def test_an_entity_may_keep_messages_beyond_the_year_9999() -> None:
    taken = Intake(lambda: "made").message(payload(message_id="id"), NOW_MS, UNLIMITED_MS - 1)
    assert taken.ttl_ms is None
