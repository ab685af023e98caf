"""Messages to rows: many encoded messages become one Arrow batch, column by column.

Rules:
- Only the sections that the wanted columns need are decoded.
- A message that does not read is a row all the same, with all of it in `body` and the reason in `properties`: one bad
  message must not hold up those behind it.
- The batch has exactly the schema that Spark expects, or Spark refuses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from twinbus.client.fields import Fields, read_fields, read_head
from twinbus.client.typed_json import from_json, to_json
from twinbus.errors import DecodeError

STATES: Final = ("active", "deferred", "scheduled")
# The property that marks a message as claimed by a stream: it is ours, and not shown.
CLAIM: Final = "x-twinbus-claim"
UNREADABLE: Final = "x-twinbus-unreadable"

_REASON: Final = "DeadLetterReason"
_DESCRIPTION: Final = "DeadLetterErrorDescription"
_HIDDEN: Final = frozenset({CLAIM, _REASON, _DESCRIPTION})
# The last millisecond of the year 9999: Spark shows no later time, and "never" is far beyond.
_LAST_MS: Final = 253_402_300_799_999

# Column to the field that it shows as it is.
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
    """Makes Arrow batches of one schema from encoded messages of one entity."""

    def __init__(self, schema: StructType, *, entity: str, namespace: str) -> None:
        # The batch's schema, as Spark wants it.
        self.schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        # What the columns `entity` and `namespace` say.
        self._constants = {"entity": entity, "namespace": namespace}
        # Which parts of a message are looked at.
        names = set(self.schema.names)
        self._with_properties = bool(names & _PROPERTY_COLUMNS)
        self._with_body = "body" in names

    def fields(self, payload: bytes) -> Fields:
        """What of a message is wanted."""
        try:
            return read_fields(payload, self._with_properties, self._with_body, True)
        except DecodeError as error:
            return _unreadable(payload, error)

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
            # Most messages leave most of them out.
            if values.count(None) == count:
                return pa.nulls(count, field.type)
            if name in _TIMES:
                return pa.array(_microseconds(values), pa.int64()).view(field.type)
            return pa.array(values, field.type)
        if name == "body":
            if pa.types.is_binary(field.type):
                return pa.array(columns.body, field.type)
            return pa.array([None if body is None else body.decode("utf-8", "replace") for body in columns.body])
        if name == "state":
            return pa.array([STATES[state] if 0 <= state < 3 else None for state in columns.state], field.type)
        if name in self._constants:
            return pa.repeat(pa.scalar(self._constants[name], field.type), count)
        if name == "properties":
            return _maps(columns.properties, field.type)
        wanted = _REASON if name == "deadLetterReason" else _DESCRIPTION
        return pa.array([_own(each, wanted) for each in columns.properties], field.type)


def _microseconds(times: Iterable[int | None]) -> list[int | None]:
    return [None if ms is None else min(ms, _LAST_MS) * 1000 for ms in times]


def _own(properties: dict[str, Any] | None, name: str) -> str | None:
    value = None if properties is None else properties.get(name)
    return None if value is None else str(from_json(value))


def _maps(rows: Iterable[dict[str, Any] | None], kind: pa.MapType) -> pa.Array:
    keys: list[str] = []
    values: list[str] = []
    offsets = [0]
    for properties in rows:
        if properties:
            if not _HIDDEN.isdisjoint(properties):
                properties = {name: value for name, value in properties.items() if name not in _HIDDEN}
            keys += properties
            values += properties.values()
        offsets.append(len(keys))
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.array(keys, pa.string()), pa.array(values, pa.string()), type=kind
    )


def _unreadable(payload: bytes, error: DecodeError) -> Fields:
    """All of a message that does not read, with what the service itself wrote."""
    return read_head(payload)._replace(properties={UNREADABLE: to_json(str(error))}, body=payload)
