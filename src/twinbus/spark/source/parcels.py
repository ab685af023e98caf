"""Turns rows into parcels: encoded messages in batches that are sent as one transfer.

- Rows keep their order within an entity and a session.
- A parcel has one entity and, if there is one, one session or partition key, because services require that.
- A row that cannot be encoded becomes a refusal, which identifies the row and says why.
- Regular rows are encoded as whole columns (`regular.py`), the others one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from twinbus.client import encode_message, from_json
from twinbus.client.batch import envelope
from twinbus.errors import EncodeError
from twinbus.limits import MESSAGE_ID_CHARS_MAX, SPARK_ALIKE_ROWS_MIN, SPARK_BATCH_BYTES, SPARK_BATCH_ROWS
from twinbus.spark.source.options import IdMode
from twinbus.spark.source.refusals import Refusal
from twinbus.spark.source.regular import Numbers, RegularRows

# What a message adds to a parcel besides its own bytes.
_SECTION_BYTES: Final = 8
# A row with a value in one of these columns is encoded by itself.
_IRREGULAR: Final = frozenset({"partitionKey", "scheduledEnqueueTime", "timeToLive", "_corrupt"})

Parcel = list[bytes]


class Outgoing(NamedTuple):
    """One row, ready to send."""

    entity: str
    # The session id, else the partition key, else None.
    key: str | None
    payload: bytes


class Encoder:
    """Encodes the rows of one task."""

    def __init__(
        self,
        places: dict[str, int],
        *,
        entity: str | None,
        use_entity_column: bool,
        id_mode: IdMode,
        id_prefix: str,
    ) -> None:
        self._places = places
        # The default destination; None if every row must name its own.
        self._entity = entity
        self._use_entity_column = use_entity_column and "entity" in places
        self._id_mode = id_mode
        self._id_prefix = id_prefix
        # The position of the next row in the task.
        self._row = 0

    def encode(self, batch: pa.RecordBatch) -> Iterator[Outgoing | Refusal]:
        """Encode the rows of a batch; a refusal replaces a row that cannot be sent."""
        for at in range(0, batch.num_rows, SPARK_BATCH_ROWS):
            some = batch.slice(at, SPARK_BATCH_ROWS)
            columns = {name: some.column(place) for name, place in self._places.items()}
            rows = range(self._row, self._row + some.num_rows)
            self._row = rows.stop
            if some.num_rows < SPARK_ALIKE_ROWS_MIN or columns["body"].nbytes > SPARK_BATCH_BYTES:
                yield from self._one_by_one(columns, rows)
                continue
            try:
                regular, found = self._regular(columns, rows)
            except ValueError:
                # A text is not UTF-8.
                regular, found = np.empty(0, np.int64), iter(())
            if len(regular) == len(rows):
                yield from found
                continue
            others = np.setdiff1d(np.arange(len(rows)), regular)
            left = {name: column.take(pa.array(others)) for name, column in columns.items()}
            rest = self._one_by_one(left, [rows[place] for place in others])
            order = np.argsort(np.concatenate((regular, others)))
            both = [*found, *rest]
            yield from [both[place] for place in order]

    def _regular(self, columns: dict[str, pa.Array], rows: range) -> tuple[Numbers, Iterator[Outgoing]]:
        """The places of the rows that can be encoded as whole columns, and those rows."""
        regular = np.ones(len(rows), np.bool_)
        for name in _IRREGULAR & columns.keys():
            regular &= columns[name].is_null().to_numpy(zero_copy_only=False)
        ids = pa.nulls(len(rows), pa.string())
        if "messageId" in columns and self._id_mode is not IdMode.POSITION:
            ids = columns["messageId"]
        if ids.null_count and self._id_mode is not IdMode.COLUMN:
            ids = pc.coalesce(ids, pa.array([self._id(row) for row in rows], pa.string()))
        regular &= ids.is_valid().to_numpy(zero_copy_only=False)
        entities = [self._entity] * len(rows)
        if self._use_entity_column:
            entities = [entity or self._entity for entity in columns["entity"].to_pylist()]
        if None in entities:
            regular &= np.array([entity is not None for entity in entities])
        sessions = columns["sessionId"].to_pylist() if "sessionId" in columns else [None] * len(rows)
        found = RegularRows({**columns, "messageId": ids}, regular)
        if len(found.places) < len(rows):
            entities, sessions = ([column[place] for place in found.places] for column in (entities, sessions))
        return found.places, map(Outgoing._make, zip(entities, sessions, found.payloads(), strict=True))

    def _one_by_one(self, arrays: dict[str, pa.Array], rows: Sequence[int]) -> Iterator[Outgoing | Refusal]:
        columns = {name: _values(array) for name, array in arrays.items()}
        nothing = [None] * len(rows)

        def column(name: str) -> Sequence[Any]:
            return columns.get(name, nothing)

        ids = nothing if self._id_mode is IdMode.POSITION else column("messageId")
        entities = column("entity") if self._use_entity_column else nothing
        corrupt = {row: raw for row, raw in zip(rows, columns.get("_corrupt", nothing), strict=True) if raw is not None}
        for row, body, given, entity, session, key, properties, scheduled, ttl, *texts in zip(
            rows,
            column("body"),
            ids,
            entities,
            column("sessionId"),
            column("partitionKey"),
            column("properties"),
            column("scheduledEnqueueTime"),
            column("timeToLive"),
            column("subject"),
            column("contentType"),
            column("correlationId"),
            column("to"),
            column("replyTo"),
            column("replyToSessionId"),
            strict=True,
        ):
            try:
                path = entity or self._entity
                if path is None:
                    raise EncodeError("its column 'entity' is null, and there is no queueName or topicName")
                if corrupt and row in corrupt:
                    raise EncodeError("it is a message that could not be decoded (its column '_corrupt' is not null)")
                payload = encode_message(
                    body if type(body) is bytes else _bytes(body),
                    given if given is not None else self._id(row),
                    session_id=session,
                    subject=texts[0],
                    content_type=texts[1],
                    correlation_id=texts[2],
                    to=texts[3],
                    reply_to=texts[4],
                    reply_to_session_id=texts[5],
                    partition_key=key,
                    ttl_ms=None if ttl is None else _time_to_live(ttl),
                    scheduled_ms=None if scheduled is None else _milliseconds(scheduled),
                    application_properties=_properties(properties) if properties else None,
                )
            except (EncodeError, UnicodeError, OverflowError) as error:
                key = "" if given is None else f" Its messageId is {given!r}."
                reason = f"Row {row} cannot be sent: {str(error).rstrip('.')}.{key}"
                raw = corrupt.get(row, body.encode(errors="replace") if isinstance(body, str) else body)
                yield Refusal(entity or self._entity, given or f"{self._id_prefix}/{row}", reason, raw)
            else:
                yield Outgoing(path, session if session is not None else key, payload)

    def _id(self, row: int) -> str:
        if self._id_mode is IdMode.COLUMN:
            raise EncodeError("messageIdMode is column, and its column 'messageId' is null")
        made = f"{self._id_prefix}/{row}"
        assert len(made) <= MESSAGE_ID_CHARS_MAX
        return made


def parcels_of(rows: Sequence[Outgoing], largest_bytes: int, count_max: int) -> Iterator[Parcel]:
    """Rows for one entity, divided into parcels that fit."""
    by_key: dict[str | None, list[bytes]] = {}
    for row in rows:
        by_key.setdefault(row.key, []).append(row.payload)
    for payloads in by_key.values():
        held: Parcel = []
        size = 0
        for payload in payloads:
            cost = len(payload) + _SECTION_BYTES
            if held and (size + cost > largest_bytes or len(held) >= count_max):
                yield held
                held = []
            if not held:
                # A message that does not fit into a parcel goes alone; if it is too large, the service says so.
                size = len(envelope(payload))
            held.append(payload)
            size += cost
        if held:
            yield held


def _values(column: pa.Array) -> list[Any]:
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        # As whole microseconds; the wire uses milliseconds.
        return [None if value is None else _Micros(value) for value in column.view(pa.int64()).to_pylist()]
    values: list[Any] = column.to_pylist()
    return values


class _Micros(int):
    """A time or a duration in microseconds."""

    __slots__ = ()


def _milliseconds(value: int) -> int:
    return value // 1000 if isinstance(value, _Micros) else int(value)


def _time_to_live(value: int) -> int:
    ttl_ms = _milliseconds(value)
    if ttl_ms < 0:
        # The service would accept it, and it would be gone at once.
        raise EncodeError(f"its timeToLive of {ttl_ms} ms is negative")
    return ttl_ms


def _bytes(body: Any) -> bytes:
    if body is None:
        return b""
    return body.encode() if isinstance(body, str) else bytes(body)


def _properties(given: Any) -> dict[str, Any]:
    pairs = given.items() if isinstance(given, dict) else given
    return {name: None if text is None else from_json(text) for name, text in pairs}
