"""Messages in the console: a page of a list, and one message in full. Nothing is locked.

- Viewing is peeking: it needs Listen, counts as one peek per message, and affects no lock.
- The displayed part of a body is bounded; the whole body is a download.
- A message that cannot be decoded is shown as bytes.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from twinbus.amqp.codec import encode
from twinbus.amqp.message import AmqpMessage
from twinbus.auth.policies import Right
from twinbus.broker.http.console.answers import Refused
from twinbus.broker.http.console.entities import found_entity, number
from twinbus.broker.http.console.search import wanted_of
from twinbus.broker.http.console.shown import cut, id_text, lines, plain_of, text
from twinbus.broker.messages.browsing import browse
from twinbus.broker.messages.damage import put_aside_at_rest
from twinbus.broker.messages.stored import render
from twinbus.entities.dead_letter import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON
from twinbus.entities.message import DEFERRED, SCHEDULED, QueuedMessage
from twinbus.entities.queue import Queue
from twinbus.entities.topic import Topic
from twinbus.errors import DamagedBodyError, MessageNotFoundError, ProtocolError
from twinbus.ledger.words import Kind
from twinbus.limits import (
    CONSOLE_BODY_BYTES_MAX,
    CONSOLE_MESSAGES_PAGE,
    CONSOLE_PREVIEW_VALUES_MAX,
    CONSOLE_ROW_VALUES_MAX,
    CONSOLE_SEARCH_MESSAGES_MAX,
    CONSOLE_VALUES_MAX,
    PEEK_BYTES_MAX,
    REST_VALUE_BYTES_MAX,
    REST_VALUES_MAX,
    SESSIONS_PAGE_MAX,
)

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost
    from twinbus.broker.http.console.visitor import Visitor

MAIN, DEAD, TRANSFER = "messages", "dead", "transfer"

_STATES = {DEFERRED: "deferred", SCHEDULED: "scheduled"}
_PREVIEW_CHARS = 120
_UNREADABLE = (ProtocolError, UnicodeDecodeError, IndexError, ValueError, struct.error)
_PROPERTIES = (
    "message_id",
    "correlation_id",
    "subject",
    "content_type",
    "content_encoding",
    "to",
    "reply_to",
    "group_id",
    "group_sequence",
    "reply_to_group_id",
    "user_id",
    "creation_time",
    "absolute_expiry_time",
)
_TITLES = {"group_id": "session_id", "reply_to_group_id": "reply_to_session_id"}


def messages(visitor: Visitor, query: Mapping[str, str]) -> dict[str, Any]:
    """A page of messages from a sequence number on: all, or those that match a search and a session.

    A search looks at a bounded number of messages; `next` then says where to continue, even if nothing was found yet.
    """
    host, queue = _place(visitor, query)
    first = number(query, "from", 0)
    wanted = wanted_of(query)
    session = query.get("session", "")
    look_max = CONSOLE_SEARCH_MESSAGES_MAX if wanted is not None or session else CONSOLE_MESSAGES_PAGE
    rows: list[dict[str, Any]] = []
    sizes: list[int] = []
    # One more than needed tells whether there are more.
    with host.store.snapshot():
        if session and isinstance(queue, Queue) and queue.sessions is not None:
            found = queue.peek_session(session, first, look_max + 1, host.clock.now_ms())
        else:
            found = browse(host, queue, first, look_max + 1, damaged=True)
        looked = 0
        for message in found[:look_max]:
            if len(rows) == CONSOLE_MESSAGES_PAGE:
                break
            try:
                payload = render(host.store.body(message.body_number), message)
            except DamagedBodyError as error:
                put_aside_at_rest(host, queue, message.seq, error)
                looked += 1
                if wanted is None and not session:
                    rows.append(_head(message) | {"damaged": True})
                continue
            if looked and sum(sizes) + len(payload) > PEEK_BYTES_MAX:
                break
            looked += 1
            sizes.append(len(payload))
            if wanted is None and not session:
                rows.append(_row(message, payload))
                continue
            known = _decoded_row(payload)
            if known is None or (session and id_text(known.group_id) != session):
                continue
            if wanted is None or wanted(known, content_of(known)[1]):
                rows.append(_row(message, payload))
    host.meter.entity(queue.path).counter(Kind.PEEK).add_many(sizes)
    more = len(found) > looked
    return {"rows": rows, "looked": looked, "next": str(found[looked].seq) if more else None}


def sessions(visitor: Visitor, query: Mapping[str, str]) -> dict[str, Any]:
    """Ids of sessions with messages or a state, up to a limit."""
    _, queue = _place(visitor, query)
    held = None if isinstance(queue, Topic) else queue.sessions
    return {"sessions": [] if held is None else held.names(None, 0, SESSIONS_PAGE_MAX)}


def message(visitor: Visitor, query: Mapping[str, str]) -> dict[str, Any]:
    """One message with all its properties."""
    host, queue = _place(visitor, query)
    return shown_message(*one(host, queue, number(query, "seq", 0)))


def shown_message(found: QueuedMessage, payload: bytes) -> dict[str, Any]:
    """Everything the console shows of a message."""
    shown = _row(found, payload)
    shown["system"] = lines(
        (name, value)
        for name, value in (
            ("sequence_number", found.seq),
            ("state", shown["state"]),
            ("delivery_count", found.delivery_count),
            ("size_bytes", found.size),
        )
    )
    decoded = decoded_message(payload)
    if decoded is None:
        shown["body"] = _body(payload, "bytes", len(payload))
        return shown | {"unreadable": True, "properties": [], "application": []}
    kind, content = content_of(decoded)
    named = [(_TITLES.get(name, name), getattr(decoded, name)) for name in _PROPERTIES]
    header = [("durable", decoded.durable), ("priority", decoded.priority), ("time_to_live_ms", decoded.ttl)]
    shown["system"] += lines((name, value) for name, value in header if value is not None)
    shown["system"] += lines((decoded.message_annotations or {}).items())
    return shown | {
        "properties": lines((name, value) for name, value in named if value is not None),
        "application": lines((decoded.application_properties or {}).items()),
        "body": _body(content, kind, decoded.body_bytes),
    }


def body(visitor: Visitor, query: Mapping[str, str]) -> tuple[str, bytes]:
    """A file name and the whole body."""
    host, queue = _place(visitor, query)
    found, payload = one(host, queue, number(query, "seq", 0))
    decoded = decoded_message(payload, REST_VALUES_MAX)
    return f"message-{found.seq}.bin", payload if decoded is None else content_of(decoded)[1]


def part_of(queue: Queue | Topic, part: str) -> Queue | Topic:
    """An entity itself, or one of its dead-letter queues."""
    if part == MAIN:
        return queue
    if part not in (DEAD, TRANSFER) or isinstance(queue, Topic):
        raise Refused(400, f"'{queue.path}' has no part '{part[:32]}'.")
    found = queue.dead_letters if part == DEAD else queue.open_transfer()
    assert found is not None
    return found


def _place(visitor: Visitor, query: Mapping[str, str]) -> tuple[NamespaceHost, Queue | Topic]:
    host = visitor.host(query.get("namespace", ""))
    entity = found_entity(visitor, host, query.get("entity", ""), Right.LISTEN)
    return host, part_of(entity, query.get("part", MAIN))


def one(host: NamespaceHost, queue: Queue | Topic, seq: int) -> tuple[QueuedMessage, bytes]:
    """A message by sequence number, and its bytes."""
    with host.store.snapshot():
        found = browse(host, queue, seq, 1, damaged=True)
        if not found or found[0].seq != seq:
            raise MessageNotFoundError(f"There is no message {seq} any more: it was received, moved or deleted.")
        try:
            payload = render(host.store.body(found[0].body_number), found[0])
        except DamagedBodyError as error:
            put_aside_at_rest(host, queue, seq, error)
            raise Refused(409, f"Message {seq} is damaged and set aside: {error}") from None
    host.meter.entity(queue.path).counter(Kind.PEEK).add(len(payload))
    return found[0], payload


def _head(message: QueuedMessage) -> dict[str, Any]:
    return {
        # JavaScript cannot represent integers above 2^53.
        "seq": str(message.seq),
        "state": _STATES.get(message.state, "active"),
        "enqueued_ms": message.enqueued_ms,
        "expires_ms": message.expires_ms,
        "deliveries": message.delivery_count,
        "size_bytes": message.size,
    }


def _row(message: QueuedMessage, payload: bytes) -> dict[str, Any]:
    shown = _head(message)
    decoded = _decoded_row(payload)
    if decoded is None:
        return shown | {"unreadable": True}
    own = decoded.application_properties or {}
    if decoded.encoded is None:
        content = content_of(decoded)[1][: 4 * _PREVIEW_CHARS]
    else:
        content = b"(a value with many parts)"
    return shown | {
        "id": id_text(decoded.message_id),
        "subject": id_text(decoded.subject),
        "session": id_text(decoded.group_id),
        "content_type": id_text(decoded.content_type),
        "reason": _told(own, DEAD_LETTER_REASON),
        "description": _told(own, DEAD_LETTER_DESCRIPTION),
        "body_bytes": decoded.body_bytes,
        "preview": cut(content.decode("utf-8", "replace"), _PREVIEW_CHARS),
    }


def _told(own: dict[str, Any], name: str) -> str | None:
    value = own.get(name)
    return None if value is None else text(value)


def _decoded_row(payload: bytes) -> AmqpMessage | None:
    """A message as far as a list shows it: there may be many in one answer."""
    return decoded_message(payload, CONSOLE_ROW_VALUES_MAX, CONSOLE_PREVIEW_VALUES_MAX)


def decoded_message(
    payload: bytes, values_max: int = CONSOLE_VALUES_MAX, body_values_max: int | None = None
) -> AmqpMessage | None:
    """The decoded message; None if it is not valid AMQP. A body with too many values stays encoded."""
    try:
        return AmqpMessage.decode(payload, values_max, body_values_max)
    except _UNREADABLE:
        return None


def content_of(decoded: AmqpMessage) -> tuple[str, bytes]:
    """The kind of the body, and its bytes."""
    if decoded.data is not None:
        return "data", b"".join(decoded.data)
    if decoded.encoded is not None:
        return "encoded value", decoded.encoded
    if not isinstance(decoded.value, str | bytes) and decoded.body_bytes > REST_VALUE_BYTES_MAX:
        # As JSON it could take many times the memory.
        parts = [decoded.value] if decoded.sequences is None else decoded.sequences
        return "encoded value", b"".join(map(encode, parts))
    if decoded.sequences is not None:
        return "sequence", json.dumps(plain_of(decoded.sequences), ensure_ascii=False).encode("utf-8", "replace")
    value = decoded.value
    if isinstance(value, bytes):
        return "binary value", bytes(value)
    if isinstance(value, str):
        return "text value", value.encode("utf-8", "replace")
    if value is None:
        return "empty", b""
    return "value", json.dumps(plain_of(value), ensure_ascii=False).encode("utf-8", "replace")


def _body(content: bytes, kind: str, size: int) -> dict[str, Any]:
    """A body of `size` bytes, and `content`, its bytes or JSON, as far as it is shown."""
    return {
        "kind": kind,
        "size": size,
        "bytes": len(content),
        "shown_bytes": min(len(content), CONSOLE_BODY_BYTES_MAX),
        "base64": base64.b64encode(content[:CONSOLE_BODY_BYTES_MAX]).decode(),
    }
