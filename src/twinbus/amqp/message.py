"""A message as an object, for `$cbs`, `$management` and the client; the broker's hot path never builds one.

Three rules. Fields have their AMQP names in snake_case and hold decoded values (see `types`); None means absent.
`encode` writes the sections in standard order with small descriptors; `decode` accepts them in any order. A field holds
whatever the peer wrote, even a type AMQP does not allow there, such as a binary session id. The annotations below are
therefore only the usual types, and this file and `types` must not be compiled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from twinbus.amqp import sections
from twinbus.amqp.codec import count_values, encode, encode_into, skip
from twinbus.amqp.reader import (
    Sections,
    Span,
    data_sections,
    decode_section,
    listed,
    mapped,
    section_kind,
    sequence_sections,
    spans,
)
from twinbus.amqp.sections import HEADER_FIELDS, PROPERTY_FIELDS, data_section
from twinbus.amqp.states import composite
from twinbus.amqp.types import Symbol, Timestamp, UByte, UInt
from twinbus.errors import DecodeError

_RANGES = {UByte: range(1 << 8), UInt: range(1 << 32), Timestamp: range(-(1 << 63), 1 << 63)}


@dataclass(slots=True, eq=False)
class AmqpMessage:
    """The header, annotations, properties, body and footer of a message."""

    durable: bool | None = None
    # 0 to 9, 4 is normal.
    priority: int | None = None
    # In milliseconds.
    ttl: int | None = None
    first_acquirer: bool | None = None
    # Earlier delivery attempts that failed.
    delivery_count: int | None = None
    # For the next hop only.
    delivery_annotations: dict[Any, Any] | None = None
    message_annotations: dict[Any, Any] | None = None
    # A string, a uuid, a ulong or binary.
    message_id: Any = None
    user_id: bytes | None = None
    to: str | None = None
    # Service Bus also calls it the label.
    subject: str | None = None
    reply_to: str | None = None
    correlation_id: Any = None
    content_type: str | None = None
    content_encoding: str | None = None
    absolute_expiry_time: int | None = None
    creation_time: int | None = None
    # The Service Bus session id.
    group_id: str | None = None
    group_sequence: int | None = None
    # The Service Bus session id for replies.
    reply_to_group_id: str | None = None
    application_properties: dict[str, Any] | None = None
    # The body is one of these: binaries of data sections, lists of sequence sections, a single value, or the encoded
    # sections of a body with more values than its reader wants.
    data: list[bytes] | None = None
    sequences: list[list[Any]] | None = None
    value: Any = None
    # Distinguishes a body of value null from no body.
    has_value: bool = False
    encoded: bytes | None = None
    footer: dict[Any, Any] | None = None

    @classmethod
    def of_value(cls, value: Any) -> AmqpMessage:
        """Create a message whose body is one AMQP value."""
        return cls(value=value, has_value=True)

    @classmethod
    def of_data(cls, *binaries: bytes) -> AmqpMessage:
        """Create a message whose body consists of data sections."""
        return cls(data=list(binaries))

    @classmethod
    def decode(cls, payload: bytes, values_max: int | None = None, body_values_max: int | None = None) -> AmqpMessage:
        """Decode a message. A body with more than `values_max` values, or its own maximum, stays encoded; any other
        section with so many is an error."""
        message = cls()
        message._take(payload, None, values_max, body_values_max)
        return message

    @classmethod
    def decode_readable(cls, payload: bytes, values_max: int | None = None) -> tuple[AmqpMessage, dict[str, bytes]]:
        """Decode what can be decoded; return the bytes of unreadable sections by name. For callers that must show any
        message, whatever its sender wrote."""
        message = cls()
        unreadable: dict[str, bytes] = {}
        message._take(payload, unreadable, values_max, None)
        return message, unreadable

    @property
    def body_bytes(self) -> int:
        """The size of the body alone: of its data or text or, for any other value, of its encoding."""
        if self.data is not None:
            return sum(map(len, self.data))
        if self.encoded is not None:
            return len(self.encoded)
        if self.sequences is not None:
            return sum(len(encode(each)) for each in self.sequences)
        if self.value is None:
            return 0
        if isinstance(self.value, str):
            return len(self.value.encode(errors="surrogatepass"))
        return len(self.value if isinstance(self.value, bytes) else encode(self.value))

    def _take(
        self,
        payload: bytes,
        unreadable: dict[str, bytes] | None,
        values_max: int | None,
        body_values_max: int | None,
    ) -> None:
        for name, span in zip(Sections._fields, spans(payload), strict=True):
            if span is None:
                continue
            try:
                most = body_values_max if name == "body" and body_values_max is not None else values_max
                if most is not None and _holds_more(payload, span, most):
                    if name != "body":
                        raise DecodeError(f"a section holds more than {most} values")
                    self.encoded = payload[span[0] : span[1]]
                elif name == "properties":
                    (
                        self.message_id,
                        self.user_id,
                        self.to,
                        self.subject,
                        self.reply_to,
                        self.correlation_id,
                        self.content_type,
                        self.content_encoding,
                        self.absolute_expiry_time,
                        self.creation_time,
                        self.group_id,
                        self.group_sequence,
                        self.reply_to_group_id,
                    ) = listed(payload, span, PROPERTY_FIELDS)
                elif name == "header":
                    fields = listed(payload, span, HEADER_FIELDS)
                    self.durable, self.priority, self.ttl, self.first_acquirer, self.delivery_count = fields
                elif name == "body":
                    self._take_body(payload, span)
                else:
                    setattr(self, name, mapped(payload, span))
            except DecodeError:
                if unreadable is None:
                    raise
                unreadable[name.replace("_", "-")] = payload[span[0] : span[1]]

    def _take_body(self, payload: bytes, span: Span) -> None:
        code, _ = section_kind(payload, span[0])
        if code == sections.DATA:
            self.data = data_sections(payload, span)
        elif code == sections.SEQUENCE:
            self.sequences = sequence_sections(payload, span)
        else:
            self.value = decode_section(payload, span)
            self.has_value = True

    def encode(self) -> bytes:
        buf = bytearray()
        header = [
            self.durable,
            _typed(UByte, self.priority),
            _typed(UInt, self.ttl),
            self.first_acquirer,
            _typed(UInt, self.delivery_count),
        ]
        if header != [None] * HEADER_FIELDS:
            buf += composite(sections.HEADER, header)
        _put_map(buf, sections.DELIVERY_ANNOTATIONS, self.delivery_annotations, Symbol)
        _put_map(buf, sections.MESSAGE_ANNOTATIONS, self.message_annotations, Symbol)
        properties = self._properties()
        if properties != [None] * PROPERTY_FIELDS:
            buf += composite(sections.PROPERTIES, properties)
        _put_map(buf, sections.APPLICATION_PROPERTIES, self.application_properties, str)
        if self.data is not None:
            for binary in self.data:
                buf += data_section(binary)
        elif self.sequences is not None:
            for sequence in self.sequences:
                buf += b"\x00\x53\x76" + encode(sequence)
        elif self.encoded is not None:
            buf += self.encoded
        elif self.has_value:
            buf += b"\x00\x53\x77"
            encode_into(buf, self.value)
        _put_map(buf, sections.FOOTER, self.footer, Symbol)
        return bytes(buf)

    def _properties(self) -> list[Any]:
        return [
            self.message_id,
            self.user_id,
            self.to,
            self.subject,
            self.reply_to,
            self.correlation_id,
            _typed(Symbol, self.content_type),
            _typed(Symbol, self.content_encoding),
            _typed(Timestamp, self.absolute_expiry_time),
            _typed(Timestamp, self.creation_time),
            self.group_id,
            _typed(UInt, self.group_sequence),
            self.reply_to_group_id,
        ]


def _holds_more(payload: bytes, span: Span, most: int) -> bool:
    """Whether a section, or several of one kind, hold more than so many values."""
    offset, end = span
    if end - offset <= most:
        return False
    count = 0
    while offset < end and count <= most:
        offset = section_kind(payload, offset)[1]
        count += count_values(payload, offset, most - count)
        offset = skip(payload, offset)
    return count > most


def _typed(kind: type[Symbol | Timestamp | UByte | UInt], value: Any) -> Any:
    """Return a plain string or number as `kind`. Anything else that a peer wrote there is encoded as it was decoded."""
    if kind is Symbol:
        return Symbol(value) if type(value) is str else value
    return kind(value) if type(value) is int and value in _RANGES[kind] else value


def _put_map(buf: bytearray, code: int, value: dict[Any, Any] | None, key_type: type[str]) -> None:
    """Write a map section. Plain strings become keys of `key_type`; typed keys keep their type."""
    if value is None:
        return
    buf += bytes((0, 0x53, code))
    encode_into(buf, {key_type(key) if type(key) is str else key: item for key, item in value.items()})
