"""Columns of messages that are alike: what is not certain is left to the reader of single messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.spark.source.encoded import annotated, delivered
from twinbus.amqp import Int
from twinbus.client import to_json
from twinbus.client.outgoing import encode_message
from twinbus.spark.source.alike import AlikeRows
from twinbus.spark.source.columns import source_schema
from twinbus.spark.source.layouts import REACH_BYTES, layout_of
from twinbus.spark.versions import arrow_schema

SCHEMA = arrow_schema(source_schema(include_body=True))


def rows(payloads: list[bytes]) -> pa.RecordBatch | None:
    layout = layout_of(payloads[0])
    assert layout is not None
    ends = np.cumsum([len(payload) for payload in payloads])
    data = b"".join(payloads) + bytes(REACH_BYTES)
    alike, matching = layout.read(data, ends - [len(payload) for payload in payloads], ends)
    assert matching is None
    return AlikeRows(SCHEMA, {"entity": "orders", "namespace": "contoso"}, data, alike).batch()


def column(name: str, payloads: list[bytes]) -> list[Any]:
    batch = rows(payloads)
    assert batch is not None
    batch.validate(full=True)
    return list(batch[name].to_pylist())


def own(**properties: Any) -> bytes:
    return delivered(encode_message(b"x", "m", application_properties=properties))


def test_properties_are_json() -> None:
    payloads = [own(a="x", b=500, c=Int(500), d=True), own(a='"ü\\\n', b=-500, c=Int(-500), d=True)]
    assert column("properties", payloads) == [
        [("a", '"x"'), ("b", "500"), ("c", '{"int": 500}'), ("d", "true")],
        [("a", '"\\"ü\\\\\\n"'), ("b", "-500"), ("c", '{"int": -500}'), ("d", "true")],
    ]


@pytest.mark.parametrize("text", ["\n", "\x1f", '"', "\\", "\x7f", "ü", ""])
def test_each_character_of_a_property_is_escaped_as_json_demands(text: str) -> None:
    assert column("properties", [own(a="x"), own(a=text)])[1] == [("a", to_json(text))]


def test_the_services_own_properties_are_columns() -> None:
    payloads = [own(DeadLetterReason=reason, n="x") for reason in ("late", 'a "b"')]
    assert column("deadLetterReason", payloads) == ["late", 'a "b"']
    assert column("properties", payloads) == [[("n", '"x"')]] * 2


def test_states_and_expiry() -> None:
    payloads = [
        annotated(encode_message(b"x", "m"), 700, 300, {"x-opt-message-state": Int(state)}) for state in (0, 1, 2, 3)
    ]
    assert column("state", payloads) == ["active", "deferred", "scheduled", None]
    assert [time.timestamp() for time in column("expiresAt", payloads)] == [1.0] * 4


@pytest.mark.parametrize("where", ["m-id", "text", "about"])
def test_text_that_is_not_utf8_is_left_to_others(where: str) -> None:
    payload = encode_message(b"x", "m-id", subject="about", application_properties={"n": "text"})
    assert rows([delivered(payload)] * 2) is not None
    assert (
        rows([delivered(payload), delivered(payload.replace(where.encode(), b"\xed\xa0\x80 \xff"[: len(where)]))])
        is None
    )


def test_so_are_symbols_that_are_not_ascii_and_times_far_away() -> None:
    payload = encode_message(b"x", "m", content_type="text")
    assert rows([delivered(payload), delivered(payload.replace(b"text", "üü".encode()))]) is None
    payload = annotated(encode_message(b"x", "m"), 2**63 - 1, 300, {})
    assert rows([payload, payload]) is None
