"""Batches have the rows that `RowMaker` makes of each message, whatever comes together."""

from __future__ import annotations

import gc
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StringType, StructField, StructType

from tests.spark.source.encoded import PAYLOADS, delivered
from twinbus.client.outgoing import encode_message
from twinbus.errors import DecodeError
from twinbus.limits import SPARK_ALIKE_ROWS_MIN, SPARK_BATCH_ROWS
from twinbus.spark.source import batches
from twinbus.spark.source.batches import BatchMaker, Heads
from twinbus.spark.source.columns import source_schema
from twinbus.spark.source.garbage import YOUNG_OBJECTS
from twinbus.spark.source.rows import RowMaker

ALL = source_schema(include_body=True)
SCHEMAS = (
    ALL,
    source_schema(include_body=False),
    StructType([StructField("body", StringType())]),
    StructType([field for field in ALL.fields if field.name in ("expiresAt", "_corrupt", "deadLetterReason")]),
    StructType([field for field in ALL.fields if field.name in ("subject", "sequenceNumber")]),
)
PLACE = {"entity": "orders", "namespace": "contoso"}


def one_by_one(schema: StructType, payloads: list[bytes]) -> tuple[pa.RecordBatch, Heads]:
    maker = RowMaker(schema, **PLACE)
    fields = [maker.fields(payload) for payload in payloads]
    heads = (
        [row.sequence_number for row in fields],
        [row.enqueued_ms for row in fields],
        [row.state for row in fields],
    )
    return maker.batch(fields), Heads(*heads)


def outcome(work: Any) -> Any:
    try:
        return work()
    except (OverflowError, ValueError, DecodeError) as error:
        return type(error)


@settings(deadline=None, max_examples=500)
@given(PAYLOADS, st.sampled_from(SCHEMAS), st.integers(1, 3))
def test_the_same_rows_as_one_by_one(payloads: list[bytes], schema: StructType, least: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "SPARK_ALIKE_ROWS_MIN", least)
        maker = BatchMaker(schema, **PLACE)
        # The second time, the layout is known.
        for some in (payloads, payloads[::-1]):
            expected = outcome(lambda some=some: one_by_one(schema, some))
            found = outcome(lambda some=some: maker.batch(some))
            if isinstance(expected, tuple) and isinstance(found, tuple):
                found[0].validate(full=True)
                assert found[0].schema == expected[0].schema
                assert shown(found[0]) == shown(expected[0])
                assert found[1] == expected[1]
            else:
                assert found == expected


def shown(batch: pa.RecordBatch) -> list[list[Any]]:
    """The columns, times as microseconds: not all of them are within Python's range."""
    return [(column.view(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist() for column in batch]


def orders(count: int, first: int = 1_000) -> list[bytes]:
    return [
        delivered(
            encode_message(
                b"x" * (number % 7 * 60),
                f"m-{number}",
                subject="a" * (number % 5),
                application_properties={"shop": "A" * (number % 3), "number": number},
            ),
            number,
        )
        for number in range(first, first + count)
    ]


def test_messages_alike_are_not_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids, texts, numbers and bodies of any length."""
    payloads = orders(500)
    expected, _ = one_by_one(ALL, payloads)
    monkeypatch.delattr(RowMaker, "fields")
    found, heads = BatchMaker(ALL, **PLACE).batch(payloads)
    assert found.equals(expected)
    assert heads.numbers == list(range(1_000, 1_500))


def test_of_several_senders_each_is_read_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 8 * SPARK_ALIKE_ROWS_MIN
    others = [delivered(encode_message(b"", f"o-{number}", to="there"), number) for number in range(count)]
    payloads = [each for pair in zip(orders(count), others, strict=True) for each in pair]
    expected, heads = one_by_one(ALL, payloads)
    monkeypatch.delattr(RowMaker, "fields")
    maker = BatchMaker(ALL, **PLACE)
    for _ in range(2):
        assert maker.batch(payloads)[0].equals(expected)
        assert maker.batch(payloads)[1] == heads


def test_only_rows_that_are_to_be_kept() -> None:
    pages = [orders(600), orders(900, first=1_600)]
    maker = BatchMaker(ALL, **PLACE)
    found = list(maker.batches(pages, lambda heads: [number % 2 == 0 for number in heads.numbers]))
    assert [row for batch in found for row in batch["sequenceNumber"].to_pylist()] == list(range(1_000, 2_500, 2))
    assert list(maker.batches(pages, lambda heads: [False] * len(heads.numbers))) == []


def test_pages_become_batches_and_the_collector_is_the_processs_own_again() -> None:
    page = [encode_message(b"x", "m")] * 300
    maker = BatchMaker(ALL, **PLACE)
    before = gc.get_threshold()
    made = maker.batches([page] * 8)
    assert next(made).num_rows == SPARK_BATCH_ROWS + 200
    assert gc.get_threshold()[0] >= YOUNG_OBJECTS
    assert [batch.num_rows for batch in made] == [SPARK_BATCH_ROWS + 200]
    assert gc.get_threshold() == before
    # A task that ends before its rows do, for example because of a limit.
    made = maker.batches([page] * 8)
    next(made)
    made.close()  # type: ignore[attr-defined]
    assert gc.get_threshold() == before
    assert list(maker.batches([[], []])) == []


def test_a_batch_is_bounded_by_bytes() -> None:
    """A thousand bodies of 2 MB exceed the capacity of an Arrow array of bytes."""
    payload = encode_message(b"x" * 2_000_000, "m")
    maker = BatchMaker(ALL, **PLACE)
    # Every page repeats the same message, so only one batch takes memory.
    sizes = [(batch.num_rows, batch.nbytes) for batch in maker.batches([payload] * 250 for _ in range(4))]
    assert sum(rows for rows, _ in sizes) == 1_000
    assert max(size for _, size in sizes) < 70 * 1024 * 1024
    large = encode_message(b"x" * 100_000_000, "m")
    assert [batch.num_rows for batch in maker.batches([[payload, large, payload]])] == [1, 1, 1]
