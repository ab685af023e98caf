"""How subscription rules see a message: its stored form, decoded piece by piece on demand.

A topic whose subscriptions take everything never decodes anything; a filter on the label decodes the properties once
for all filters. What cannot be decoded, because of its sender or a damaged disk, raises FilterEvaluationError, so that
other messages still go through.
"""

from __future__ import annotations

import datetime
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from twinbus.amqp.codec import decode, encode
from twinbus.amqp.reader import decode_section, locate, plain_text
from twinbus.amqp.sections import CREATION
from twinbus.amqp.types import Byte, Described, Float32, Int, Short, Symbol, Timestamp, UByte, UInt, ULong, UShort
from twinbus.broker.messages.changes import ANNOTATIONS, FIELDS, REMOVED, SYSTEM, changed
from twinbus.broker.messages.stored_head import DURABLE_ABSENT, DURABLE_MASK, HEAD, HEAD_BYTES, PRIORITY_ABSENT
from twinbus.entities.changes import check_size
from twinbus.entities.filters import REMOVED as GONE
from twinbus.entities.filters import Changes, Properties, fold
from twinbus.entities.filters.numbers import Int8, Int16, Int32, Single, UInt8, UInt16, UInt32, UInt64
from twinbus.entities.message import NewMessage, QueuedMessage, Relayed
from twinbus.errors import ArgumentError, EncodeError, FilterEvaluationError, ProtocolError, StoreError

TIMESPAN = Symbol("com.microsoft:timespan")
DATETIME_OFFSET = Symbol("com.microsoft:datetime-offset")
URI = Symbol("com.microsoft:uri")

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_YEAR_ONE = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)
# Numbers on the wire, and as rules keep them.
_KEPT: dict[type, type] = {
    Byte: Int8,
    Short: Int16,
    Int: Int32,
    UByte: UInt8,
    UShort: UInt16,
    UInt: UInt32,
    ULong: UInt64,
    Float32: Single,
}
_WIRE: dict[type, type] = {kept: wire for wire, kept in _KEPT.items()}
# Ticks of 100 ns in a microsecond.
_TICKS = 10

# Where the headers of JMS are in the properties section.
_HEADER_FIELDS = {
    "JMSMessageID": FIELDS["MessageId"],
    "JMSType": FIELDS["Label"],
    "JMSReplyTo": FIELDS["ReplyTo"],
    "JMSCorrelationID": FIELDS["CorrelationId"],
    "JMSTimestamp": CREATION,
    "JMSXGroupID": FIELDS["SessionId"],
    "JMSXGroupSeq": 11,
}
_PRIORITY_DEFAULT = 4

_UNREADABLE = (
    ProtocolError,
    StoreError,
    UnicodeDecodeError,
    IndexError,
    struct.error,
    ValueError,
    TypeError,
    OverflowError,
)


