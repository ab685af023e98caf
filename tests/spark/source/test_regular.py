"""Rows encoded as whole columns are the bytes, in the order, that each row alone would be."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twinbus.client import read_fields
from twinbus.client.outgoing import encode_message
from twinbus.limits import SPARK_ALIKE_ROWS_MIN
from twinbus.spark.source import parcels
from twinbus.spark.source.options import IdMode
from twinbus.spark.source.parcels import Encoder

TEXTS = ("messageId", "sessionId", "subject", "contentType", "correlationId", "to", "replyTo", "replyToSessionId")
MAP = pa.map_(pa.string(), pa.string())
SHORT = st.sampled_from(["", "a", "ü", "cc" * 20, "d" * 255, "e" * 256])
# Most values of a column are of one kind.
JSON = [
    st.sampled_from(['"A"', '""', '"ü"', '"\u00ad"', '"' + "x" * 253 + '"']),
    st.sampled_from(["-129", "-128", "-1", "0", "1", "127", "128"]),
    st.integers(-(2**63), 2**63 - 1).map(str),
    st.sampled_from(
        [
            "true",
            "null",
            "-0",
            "007",
            "1.5",
            "1e3",
            '{"int": 4}',
            '{"int": "x"}',
            "plain",
            '"a\\"b"',
            '"a\\\\b"',
            '"a"b"',
        ]
    ),
    st.sampled_from(['"\n"', "1\n", '"', "", None, '"\x7f"', "9" * 19, "٣"]),
]


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    count = draw(st.integers(1, 8))

    def values(kind: st.SearchStrategy[Any]) -> list[Any]:
        seldom = draw(st.booleans())
        return [draw(st.one_of(kind, st.none())) if seldom else draw(kind) for _ in range(count)]

    binary = draw(st.booleans())
    body = st.sampled_from([b"", b"x", b"y" * 255, b"z" * 256])
    columns = {
        "body": pa.array(values(body), pa.binary()) if binary else pa.array(values(body.map(bytes.decode)), pa.string())
    }
    for name in draw(st.lists(st.sampled_from(TEXTS), unique=True)):
        columns[name] = pa.array(values(draw(st.sampled_from([SHORT, st.sampled_from(["a", "bb"])]))), pa.string())
    names = draw(st.lists(st.sampled_from(["n", "m", "ü" * 90]), unique=True, max_size=3))
    kinds = [draw(st.sampled_from(JSON)) for _ in names]
    if draw(st.booleans()):
        pairs = [
            [(name, draw(kind)) for name, kind in zip(names, kinds, strict=True)] if draw(st.integers(0, 5)) else None
            for _ in range(count)
        ]
        columns["properties"] = pa.array(pairs, MAP)
    if draw(st.booleans()):
        columns["entity"] = pa.array(values(st.sampled_from(["q", "r", ""])), pa.string())
    if not draw(st.integers(0, 3)):
        columns["partitionKey"] = pa.array(values(st.just("p")), pa.string())
        columns["timeToLive"] = pa.array(values(st.integers(-1, 5)), pa.int64())
        columns["_corrupt"] = pa.array(values(st.none()), pa.binary())
    batch = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    return batch.slice(draw(st.integers(0, count - 1)))


def encoded(batch: pa.RecordBatch, least: int, id_mode: IdMode, entity: str | None = "q") -> list[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parcels, "SPARK_ALIKE_ROWS_MIN", least)
        places = {name: at for at, name in enumerate(batch.schema.names)}
        encoder = Encoder(places, entity=entity, use_entity_column=True, id_mode=id_mode, id_prefix="job/0")
        return [*encoder.encode(batch), *encoder.encode(batch)]


@settings(deadline=None, max_examples=500)
@given(batches(), st.sampled_from(list(IdMode)), st.sampled_from(["q", None]))
def test_the_same_bytes_as_one_by_one(batch: pa.RecordBatch, id_mode: IdMode, entity: str | None) -> None:
    assert encoded(batch, 1, id_mode, entity) == encoded(batch, 1_000, id_mode, entity)


@settings(deadline=None, max_examples=500)
@given(st.lists(st.tuples(st.sampled_from("nnk"), st.one_of(*JSON), st.one_of(*JSON)), min_size=1, max_size=6))
def test_properties_of_all_kinds_together(values: list[tuple[str, Any, Any]]) -> None:
    bodies = pa.array([b"x" * number for number in range(254, 254 + len(values))], pa.binary())
    properties = pa.array([[(name, one), ("m", other)] for name, one, other in values], MAP)
    batch = pa.RecordBatch.from_arrays([bodies, properties], ["body", "properties"])
    assert encoded(batch, 1, IdMode.AUTO) == encoded(batch, 1_000, IdMode.AUTO)


@pytest.mark.parametrize("size", range(225, 260))
def test_sections_of_about_the_size_that_is_short(size: int) -> None:
    columns = {
        "body": pa.array([b"", b"x"], pa.binary()),
        "subject": pa.array(["s" * size, "s"]),
        "properties": pa.array([[("n", f'"{"x" * size}"'), ("m", "5000")]] * 2, MAP),
    }
    batch = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    assert encoded(batch, 1, IdMode.AUTO) == encoded(batch, 1_000, IdMode.AUTO)


def test_a_property_twice_counts_once() -> None:
    twice = pa.MapArray.from_arrays(pa.array([0, 2], pa.int32()), pa.array(["n", "n"]), pa.array(["1", "2"]))
    batch = pa.RecordBatch.from_arrays([pa.array([b""]), twice], ["body", "properties"])
    assert encoded(batch, 1, IdMode.AUTO) == encoded(batch, 1_000, IdMode.AUTO)


def test_a_null_may_hide_properties() -> None:
    shown = pa.array([[("n", "1")], [("n", "2")], [("n", "3")]], MAP)
    _, offsets, *_ = shown.buffers()
    entries = pa.StructArray.from_arrays([shown.keys, shown.items], fields=[MAP.key_field, MAP.item_field])
    hiding = pa.Array.from_buffers(MAP, 3, [pa.py_buffer(b"\x05"), offsets], children=[entries])
    batch = pa.RecordBatch.from_arrays([pa.array([b""] * 3), hiding], ["body", "properties"])
    found = encoded(batch, 1, IdMode.AUTO)
    assert [read_fields(row.payload).properties for row in found[:3]] == [{"n": 1}, None, {"n": 3}]
    assert found == encoded(batch, 1_000, IdMode.AUTO)


@pytest.mark.parametrize("least", [1, 1_000])
def test_ids_by_position_count_on_over_batches(least: int) -> None:
    found = encoded(orders(3), least, IdMode.POSITION)
    assert [read_fields(row.payload).message_id for row in found] == [f"job/0/{row}" for row in range(6)]


def orders(count: int) -> pa.RecordBatch:
    numbers = range(count)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([b"x" * (number % 400) for number in numbers], pa.binary()),
            pa.array([f"m-{number}" for number in numbers]),
            pa.array([[("shop", f'"{"A" * (number % 3)}"'), ("number", str(number))] for number in numbers], MAP),
        ],
        ["body", "messageId", "properties"],
    )


def test_regular_rows_are_not_encoded_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(parcels, "encode_message")
    found = encoded(orders(1_500), SPARK_ALIKE_ROWS_MIN, IdMode.COLUMN)
    expected = [
        encode_message(
            b"x" * (number % 400), f"m-{number}", application_properties={"shop": "A" * (number % 3), "number": number}
        )
        for number in range(1_500)
    ]
    assert [row.payload for row in found] == expected * 2


def test_text_that_is_not_utf8_is_never_sent() -> None:
    bad = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.array([0, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"\xffx")]
    )
    pairs = pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pa.array(["n", "n"]), bad)
    for name, column in {"subject": bad, "body": bad, "properties": pairs}.items():
        columns = {"body": pa.array([b"", b""]), name: column}
        batch = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
        with pytest.raises(UnicodeDecodeError):
            encoded(batch, 1, IdMode.AUTO)
