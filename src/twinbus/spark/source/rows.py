"""Turns messages into rows: many encoded messages become one Arrow batch, column by column.

- Only the sections that the requested columns need are decoded.
- A message that cannot be decoded still becomes a row, with the whole message in `_corrupt` and the reason in
  `properties`: one bad message must not block those behind it.
- The batch has exactly the schema that Spark expects, or Spark rejects it.
- Columns are built as a whole, and values that all rows share (mostly null) are not built row by row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from twinbus.client import ACTIVE, Fields, from_json, read_fields, read_head, to_json
from twinbus.client.resubmission import CLAIM
from twinbus.errors import DecodeError
from twinbus.limits import SPARK_BATCH_BYTES, SPARK_BATCH_ROWS, TIME_MS_MAX
from twinbus.spark.source.garbage import seldom_collected
from twinbus.spark.source.layouts import LayoutReader
from twinbus.spark.versions import arrow_schema

STATES: Final = ("active", "deferred", "scheduled")
UNREADABLE: Final = "x-twinbus-unreadable"

_REASON: Final = "DeadLetterReason"
_DESCRIPTION: Final = "DeadLetterErrorDescription"
_HIDDEN: Final = frozenset({CLAIM, _REASON, _DESCRIPTION})
# The first millisecond of the year 1. Spark cannot show times before it or after the year 9999; "never" is far beyond,
# and a sender can write any value.
_FIRST_MS: Final = -62_135_596_800_000

# Columns that show a field unchanged.
_TEXTS: Final = {
    "messageId": "message_id",
    "sessionId": "session_id",
    "correlationId": "correlation_id",
    "subject": "subject",
    "contentType": "content_type",
    "to": "to",
    "replyTo": "reply_to",
    "partitionKey": "partition_key",
    "sequenceNumber": "sequence_number",
    "deliveryCount": "delivery_count",
}
_TIMES: Final = {
    "enqueuedTime": "enqueued_ms",
    "scheduledEnqueueTime": "scheduled_ms",
    "expiresAt": "expires_ms",
}
_PLAIN: Final = _TEXTS | _TIMES
_PROPERTY_COLUMNS: Final = frozenset({"properties", "deadLetterReason", "deadLetterErrorDescription"})


class RowMaker:
    """Builds Arrow batches of one schema from encoded messages of one entity."""

    def __init__(self, schema: StructType, *, entity: str, namespace: str) -> None:
        self.schema: pa.Schema = arrow_schema(schema)
        # Values of the columns `entity` and `namespace`.
        self._constants = {"entity": entity, "namespace": namespace}
        names = set(self.schema.names)
        self._with_properties = bool(names & _PROPERTY_COLUMNS)
        self._with_body = "body" in names
        both = self._with_properties and self._with_body
        self._read = LayoutReader().read if both else self._some
        # Whether a message could not be decoded.
        self._corrupt = False

    def fields(self, payload: bytes) -> Fields:
        """The requested fields of a message."""
        try:
            return self._read(payload)
        except DecodeError as error:
            self._corrupt = True
            return _unreadable(payload, error)

    def _some(self, payload: bytes) -> Fields:
        return read_fields(payload, self._with_properties, self._with_body, True)

    def batches(self, pages: Iterable[list[Fields]]) -> Iterator[pa.RecordBatch]:
        """Arrow batches with a number of rows and bytes that suits Spark."""
        with seldom_collected():
            rows: list[Fields] = []
            size = 0
            for page in pages:
                for row in page:
                    more = len(row.body) if row.body else 0
                    if rows and size + more > SPARK_BATCH_BYTES:
                        yield self.batch(rows)
                        rows, size = [], 0
                    rows.append(row)
                    size += more
                if len(rows) >= SPARK_BATCH_ROWS:
                    yield self.batch(rows)
                    rows, size = [], 0
            if rows:
                yield self.batch(rows)

    def batch(self, rows: Sequence[Fields]) -> pa.RecordBatch:
        """One Arrow batch."""
        turned: Any = zip(*rows, strict=True) if rows else [()] * len(Fields._fields)
        columns = Fields(*turned)
        arrays = [self._array(field, columns, len(rows)) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _array(self, field: pa.Field, columns: Any, count: int) -> pa.Array:
        name = field.name
        plain = _PLAIN.get(name)
        if plain is not None:
            values = getattr(columns, plain)
            # Most messages lack most fields.
            if values.count(None) == count:
                return pa.nulls(count, field.type)
            if name in _TIMES:
                return _times(values).view(field.type)
            return pa.array(values, field.type)
        if name in ("body", "_corrupt"):
            if not self._corrupt:
                bodies = columns.body if name == "body" else [None] * count
            else:
                bad = [bool(each) and UNREADABLE in each for each in columns.properties]
                wanted = name == "_corrupt"
                bodies = [body if is_bad is wanted else None for body, is_bad in zip(columns.body, bad, strict=True)]
            if pa.types.is_binary(field.type):
                return pa.array(bodies, field.type)
            return pa.array([None if body is None else body.decode("utf-8", "replace") for body in bodies])
        if name == "state":
            if columns.state.count(ACTIVE) == count:
                return pa.repeat(pa.scalar(STATES[ACTIVE], field.type), count)
            return pa.array([STATES[state] if 0 <= state < 3 else None for state in columns.state], field.type)
        if name in self._constants:
            return pa.repeat(pa.scalar(self._constants[name], field.type), count)
        if name == "properties":
            return _maps(columns.properties, field.type)
        wanted = _REASON if name == "deadLetterReason" else _DESCRIPTION
        return _own(columns.properties, wanted, field.type)


def _times(times: Sequence[int | None]) -> pa.Array:
    """Milliseconds as microseconds, clamped to the range that Spark can show."""
    try:
        found = pa.array(times, pa.int64())
    except OverflowError:
        # A number that does not even fit into 64 bits.
        found = pa.array([None if ms is None else max(_FIRST_MS, min(ms, TIME_MS_MAX)) for ms in times], pa.int64())
    shown = pc.min_element_wise(found, TIME_MS_MAX, skip_nulls=False)
    return pc.multiply(pc.max_element_wise(shown, _FIRST_MS, skip_nulls=False), 1000)


def _own(rows: Sequence[dict[str, Any] | None], name: str, kind: pa.DataType) -> pa.Array:
    """One of the service's own properties as text."""
    found = [None if properties is None else properties.get(name) for properties in rows]
    if found.count(None) == len(found):
        return pa.nulls(len(found), kind)
    return pa.array([None if value is None else str(from_json(value)) for value in found], kind)


def _maps(rows: Sequence[dict[str, Any] | None], kind: pa.MapType) -> pa.Array:
    shown = [properties or {} for properties in rows]
    if not _HIDDEN.isdisjoint(chain.from_iterable(shown)):
        shown = [{name: value for name, value in each.items() if name not in _HIDDEN} for each in shown]
    return pa.MapArray.from_arrays(
        pa.array([0, *accumulate(map(len, shown))], pa.int32()),
        pa.array(list(chain.from_iterable(shown)), pa.string()),
        pa.array(list(chain.from_iterable(map(dict.values, shown))), pa.string()),
        type=kind,
    )


def _unreadable(payload: bytes, error: DecodeError) -> Fields:
    """A message that cannot be decoded: the whole payload, and the service's own fields."""
    return read_head(payload)._replace(properties={UNREADABLE: to_json(str(error))}, body=payload)
