"""A layout tells its own messages from all others, and says where their values are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.spark.source.encoded import annotated, delivered
from twinbus.amqp import AmqpMessage, Int, Timestamp
from twinbus.client.outgoing import encode_message
from twinbus.spark.source.layouts import REACH_BYTES, Alike, layout_of


def read(template: bytes, payloads: list[bytes]) -> tuple[Alike, list[bool]]:
    layout = layout_of(template)
    assert layout is not None
    ends = np.cumsum([len(payload) for payload in payloads])
    data = b"".join(payloads) + bytes(REACH_BYTES)
    alike, matching = layout.read(data, ends - [len(payload) for payload in payloads], ends)
    return alike, [True] * len(payloads) if matching is None else matching.tolist()


def order(number: int, shop: str = "A", **fields: Any) -> bytes:
    own = {"shop": shop, "number": 1_000 + number}
    sent = encode_message(b"x" * number, f"m-{number}", application_properties=own, **fields)
    return delivered(sent, number, number % 3)


def test_values_of_any_length() -> None:
    payloads = [order(number, "A" * number) for number in (0, 7, 100)]
    alike, matching = read(payloads[0], payloads)
    assert matching == [True] * 3
    assert alike.numbers["sequence_number"].tolist() == [0, 7, 100]
    assert alike.numbers["delivery_count"].tolist() == [0, 1, 1]
    data = b"".join(payloads)
    ids = alike.texts["message_id"]
    assert [data[start:stop] for start, stop in zip(*ids, strict=True)] == [b"m-0", b"m-7", b"m-100"]
    assert [data[start:stop] for start, stop in zip(*alike.body, strict=True)] == [b"", b"x" * 7, b"x" * 100]
    assert [each.name for each in alike.properties] == ["shop", "number"]


@pytest.mark.parametrize("changed", range(len(order(5))))
def test_a_message_with_another_byte_is_of_the_layout_only_if_it_is_a_values(changed: int) -> None:
    template = order(5)
    payload = template[:changed] + bytes((template[changed] ^ 0x15,)) + template[changed + 1 :]
    values = [b"\x00\x00\x00\x02", b"m-5", b"A", (1_005).to_bytes(8, "big"), b"xxxxx"]
    values += [(5).to_bytes(8, "big"), (1_800_000_000_005).to_bytes(8, "big")]
    places = {template.index(value) + at for value in values for at in range(len(value))}
    assert read(template, [template, payload, template])[1] == [True, changed in places, True]


@pytest.mark.parametrize("size", range(0, 150, 7))
def test_a_message_that_is_cut_off_is_of_no_layout(size: int) -> None:
    template = order(5)
    assert read(template, [template, template[:size], template])[1] == [True, False, True]
    assert read(template, [template, template + b"x"])[1] == [True, False]


@pytest.mark.parametrize(
    "payload",
    [
        order(5, subject="long" * 70),
        delivered(AmqpMessage(message_id=7, data=[b"x"]).encode()),
        delivered(AmqpMessage(message_id="m", user_id=b"u", data=[b"x"]).encode()),
        delivered(AmqpMessage.of_value(1).encode()),
        delivered(AmqpMessage(message_id="m", data=[b"x"], application_properties={"n": 1.5}).encode()),
        annotated(encode_message(b"", "m"), 7, None, {"x-opt-partition-key": b"raw"}),
        order(5)[:-6],
        b"",
        b"\x00",
        encode_message(b"", "m", application_properties={"n" * 200 + str(at): "x" for at in range(100)}),
    ],
)
def test_unusual_messages_have_no_layout(payload: bytes) -> None:
    assert layout_of(payload) is None


def test_what_a_service_adds() -> None:
    sent = encode_message(b"x", "m")
    added = {"x-opt-message-state": Int(1), "x-opt-partition-key": "p", "x-opt-deadletter-source": "orders"}
    alike, _ = read(annotated(sent, 700, 300, added), [annotated(sent, number, 300, added) for number in (700, 701)])
    assert alike.numbers["state"].tolist() == [1, 1]
    assert alike.numbers["enqueued_ms"].tolist() == [700, 701]
    assert list(alike.texts) == ["partition_key", "message_id"]


def test_as_the_sdks_write_it() -> None:
    def sent(text: str, ms: int) -> bytes:
        message = AmqpMessage(message_id=text, content_type="application/json", data=[b"{}"])
        message.creation_time, message.absolute_expiry_time = Timestamp(ms), Timestamp(ms + 5)
        return delivered(message.encode())

    alike, matching = read(sent("m-1", 1_800_000_000_000), [sent("m-2", 7), sent("m-10", 8)])
    assert matching == [True, True]
    assert alike.numbers["expires_ms"].tolist() == [12, 13]
    assert alike.symbols == {"content_type"}
