"""A message as the entities see it: as a sender submits it, and as a queue holds it in memory.

A queue may hold a million messages, so each one is only slots and numbers; the bytes are in the store under
`body_number`. `state` and `token` together say where it is; see the table in `states.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .session import MessageSession

# The stored states; the first three are also the values of x-opt-message-state on the wire.
ACTIVE: Final = 0
DEFERRED: Final = 1
SCHEDULED: Final = 2
GONE: Final = 3

# The token of an unlocked message whose return is not durable yet: it can be neither locked nor settled.
RETURNING: Final = b""
# The token of a message on its way to a receive-and-delete receiver: it has no deadline.
TAKEN: Final = b"taken"


class NewMessage:
    """An incoming message, already decoded by the caller: the entities never look into `body`."""

    __slots__ = ("body", "message_id", "partition_key", "ping", "scheduled_ms", "session_id", "size", "ttl_ms")

    def __init__(
        self,
        message_id: str,
        body: bytes,
        size: int,
        session_id: str | None = None,
        partition_key: str | None = None,
        ttl_ms: int | None = None,
        scheduled_ms: int | None = None,
        ping: bool = False,
    ) -> None:
        # The sender's id, or a generated one; duplicate detection uses it.
        self.message_id = message_id
        # The stored form; opaque here.
        self.body = body
        # Bytes that count against the quota and the message size limit.
        self.size = size
        # Its session; only session queues require one.
        self.session_id = session_id
        # Must equal the session id when both are set.
        self.partition_key = partition_key
        # The sender's time to live; None uses the queue's default.
        self.ttl_ms = ttl_ms
        # When it becomes visible; None or a past time means at once.
        self.scheduled_ms = scheduled_ms
        # A paired-namespaces ping: accepted, counted, never stored.
        self.ping = ping


class QueuedMessage:
    """A message held by a queue."""

    __slots__ = (
        "body_number",
        "changes",
        "delivery_count",
        "enqueued_ms",
        "expires_ms",
        "locked_until_ms",
        "seq",
        "session",
        "size",
        "state",
        "token",
    )

    def __init__(
        self,
        seq: int,
        body_number: int,
        size: int,
        enqueued_ms: int,
        expires_ms: int | None,
        state: int,
        delivery_count: int,
        session: MessageSession | None,
        changes: dict[str, str | bytes] | None,
    ) -> None:
        # Sequence number in its queue; dead-lettering does not change it.
        self.seq = seq
        self.body_number = body_number
        self.size = size
        # When it was accepted; while scheduled, when it becomes active.
        self.enqueued_ms = enqueued_ms
        # None: it never expires.
        self.expires_ms = expires_ms
        self.state = state
        # Failed deliveries so far.
        self.delivery_count = delivery_count
        # None in queues without sessions and in dead-letter queues.
        self.session = session
        # Lock token, 16 bytes in .NET order; None if not locked. RETURNING and TAKEN can be neither locked nor settled.
        self.token: bytes | None = None
        # None if not locked. In a session, messages are locked as long as the session.
        self.locked_until_ms: int | None = None
        # Application properties set since it was sent: str is a string to encode, bytes an encoded AMQP value.
        self.changes = changes

    def __repr__(self) -> str:
        return f"<Message {self.seq} state={self.state} count={self.delivery_count} locked={bool(self.token)}>"


class Relayed(QueuedMessage):
    """A message that came through another entity: a subscription's copy, or a forwarded message.

    A class of its own, so that messages of plain queues do not carry the extra fields.
    """

    __slots__ = ("dead_letter_source", "hops", "origin_seq")

    def __init__(
        self,
        seq: int,
        body_number: int,
        size: int,
        enqueued_ms: int,
        expires_ms: int | None,
        state: int,
        delivery_count: int,
        session: MessageSession | None,
        changes: dict[str, str | bytes] | None,
        origin_seq: int,
        hops: int,
        dead_letter_source: str | None,
    ) -> None:
        super().__init__(seq, body_number, size, enqueued_ms, expires_ms, state, delivery_count, session, changes)
        # Its sequence number where it was sent: in the topic, or in the first queue that forwarded it.
        self.origin_seq = origin_seq
        # How often it was forwarded.
        self.hops = hops
        # The entity that dead-lettered it before it was forwarded; None if none did.
        self.dead_letter_source = dead_letter_source


def moved(message: QueuedMessage, changes: dict[str, str | bytes] | None) -> QueuedMessage:
    """The message as a dead-letter queue holds it: same number, unlocked, no session."""
    if isinstance(message, Relayed):
        return Relayed(
            message.seq,
            message.body_number,
            message.size,
            message.enqueued_ms,
            message.expires_ms,
            ACTIVE,
            message.delivery_count,
            None,
            changes,
            message.origin_seq,
            message.hops,
            message.dead_letter_source,
        )
    return QueuedMessage(
        message.seq,
        message.body_number,
        message.size,
        message.enqueued_ms,
        message.expires_ms,
        ACTIVE,
        message.delivery_count,
        None,
        changes,
    )