class TopicMessageView:
    """One message on its way through a topic."""

    __slots__ = (
        "_annotations",
        "_body",
        "_enqueued_ms",
        "_expires_ms",
        "_fields",
        "_message",
        "_parts",
        "_properties",
        "_seq",
        "_size",
        "_stored",
    )

    def __init__(
        self,
        body: Callable[[int], bytes],
        stored: bytes | None,
        size: int,
        message: QueuedMessage | None,
    ) -> None:
        # Reads a body by number.
        self._body = body
        # The stored form; None if the body of `message` must be read first.
        self._stored = stored
        # Size of the message as sent.
        self._size = size
        # The message in the entity it comes from; None if it comes from a sender.
        self._message = message
        # Set by `place`.
        self._seq = 0
        self._enqueued_ms = 0
        self._expires_ms: int | None = None
        # Parts of the stored form: durable flag, number of annotations, their bytes, the tail, the priority. None until
        # needed.
        self._parts: tuple[int, int, bytes, bytes, int] | None = None
        # Decoded properties section; None until needed.
        self._fields: list[Any] | None = None
        # Decoded annotations of the sender; None until needed.
        self._annotations: dict[str, Any] | None = None
        # Decoded application properties; None until needed.
        self._properties: Properties | None = None

    def place(self, seq: int, enqueued_ms: int, expires_ms: int | None) -> None:
        self._seq = seq
        self._enqueued_ms = enqueued_ms
        self._expires_ms = expires_ms

    def new_id(self) -> uuid.UUID:
        return uuid.uuid4()

    def readable(self) -> bool:
        try:
            self._taken_apart()
        except StoreError:
            return False
        except _UNREADABLE:
            pass  # the sender wrote it like that: the rules decide
        return True

    def looked_bytes(self) -> int:
        try:
            parts = self._taken_apart()
            found = locate(parts[3])
        except _UNREADABLE:
            return self._size
        spans = (found.properties, found.application_properties)
        return len(parts[2]) + sum(span[1] - span[0] for span in spans if span is not None)

    @property
    def properties(self) -> Properties:
        if self._properties is None:
            try:
                self._properties = Properties(self._application_properties())
            except _UNREADABLE as error:
                raise FilterEvaluationError("The application properties of the message cannot be decoded.") from error
        return self._properties

    def system(self, name: str) -> Any:
        index = FIELDS.get(name)
        try:
            if index is not None:
                fields = self._property_fields()
                value = fields[index] if index < len(fields) else None
                return value if value is None or value.__class__ is str else plain_text(value)
            annotation = ANNOTATIONS.get(name)
            if annotation is not None:
                value = self._own_annotations().get(annotation)
                return value if value is None or isinstance(value, int) else plain_text(value)
            return self._of_broker(name)
        except _UNREADABLE as error:
            raise FilterEvaluationError(f"The {name} of the message cannot be decoded.") from error

    def header(self, name: str) -> Any:
        """A JMS header as Qpid JMS shows it: see docs/jms.md."""
        try:
            return self._header(name)
        except _UNREADABLE as error:
            raise FilterEvaluationError(f"The {name} of the message cannot be decoded.") from error

    def encode(self, changes: Changes) -> dict[str, str | bytes]:
        """A value keeps the property's previous AMQP type if that type can hold it."""
        found: dict[str, str | bytes] = {}
        try:
            for name, value in changes.properties.items():
                found[name] = REMOVED if value is GONE else encode(self._typed(name, value))
            for name, value in changes.system.items():
                if name in ("ScheduledEnqueueTimeUtc", "ExpiresAtUtc") and isinstance(value, int):
                    value = Timestamp(value)
                found[SYSTEM + name] = REMOVED if value is GONE else encode(value)
        except EncodeError as error:
            raise FilterEvaluationError(f"A value has no AMQP form: {error}") from error
        try:
            check_size(found)
        except ArgumentError as error:
            raise FilterEvaluationError(f"The action's changes are too large: {error.text}") from error
        return found

    # --- parts ------------------------------------------------------------------------------------------------------

    def _taken_apart(self) -> tuple[int, int, bytes, bytes, int]:
        parts = self._parts
        if parts is None:
            message = self._message
            stored = self._stored
            if stored is None:
                assert message is not None
                stored = self._body(message.body_number)
            if message is not None and message.changes is not None:
                stored = changed(stored, message.changes)
            _, flags, priority, _, pairs, pairs_bytes, _, delivery_bytes = HEAD.unpack_from(stored)
            durable = flags & DURABLE_MASK
            annotations = stored[HEAD_BYTES : HEAD_BYTES + pairs_bytes]
            tail = stored[HEAD_BYTES + pairs_bytes + delivery_bytes :]
            parts = self._parts = (durable, pairs, annotations, tail, priority)
        return parts

    def _property_fields(self) -> list[Any]:
        if self._fields is None:
            tail = self._taken_apart()[3]
            span = locate(tail).properties
            fields = [] if span is None else decode_section(tail, span)
            self._fields = fields if isinstance(fields, list) else []
        return self._fields

    def _own_annotations(self) -> dict[str, Any]:
        if self._annotations is None:
            _, pairs, buffer, _, _ = self._taken_apart()
            found: dict[str, Any] = {}
            at = 0
            for _ in range(pairs):
                key, at = decode(buffer, at)
                found[str(key)], at = decode(buffer, at)
            self._annotations = found
        return self._annotations

    def _application_properties(self) -> dict[str, Any]:
        tail = self._taken_apart()[3]
        span = locate(tail).application_properties
        found = {} if span is None else decode_section(tail, span)
        if not isinstance(found, dict):
            return {}
        return {name: rule_value(value) for name, value in found.items()}

    def _of_broker(self, name: str) -> Any:
        """System properties that the broker sets."""
        message = self._message
        relayed = message if isinstance(message, Relayed) else None
        if name == "EnqueuedTimeUtc":
            return self._enqueued_ms
        if name == "ExpiresAtUtc":
            return self._expires_ms
        if name == "TimeToLive":
            return None if self._expires_ms is None else self._expires_ms - self._enqueued_ms
        if name == "SequenceNumber":
            return self._seq
        if name == "EnqueuedSequenceNumber":
            return self._seq if relayed is None else relayed.origin_seq
        if name == "Size":
            return self._size
        if name in ("State", "DeliveryCount"):
            return 0
        if name == "ForcePersistence":
            durable = self._taken_apart()[0]
            return durable != DURABLE_ABSENT and bool(durable)
        if name == "DeadLetterSource":
            return None if relayed is None else relayed.dead_letter_source
        return None

    def _header(self, name: str) -> Any:
        index = _HEADER_FIELDS.get(name)
        if index is not None:
            fields = self._property_fields()
            value = fields[index] if index < len(fields) else None
            if name in ("JMSMessageID", "JMSCorrelationID"):
                return None if value is None else _shown_id(value, bare=name == "JMSCorrelationID")
            return value if value is None or isinstance(value, int) else plain_text(value)
        durable, _, _, _, priority = self._taken_apart()
        if name == "JMSPriority":
            return _PRIORITY_DEFAULT if priority == PRIORITY_ABSENT else priority
        if name == "JMSDeliveryMode":
            return "PERSISTENT" if durable != DURABLE_ABSENT and durable else "NON_PERSISTENT"
        # JMSXDeliveryCount: this delivery counts too.
        return 1 if self._message is None else self._message.delivery_count + 1

    def _typed(self, name: str, value: Any) -> Any:
        value = wire_value(value)
        before = self.properties.folded.get(fold(name))
        kind: Any = before.__class__
        if kind is value.__class__ or isinstance(value, bool) or isinstance(before, bool):
            return value
        if isinstance(value, int) and isinstance(before, int):
            typed = kind(value)
            try:
                encode(typed)
            except EncodeError:
                return value  # too large for the previous type: send a long
            return typed
        if isinstance(value, float) and kind is Float32:
            return Float32(value)
        return value


