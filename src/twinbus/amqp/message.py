"""A whole message as an object, for `$cbs`, `$management` and the client; the broker's hot path never builds one.

Three rules. Fields have their AMQP names in snake_case and hold decoded values (`types`); None is absent. `encode`
writes the sections in the standard order with small descriptors, `decode` takes them in any order. A field holds what
the peer wrote, also where AMQP wants another type (a session id as binary): the types below are what is usual, so this
file is one of the two, with `types`, that must not be compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from twinbus.amqp import sections
from twinbus.amqp.codec import decode, encode, encode_into
from twinbus.amqp.sections import Sections, Span, data_section, data_sections, decode_section, locate
from twinbus.amqp.states import composite
from twinbus.amqp.types import Symbol, Timestamp, UByte, UInt
from twinbus.errors import DecodeError

_HEADER_FIELDS: Final = 5
_PROPERTY_FIELDS: Final = 13


class AmqpMessage:
    """Header, annotations, properties, body, footer."""

    __slots__ = (
        "absolute_expiry_time",
        "application_properties",
        "content_encoding",
        "content_type",
        "correlation_id",
        "creation_time",
        "data",
        "delivery_annotations",
        "delivery_count",
        "durable",
        "first_acquirer",
        "footer",
        "group_id",
        "group_sequence",
        "has_value",
        "message_annotations",
        "message_id",
        "priority",
        "reply_to",
        "reply_to_group_id",
        "sequences",
        "subject",
        "to",
        "ttl",
        "user_id",
        "value",
    )

    def __init__(self) -> None:
        # --- header ---
        # Whether it must survive a restart.
        self.durable: bool | None = None
        # 0 to 9, 4 is normal.
        self.priority: int | None = None
        # Time to live, in milliseconds.
        self.ttl: int | None = None
        # Whether nobody had it before.
        self.first_acquirer: bool | None = None
        # Failed deliveries before this one.
        self.delivery_count: int | None = None
        # --- annotations ---
        # For this hop only.
        self.delivery_annotations: dict[Any, Any] | None = None
        # For the whole way.
        self.message_annotations: dict[Any, Any] | None = None
        # --- properties ---
        # A string, a uuid, a ulong or binary.
        self.message_id: Any = None
        # Who created it.
        self.user_id: bytes | None = None
        # The node it is meant for.
        self.to: str | None = None
        # What it is about; Service Bus calls it label or subject.
        self.subject: str | None = None
        # Where answers go.
        self.reply_to: str | None = None
        # The message it answers.
        self.correlation_id: Any = None
        # The media type of the data.
        self.content_type: str | None = None
        # How the data is packed.
        self.content_encoding: str | None = None
        # When it lapses.
        self.absolute_expiry_time: int | None = None
        # When it was made.
        self.creation_time: int | None = None
        # Service Bus: the session id.
        self.group_id: str | None = None
        # Its place in the group.
        self.group_sequence: int | None = None
        # Service Bus: the session id for answers.
        self.reply_to_group_id: str | None = None
        # --- the application's own ---
        self.application_properties: dict[str, Any] | None = None
        # --- body: one of the three ---
        # The binaries of its data sections.
        self.data: list[bytes] | None = None
        # The lists of its sequence sections.
        self.sequences: list[list[Any]] | None = None
        # The value of its value section; see has_value, as the value may be None.
        self.value: Any = None
        # Whether the body is a value.
        self.has_value: bool = False
        # --- footer ---
        self.footer: dict[Any, Any] | None = None

    @classmethod
    def of_value(cls, value: Any) -> AmqpMessage:
        """A message whose body is one AMQP value."""
        message = cls()
        message.value = value
        message.has_value = True
        return message

    @classmethod
    def of_data(cls, *binaries: bytes) -> AmqpMessage:
        """A message whose body is data."""
        message = cls()
        message.data = list(binaries)
        return message

    @classmethod
    def decode(cls, payload: bytes) -> AmqpMessage:
        message = cls()
        found = locate(payload)
        if found.header is not None:
            message._take_header(_fields(payload, found.header, _HEADER_FIELDS))
        if found.properties is not None:
            message._take_properties(_fields(payload, found.properties, _PROPERTY_FIELDS))
        message.delivery_annotations = _map(payload, found.delivery_annotations)
        message.message_annotations = _map(payload, found.message_annotations)
        message.application_properties = _map(payload, found.application_properties)
        message.footer = _map(payload, found.footer)
        message._take_body(payload, found)
        return message

    @classmethod
    def decode_readable(cls, payload: bytes) -> tuple[AmqpMessage, dict[str, bytes]]:
        """What can be decoded of header, message annotations, properties and body; and by name the bytes of those
        sections that cannot be. For whoever must show a message, whatever a sender wrote into it."""
        message = cls()
        found = locate(payload)
        unreadable: dict[str, bytes] = {}

        def take(name: str, span: Span | None, work: Callable[[Span], None]) -> None:
            if span is not None:
                try:
                    work(span)
                except DecodeError:
                    unreadable[name] = payload[span[0] : span[1]]

        def take_annotations(span: Span) -> None:
            message.message_annotations = _map(payload, span)

        def take_application_properties(span: Span) -> None:
            message.application_properties = _map(payload, span)

        take("header", found.header, lambda span: message._take_header(_fields(payload, span, _HEADER_FIELDS)))
        take("message-annotations", found.message_annotations, take_annotations)
        take(
            "properties",
            found.properties,
            lambda span: message._take_properties(_fields(payload, span, _PROPERTY_FIELDS)),
        )
        take("application-properties", found.application_properties, take_application_properties)
        take("body", found.body, lambda _: message._take_body(payload, found))
        return message, unreadable

    def _take_header(self, fields: list[Any]) -> None:
        self.durable, self.priority, self.ttl, self.first_acquirer, self.delivery_count = fields

    def _take_properties(self, fields: list[Any]) -> None:
        self.message_id = fields[0]
        self.user_id = fields[1]
        self.to = fields[2]
        self.subject = fields[3]
        self.reply_to = fields[4]
        self.correlation_id = fields[5]
        self.content_type = fields[6]
        self.content_encoding = fields[7]
        self.absolute_expiry_time = fields[8]
        self.creation_time = fields[9]
        self.group_id = fields[10]
        self.group_sequence = fields[11]
        self.reply_to_group_id = fields[12]

    def _take_body(self, payload: bytes, found: Sections) -> None:
        if found.body is None:
            return
        code, offset = sections.section_kind(payload, found.body)
        if code == sections.DATA:
            self.data = data_sections(payload, found.body)
        elif code == sections.VALUE:
            self.value = decode_section(payload, found.body)
            self.has_value = True
        else:
            self.sequences = []
            start, end = found.body
            while start < end:
                kind, offset = sections.section_kind(payload, (start, end))
                value, start = decode(payload, offset)
                if kind != sections.SEQUENCE or not isinstance(value, list):
                    raise DecodeError("a sequence section does not hold a list")
                self.sequences.append(value)

    def encode(self) -> bytes:
        buf = bytearray()
        header = [
            self.durable,
            None if self.priority is None else UByte(self.priority),
            None if self.ttl is None else UInt(self.ttl),
            self.first_acquirer,
            None if self.delivery_count is None else UInt(self.delivery_count),
        ]
        if header != [None] * _HEADER_FIELDS:
            buf += composite(sections.HEADER, header)
        _put_map(buf, sections.DELIVERY_ANNOTATIONS, self.delivery_annotations, Symbol)
        _put_map(buf, sections.MESSAGE_ANNOTATIONS, self.message_annotations, Symbol)
        properties = self._properties()
        if properties != [None] * _PROPERTY_FIELDS:
            buf += composite(sections.PROPERTIES, properties)
        _put_map(buf, sections.APPLICATION_PROPERTIES, self.application_properties, str)
        if self.data is not None:
            for binary in self.data:
                buf += data_section(binary)
        elif self.sequences is not None:
            for sequence in self.sequences:
                buf += b"\x00\x53\x76" + encode(sequence)
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
            None if self.content_type is None else Symbol(self.content_type),
            None if self.content_encoding is None else Symbol(self.content_encoding),
            None if self.absolute_expiry_time is None else Timestamp(self.absolute_expiry_time),
            None if self.creation_time is None else Timestamp(self.creation_time),
            self.group_id,
            None if self.group_sequence is None else UInt(self.group_sequence),
            self.reply_to_group_id,
        ]


def _fields(payload: bytes, span: Span, count: int) -> list[Any]:
    value = decode_section(payload, span)
    if not isinstance(value, list) or len(value) > count:
        raise DecodeError("a message section is not the list it should be")
    return value + [None] * (count - len(value))


def _map(payload: bytes, span: Span | None) -> dict[Any, Any] | None:
    if span is None:
        return None
    value = decode_section(payload, span)
    if value is not None and not isinstance(value, dict):
        raise DecodeError("a message section is not the map it should be")
    return value


def _put_map(buf: bytearray, code: int, value: dict[Any, Any] | None, key_type: type[str]) -> None:
    """Plain text keys become symbols in annotations; what already has a type keeps it."""
    if value is None:
        return
    buf += bytes((0, 0x53, code))
    encode_into(buf, {key_type(key) if type(key) is str else key: item for key, item in value.items()})
