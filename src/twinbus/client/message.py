"""Messages as the client's user sees them.

Two rules. A message to send is encoded once; callers that already have the bytes may send those. A received message
stays encoded until a property is read, so forwarding costs no decoding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from twinbus.amqp import AmqpMessage, Symbol
from twinbus.amqp.reader import ENQUEUED_TIME, SCHEDULED, SEQUENCE_NUMBER, STATE, whole
from twinbus.client.outgoing import UINT_MAX, encode_message
from twinbus.errors import DecodeError, EncodeError

ENQUEUED_SEQUENCE_NUMBER = Symbol("x-opt-enqueue-sequence-number")
LOCKED_UNTIL = Symbol("x-opt-locked-until")


@dataclass(slots=True)
class Message:
    """A message to send. Times are milliseconds since the Unix epoch, `ttl_ms` a duration."""

    body: bytes | str = b""
    message_id: str | None = None
    session_id: str | None = None
    subject: str | None = None
    content_type: str | None = None
    correlation_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    reply_to_session_id: str | None = None
    partition_key: str | None = None
    ttl_ms: int | None = None
    scheduled_ms: int | None = None
    application_properties: dict[str, Any] | None = None

    def encode(self) -> bytes:
        """Encode the message for the wire."""
        if self.ttl_ms is not None and not 0 <= self.ttl_ms <= UINT_MAX:
            raise EncodeError(f"The time to live of {self.ttl_ms} ms is out of range: 0 to {UINT_MAX}.")
        return encode_message(
            self.body.encode() if isinstance(self.body, str) else self.body,
            self.message_id,
            session_id=self.session_id,
            subject=self.subject,
            content_type=self.content_type,
            correlation_id=self.correlation_id,
            to=self.to,
            reply_to=self.reply_to,
            reply_to_session_id=self.reply_to_session_id,
            partition_key=self.partition_key,
            ttl_ms=self.ttl_ms,
            scheduled_ms=self.scheduled_ms,
            application_properties=self.application_properties,
        )


class ReceivedMessage:
    """A received message; `payload` is all of it, as it arrived."""

    __slots__ = ("_amqp", "delivery_id", "locked_until", "payload", "tag")

    def __init__(self, payload: bytes, delivery_id: int | None, tag: bytes, locked_until: int | None = None) -> None:
        # The encoded message, including the broker's annotations.
        self.payload = payload
        # None if the message was peeked or received as deferred, by request.
        self.delivery_id = delivery_id
        # The lock token in the byte order of the delivery tag; empty if not locked.
        self.tag = tag
        # Lock expiry after the last renewal; None before one.
        self.locked_until = locked_until
        # Decoded on first use.
        self._amqp: AmqpMessage | None = None

    @property
    def amqp(self) -> AmqpMessage:
        """The decoded message."""
        if self._amqp is None:
            self._amqp = AmqpMessage.decode(self.payload)
        return self._amqp

    def decode_readable(self) -> dict[str, bytes]:
        """Decode what can be decoded, for callers that must show any message. Return the bytes of unreadable sections
        by name."""
        self._amqp, unreadable = AmqpMessage.decode_readable(self.payload)
        return unreadable

    @property
    def _head(self) -> AmqpMessage:
        """The message for reading what the service wrote, which is readable whatever the sender wrote."""
        try:
            return self.amqp
        except DecodeError:
            return AmqpMessage.decode_readable(self.payload)[0]

    @property
    def lock_token(self) -> UUID | None:
        """The message's lock token; None if it is not locked."""
        return UUID(bytes_le=self.tag) if len(self.tag) == 16 else None

    @property
    def body(self) -> Any:
        """The body: bytes for data, otherwise the value or the list of sequences."""
        message = self.amqp
        if message.data is not None:
            return b"".join(message.data)
        if message.sequences is not None:
            return message.sequences
        return message.value

    @property
    def body_bytes(self) -> int:
        """The size of the body alone, without properties."""
        return self.amqp.body_bytes

    @property
    def message_id(self) -> Any:
        return self.amqp.message_id

    @property
    def session_id(self) -> str | None:
        return self.amqp.group_id

    @property
    def subject(self) -> str | None:
        return self.amqp.subject

    @property
    def correlation_id(self) -> Any:
        return self.amqp.correlation_id

    @property
    def content_type(self) -> str | None:
        return self.amqp.content_type

    @property
    def application_properties(self) -> dict[str, Any]:
        return self.amqp.application_properties or {}

    @property
    def delivery_count(self) -> int:
        """Earlier delivery attempts that failed."""
        return self._head.delivery_count or 0

    @property
    def sequence_number(self) -> int:
        return int(self._annotation(SEQUENCE_NUMBER) or 0)

    @property
    def enqueued_sequence_number(self) -> int:
        return int(self._annotation(ENQUEUED_SEQUENCE_NUMBER) or 0)

    @property
    def enqueued_ms(self) -> int | None:
        return self._time(ENQUEUED_TIME)

    @property
    def scheduled_ms(self) -> int | None:
        return self._time(SCHEDULED)

    @property
    def locked_until_ms(self) -> int | None:
        """Lock expiry time."""
        return self.locked_until if self.locked_until is not None else self._time(LOCKED_UNTIL)

    @property
    def state(self) -> int:
        """0 active, 1 deferred, 2 scheduled."""
        return int(self._annotation(STATE) or 0)

    def _annotation(self, name: Symbol) -> Any:
        annotations = self._head.message_annotations
        return None if annotations is None else annotations.get(name)

    def _time(self, name: Symbol) -> int | None:
        return whole(self._annotation(name))

    def __repr__(self) -> str:
        return f"ReceivedMessage({len(self.payload)} bytes, lock token {self.lock_token})"