class StoredViews:
    """Creates views of new messages and of stored ones."""

    __slots__ = ("_body",)

    def __init__(self, body: Callable[[int], bytes]) -> None:
        # Reads a body by number.
        self._body = body

    def of_new(self, new: NewMessage) -> TopicMessageView:
        return TopicMessageView(self._body, new.body, new.size, None)

    def of_stored(self, message: QueuedMessage) -> TopicMessageView:
        return TopicMessageView(self._body, None, message.size, message)


def _shown_id(value: Any, bare: bool) -> str:
    """An AMQP id as Qpid JMS shows it. A message id without the prefix gets one; `bare` leaves text as it is."""
    if isinstance(value, uuid.UUID):
        return f"ID:AMQP_UUID:{value}"
    if isinstance(value, bytes):
        return f"ID:AMQP_BINARY:{value.hex().upper()}"
    if isinstance(value, int):
        return f"ID:AMQP_ULONG:{int(value)}"
    text = plain_text(value)
    return text if bare or text.startswith("ID:") else f"ID:AMQP_NO_PREFIX:{text}"


def rule_value(value: Any) -> Any:
    """A wire value as rules compare it: .NET's described types are converted if possible."""
    if not isinstance(value, Described):
        return value
    inner = value.value
    try:
        if value.descriptor == URI:
            return str(inner)
        if value.descriptor == TIMESPAN:
            return datetime.timedelta(microseconds=int(inner) // _TICKS)
        if value.descriptor == DATETIME_OFFSET:
            return _YEAR_ONE + datetime.timedelta(microseconds=int(inner) // _TICKS)
    except (OverflowError, TypeError, ValueError):
        pass  # out of range or not a number: leave it as it is
    return value


def given_value(value: Any) -> Any:
    """A wire value as a rule keeps it, with the type it has on the wire."""
    if isinstance(value, Timestamp):
        try:
            return _EPOCH + datetime.timedelta(milliseconds=int(value))
        except OverflowError:
            return int(value)
    kept = _KEPT.get(type(value))
    return rule_value(value) if kept is None else kept(value)


def wire_value(value: Any) -> Any:
    """A rule's value as an AMQP value."""
    wire = _WIRE.get(type(value))
    if wire is not None:
        return wire(value)
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, datetime.datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)
        return Timestamp((moment - _EPOCH) // datetime.timedelta(milliseconds=1))
    if isinstance(value, datetime.timedelta):
        return Described(TIMESPAN, (value // datetime.timedelta(microseconds=1)) * _TICKS)
    return value
