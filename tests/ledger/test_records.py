"""Records as lines: they are read back as written, and errors say what is wrong."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.errors import LedgerError
from twinbus.ledger.records import (
    FORMAT,
    LATENCY_BOUNDS_MS,
    Backlog,
    ConnectionLines,
    ConnectionsRecord,
    FailoverEvent,
    Latency,
    LedgerRecord,
    OperationLines,
    Operations,
    decode,
    encode,
    units_of,
)
from twinbus.ledger.words import Event, Kind, LedgerSource, Stage, stage_of
from twinbus.limits import LEDGER_LINE_BYTES_MAX, OPERATION_STEP_BYTES

HEAD: dict[str, Any] = {
    "id": "ab12-1",
    "start_ms": 1_700_000_000_000,
    "end_ms": 1_700_000_001_000,
    "source": LedgerSource.BROKER,
    "namespace": "contoso",
    "entity": "orders",
}
OPERATIONS = Operations(**HEAD, kind="send", stage=Stage.DIRECT, outcome="ok", count=3, bytes=70_000, units=4)
CONNECTIONS = ConnectionsRecord(**HEAD | {"entity": ""}, peak=12)
RECORDS: list[LedgerRecord] = [
    OPERATIONS,
    FailoverEvent(**HEAD, event=Event.FAILED_OVER, target="fabrikam", cause="com.microsoft:timeout", count=2),
    FailoverEvent(**HEAD, event=Event.QUEUE_OUT, queue="contoso/x-servicebus-transfer/3"),
    CONNECTIONS,
    Backlog(**HEAD, depth=5, depth_bytes=500, oldest_ms=60_000),
    Latency(**HEAD, queue="contoso/x-servicebus-transfer/3", count=3, sum_ms=9, max_ms=5, buckets=(1, 0, 2)),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.type)
def test_a_record_reads_back(record: LedgerRecord) -> None:
    line = encode(record)
    assert line.endswith("\n")
    assert line.count("\n") == 1
    assert decode(line) == record
    assert decode(line.encode()) == record


def test_the_lines_of_connections_are_their_record() -> None:
    line = ConnectionLines(LedgerSource.BROKER, "contoso").line("ab12-1", HEAD["start_ms"], HEAD["end_ms"], 12, 0, 0)
    assert decode(line) == CONNECTIONS


def test_the_fast_form_is_the_same_record() -> None:
    lines = OperationLines(LedgerSource.BROKER, "contoso", "orders", Kind.SEND)
    fast = lines.line("ab12-1", HEAD["start_ms"], HEAD["end_ms"], 3, 70_000, 4)
    assert decode(fast) == OPERATIONS
    assert json.loads(fast) == json.loads(encode(OPERATIONS))


@given(entity=st.text(max_size=100), namespace=st.text(max_size=50), outcome=st.sampled_from(["ok", "amqp:not-found"]))
def test_any_name_makes_one_whole_line(entity: str, namespace: str, outcome: str) -> None:
    line = OperationLines(LedgerSource.CLIENT, namespace, entity, Kind.RECEIVE, outcome).line("r-1", 1, 2, 1, 0, 1)
    assert line.encode().splitlines(keepends=True) == [line.encode()]
    record = decode(line)
    assert (record.entity, record.namespace) == (entity, namespace)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"v": None}, "'v'"),
        ({"v": FORMAT + 1}, "this version reads up to"),
        ({"type": "operation"}, "type is not one of"),
        ({"type": ["operations"]}, "type is not one of"),
        ({"id": None}, "no field 'id'"),
        ({"id": "a b"}, "'id'"),
        ({"source": "spark"}, "'source' is not one of broker, client, syphon"),
        ({"stage": "back"}, "'stage'"),
        ({"kind": 7}, "'kind'"),
        ({"kind": "se nd"}, "'kind'"),
        ({"outcome": "the text of an error"}, "'outcome'"),
        ({"count": -1}, "'count'"),
        ({"count": True}, "'count'"),
        ({"count": 1.5}, "'count'"),
        ({"count": 0, "units": 0}, "counts no operation"),
        ({"bytes": 2**63}, "'bytes'"),
        ({"units": 2}, "'units' is less than 'count'"),
        ({"end_ms": 1}, "ends before it starts"),
        ({"entity": 5}, "'entity'"),
        ({"namespace": "n" * 2_000}, "'namespace'"),
        # Half of a character, which JSON can escape and no table can hold.
        ({"entity": "orders\ud800"}, "'entity' is not a name"),
    ],
)
def test_what_is_wrong_is_said(change: dict[str, Any], text: str) -> None:
    found = {**json.loads(encode(OPERATIONS)), **change}
    with pytest.raises(LedgerError, match=text):
        decode(json.dumps({name: value for name, value in found.items() if value is not None}))


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"", "not JSON"),
        (b'{"v":1,"type":"oper', "not JSON"),
        (b"\xff{}", "UTF-8"),
        (b"[1]", "not a JSON object"),
        (b"[" * 10_000, "nested"),
        (b"\0" * 100, "not JSON"),
        (b'{"v":' + b"9" * 10_000 + b"}", "not JSON|'v'"),
        (b" " * (LEDGER_LINE_BYTES_MAX + 1), "at most"),
    ],
)
def test_what_is_no_record_is_said(line: bytes, text: str) -> None:
    with pytest.raises(LedgerError, match=text):
        decode(line)


def test_buckets_add_up() -> None:
    found = json.loads(encode(RECORDS[-1]))
    with pytest.raises(LedgerError, match="add up"):
        decode(json.dumps({**found, "count": 4}))
    with pytest.raises(LedgerError, match="buckets"):
        decode(json.dumps({**found, "buckets": [0] * (len(LATENCY_BOUNDS_MS) + 2)}))


@given(st.binary(max_size=200))
def test_no_bytes_do_anything_but_read_or_fail(line: bytes) -> None:
    try:
        record = decode(line)
    except LedgerError:
        return
    assert record.type


@pytest.mark.parametrize(
    ("size", "units"),
    [(0, 1), (1, 1), (OPERATION_STEP_BYTES, 1), (OPERATION_STEP_BYTES + 1, 2), (2 * OPERATION_STEP_BYTES, 2)],
)
def test_each_64_kb_begun_is_a_unit(size: int, units: int) -> None:
    assert units_of(size) == units


@pytest.mark.parametrize(
    ("entity", "kind", "stage"),
    [
        ("orders", Kind.SEND, Stage.DIRECT),
        ("orders", Kind.PING, Stage.PING),
        ("orders", Kind.EMPTY_POLL, Stage.POLL),
        ("contoso/x-servicebus-transfer/0", Kind.SEND, Stage.TO_BACKLOG),
        ("contoso/X-ServiceBus-Transfer/0", Kind.RECEIVE, Stage.FROM_BACKLOG),
        ("contoso/x-servicebus-transfer/0", Kind.COMPLETE, Stage.FROM_BACKLOG),
        ("contoso/x-servicebus-transfer/0", Kind.EMPTY_POLL, Stage.POLL),
        ("contoso/x-servicebus-transfer/0", Kind.PEEK, Stage.DIRECT),
    ],
)
def test_the_stage_follows_from_name_and_kind(entity: str, kind: Kind, stage: Stage) -> None:
    assert stage_of(entity, kind) is stage


def test_every_field_kind_and_stage_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "ledger.md").read_text()
    names = {field.name for record in RECORDS for field in fields(record)} | {"v", "type"}
    names |= {record.type for record in RECORDS} | {*Kind, *Stage, *Event, *LedgerSource}
    assert [name for name in sorted(names) if f"`{name}`" not in text] == []


def test_the_documented_record_reads() -> None:
    text = (Path(__file__).parents[2] / "docs" / "ledger.md").read_text()
    line = text.partition("```json\n")[2].partition("```")[0]
    assert isinstance(decode(line), Operations)
