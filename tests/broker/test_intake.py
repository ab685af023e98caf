"""What the broker reads of a message at intake is what the client reads of it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from twinbus.amqp import Char, Symbol, Timestamp, ULong
from twinbus.amqp.codec import encode
from twinbus.broker.messages.intake import Intake
from twinbus.client.fields import read_fields
from twinbus.limits import UNLIMITED_MS

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
