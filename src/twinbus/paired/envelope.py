"""Puts the SDK's messages into the backlog.

- The SDK itself encodes a message, as it would for the primary. The rewrite (`twinbus.client.envelope`) works on those
  bytes, and they go to the backlog as the data of a batch, which the SDK sends unchanged.
- All messages of one call go in one delivery: all of them are in the backlog, or none.
- If they do not fit, they are packed; if they still do not fit, the error says by how much, and nothing is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.exceptions import MessageSizeExceededError

from twinbus.client.envelope import (
    PACKED,
    PATH,
    RESERVED,
    SCHEDULED_TIME,
    SESSION_ID,
    TIME_TO_LIVE,
    Restored,
    pack,
    unwrap,
    wrap,
)
from twinbus.paired.sdk_internals import encoded, encoded_schedule, extend, messages_of

__all__ = [
    "PACKED",
    "PATH",
    "RESERVED",
    "SCHEDULED_TIME",
    "SESSION_ID",
    "TIME_TO_LIVE",
    "Restored",
    "encoded",
    "encoded_schedule",
    "fill",
    "pack",
    "sessions",
    "unwrap",
    "wrap",
]


def sessions(message: Any) -> set[str]:
    """The session ids in anything that a sender accepts."""
    if isinstance(message, ServiceBusMessageBatch):
        return {each.session_id for each in messages_of(message) if each.session_id is not None}
    if isinstance(message, list):
        return set().union(*map(sessions, message))
    if isinstance(message, ServiceBusMessage):
        message = message.raw_amqp_message
    properties = getattr(message, "properties", None)
    found = None if properties is None else properties.group_id
    if found is None:
        return set()
    return {found.decode() if isinstance(found, bytes) else found}


def fill(batch: ServiceBusMessageBatch, payloads: Sequence[bytes], path: str) -> int:
    """Put messages for `path` into an empty batch of a backlog queue; returns the batch's size in bytes."""
    wrapped = [wrap(payload, path) for payload in payloads]
    size = batch.size_in_bytes + sum(map(_cost, wrapped))
    if size > batch.max_size_in_bytes:
        packed = [pack(payloads, path)]
        packed_size = batch.size_in_bytes + _cost(packed[0])
        if packed_size > batch.max_size_in_bytes:
            least = min(size, packed_size)
            raise MessageSizeExceededError(
                message=f"{_what(payloads)} for '{path}' cannot go to the backlog: rewritten and compressed {least} "
                f"bytes remain, {least - batch.max_size_in_bytes} more than the {batch.max_size_in_bytes} that a "
                "backlog queue takes. Nothing was sent."
            )
        wrapped, size = packed, packed_size
    extend(batch, wrapped, size)
    return size


def _cost(payload: bytes) -> int:
    """The size of a message in a batch, including its data section header."""
    return len(payload) + (5 if len(payload) < 256 else 8)


def _what(payloads: Sequence[bytes]) -> str:
    size = sum(map(len, payloads))
    return f"The message of {size} bytes" if len(payloads) == 1 else f"The {len(payloads)} messages of {size} bytes"
