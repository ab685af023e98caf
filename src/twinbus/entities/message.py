"""A message as the rules see it: what a sender hands in, and what a queue holds in memory.

A queue may hold a million of them, so a held message is slots and numbers only: the bytes live in the store under
`body_number`. `state` and `token` together say where it is; `states.py` has the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .session import MessageSession

# The stored states; the first three are also the wire's x-opt-message-state.
ACTIVE: Final = 0
DEFERRED: Final = 1
SCHEDULED: Final = 2
GONE: Final = 3

# The token of a message that is unlocked but whose return is not durable yet: neither lockable nor settleable.
RETURNING: Final = b""
# The token of a message on its way to a receiver that gets it settled: it has no deadline.
TAKEN: Final = b"taken"


class NewMessage:
    """A message on its way in, already read by the caller: the rules never look into `body`."""

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
        # The sender's id, or the one made for it: duplicate detection goes by it.
        self.message_id = message_id
        # The stored form, opaque here.
        self.body = body
        # Bytes that count against the quota and the message size limit.
        self.size = size
        # The session it belongs to; only session queues need it.
        self.session_id = session_id
        # Must equal the session id when both are set.
        self.partition_key = partition_key
        # The sender's time to live; None: the queue's default.
        self.ttl_ms = ttl_ms
        # When it becomes visible; None or past: at once.
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
        # Sequence number in its queue; a dead-lettered message keeps it.
        self.seq = seq
        # The number of its body in the store.
        self.body_number = body_number
        self.size = size
        # When it was accepted; while scheduled, when it is to become active.
        self.enqueued_ms = enqueued_ms
        # When it expires; None: never.
        self.expires_ms = expires_ms
        # ACTIVE, DEFERRED, SCHEDULED or GONE.
        self.state = state
        # Failed deliveries so far.
        self.delivery_count = delivery_count
        # Its session; None on queues without sessions and in dead-letter queues.
        self.session = session
        # Lock token, 16 bytes in .NET order; None: not locked; RETURNING and TAKEN: neither lockable nor settleable.
        self.token: bytes | None = None
        # End of the lock; None when not locked. A session's message is locked as long as its session.
        self.locked_until_ms: int | None = None
        # Application properties set since it was sent: str is a string to encode, bytes an encoded AMQP value.
        self.changes = changes

    def __repr__(self) -> str:
        return f"<Message {self.seq} state={self.state} count={self.delivery_count} locked={bool(self.token)}>"


class Relayed(QueuedMessage):
    """A message that came by way of another entity: a subscription's copy, or one that was forwarded.

    A class of its own, so that the messages of plain queues do not carry what only these need.
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
        # Its sequence number where it was sent: in the topic, or in the queue that forwarded it first.
        self.origin_seq = origin_seq
        # How often it was forwarded.
        self.hops = hops
        # The entity that dead-lettered it before it was forwarded from there; None: none did.
        self.dead_letter_source = dead_letter_source


def moved(message: QueuedMessage, changes: dict[str, str | bytes] | None) -> QueuedMessage:
    """The message as it lies in a dead-letter queue: under its own number, free, and without its session."""
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
