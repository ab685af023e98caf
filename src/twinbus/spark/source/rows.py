"""Turns messages into rows one by one, for those that `layouts.py` cannot read: their fields become one Arrow batch.

- Only the sections that the requested columns need are decoded.
- A message that cannot be decoded still becomes a row, with the whole message in `_corrupt` and the reason in
  `properties`: one bad message must not block those behind it.
- The batch has exactly the schema that Spark expects, or Spark rejects it.
- Columns are built as a whole, and values that all rows share (mostly null) are not built row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from twinbus.client import ACTIVE, Fields, from_json, read_fields, read_head, to_json
from twinbus.client.resubmission import CLAIM
from twinbus.errors import DecodeError
from twinbus.limits import TIME_MS_MAX
from twinbus.spark.versions import arrow_schema

STATES: Final = ("active", "deferred", "scheduled")
UNREADABLE: Final = "x-twinbus-unreadable"

# Properties of the service's own that are columns, and those that `properties` leaves out.
DEAD_LETTER_COLUMNS: Final = {
    "deadLetterReason": "DeadLetterReason",
    "deadLetterErrorDescription": "DeadLetterErrorDescription",
}
HIDDEN: Final = frozenset({CLAIM, *DEAD_LETTER_COLUMNS.values()})
# The first millisecond of the year 1. Spark cannot show times before it or after the year 9999; "never" is far beyond,
# and a sender can write any value.
FIRST_MS: Final = -62_135_596_800_000

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
TIMES: Final = {
    "enqueuedTime": "enqueued_ms",
    "scheduledEnqueueTime": "scheduled_ms",
    "expiresAt": "expires_ms",
}
PLAIN: Final = _TEXTS | TIMES
_PROPERTY_COLUMNS: Final = frozenset({"properties", *DEAD_LETTER_COLUMNS})


class RowMaker:
    """Builds Arrow batches of one schema from encoded messages of one entity."""

    def __init__(self, schema: StructType, *, entity: str, namespace: str) -> None:
        self.schema: pa.Schema = arrow_schema(schema)
        # Values of the columns `entity` and `namespace`.
        self.constants = {"entity": entity, "namespace": namespace}
        names = set(self.schema.names)
        self._with_properties = bool(names & _PROPERTY_COLUMNS)
        self._with_body = "body" in names
        # Whether a message could not be decoded.
        self._corrupt = False

    def fields(self, payload: bytes) -> Fields:
        """The requested fields of a message."""
        try:
            return read_fields(payload, self._with_properties, self._with_body, True)
        except DecodeError as error:
            self._corrupt = True
            return _unreadable(payload, error)

    def batch(self, rows: Sequence[Fields]) -> pa.RecordBatch:
        """One Arrow batch."""
        turned: Any = zip(*rows, strict=True) if rows else [()] * len(Fields._fields)
        columns = Fields(*turned)
        arrays = [self._array(field, columns, len(rows)) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _array(self, field: pa.Field, columns: Any, count: int) -> pa.Array:
        name = field.name
        plain = PLAIN.get(name)
        if plain is not None:
            values = getattr(columns, plain)
            # Most messages lack most fields.
            if values.count(None) == count:
                return pa.nulls(count, field.type)
            if name in TIMES:
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
        if name in self.constants:
            return pa.repeat(pa.scalar(self.constants[name], field.type), count)
        if name == "properties":
            return _maps(columns.properties, field.type)
        return _own(columns.properties, DEAD_LETTER_COLUMNS[name], field.type)


def _times(times: Sequence[int | None]) -> pa.Array:
    """Milliseconds as microseconds, clamped to the range that Spark can show."""
    try:
        found = pa.array(times, pa.int64())
    except OverflowError:
        # A number that does not even fit into 64 bits.
        found = pa.array([None if ms is None else max(FIRST_MS, min(ms, TIME_MS_MAX)) for ms in times], pa.int64())
    shown = pc.min_element_wise(found, TIME_MS_MAX, skip_nulls=False)
    return pc.multiply(pc.max_element_wise(shown, FIRST_MS, skip_nulls=False), 1000)


def _own(rows: Sequence[dict[str, Any] | None], name: str, kind: pa.DataType) -> pa.Array:
    """One of the service's own properties as text."""
    found = [None if properties is None else properties.get(name) for properties in rows]
    if found.count(None) == len(found):
        return pa.nulls(len(found), kind)
    return pa.array([None if value is None else str(from_json(value)) for value in found], kind)


def _maps(rows: Sequence[dict[str, Any] | None], kind: pa.MapType) -> pa.Array:
    shown = [properties or {} for properties in rows]
    if not HIDDEN.isdisjoint(chain.from_iterable(shown)):
        shown = [{name: value for name, value in each.items() if name not in HIDDEN} for each in shown]
    return pa.MapArray.from_arrays(
        pa.array([0, *accumulate(map(len, shown))], pa.int32()),
        pa.array(list(chain.from_iterable(shown)), pa.string()),
        pa.array(list(chain.from_iterable(map(dict.values, shown))), pa.string()),
        type=kind,
    )


def _unreadable(payload: bytes, error: DecodeError) -> Fields:
    """A message that cannot be decoded: the whole payload, and the service's own fields."""
    return read_head(payload)._replace(properties={UNREADABLE: to_json(str(error))}, body=payload)
