"""Prepares messages for sending: checks names and sets ids.

- A property name that the backlog needs is rejected on every send, not only during a failover.
- An id that a message has is the caller's, and stays. A message without one gets one before its first attempt: a send
  with an unknown outcome is repeated, and only an id shows that it is the same message. The id is set on a copy,
  because the caller may send the object again as another message. (The SDK gives its own messages an id; an annotated
  message may have none.)
- What the SDK would reject is passed on to it, so that the error is the SDK's own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from copy import deepcopy
from datetime import datetime
from decimal import Decimal
from enum import Enum
from itertools import count
from typing import Any
from uuid import UUID, uuid4

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties

from twinbus.client.envelope import RESERVED, clashes
from twinbus.paired.sdk_internals import batch_like, copied_batch, is_ready, messages_of, shallow_copy, with_content

# A message that the SDK accepts, and what one call can send.
OutgoingMessage = ServiceBusMessage | AmqpAnnotatedMessage | Mapping[str, Any]
OutgoingMessages = OutgoingMessage | Iterable[OutgoingMessage]

# Values that nobody can change.
_UNCHANGING = (type(None), str, bytes, bool, int, float, Decimal, UUID, datetime, Enum)

# A process generates a prefix once and counts up, because generating an id per message would cost more. A forked child
# generates a new prefix, because its counter continues where its parent's does.
_prefix = uuid4().hex
_numbers = count(1)


def next_message_id() -> str:
    """A unique id across threads, processes and forked children."""
    return f"{_prefix}{next(_numbers):012x}"


def _renew_prefix() -> None:
    global _prefix
    _prefix = uuid4().hex


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_prefix)


def prepared(message: Any) -> Any:
    """The message, list or batch ready for sending; raises ValueError for a reserved property name."""
    if isinstance(message, ServiceBusMessageBatch):
        return _prepared_batch(message)
    # As the SDK tells them apart: whatever can be iterated holds messages, one deep.
    if isinstance(message, Iterable) and not isinstance(message, Mapping):
        # A generator can be read only once, and there may be several attempts.
        return [each if is_ready(each, RESERVED) else _prepared_single(each) for each in message]
    return message if is_ready(message, RESERVED) else _prepared_single(message)


def is_empty(message: Any) -> bool:
    """Whether there is nothing to send, which the SDK takes for no error."""
    try:
        return len(message) == 0
    except TypeError:
        return False


def _prepared_single(message: Any) -> Any:
    if isinstance(message, Mapping):
        try:
            message = ServiceBusMessage(**message)
        except TypeError:
            return message
    # The SDK accepts everything that has the content of a message.
    raw = getattr(message, "raw_amqp_message", message)
    if not isinstance(raw, AmqpAnnotatedMessage):
        return message
    _check_names(raw)
    if _has_id(raw):
        return message
    return _identified(raw) if raw is message else with_content(message, _identified(raw))


def _check_names(raw: AmqpAnnotatedMessage) -> None:
    """Raise ValueError for application properties with reserved names."""
    own = raw.application_properties
    found = ", ".join(map(repr, clashes(own))) if isinstance(own, Mapping) else ""
    if not found:
        return
    raise ValueError(
        f"The application property {found} is a name that a message needs for itself in a backlog queue of paired "
        "namespaces: give yours another name."
    )


def snapshot(message: Any) -> Any:
    """A prepared message, list or batch as it is now: it is held, and the caller may change the object meanwhile."""
    if isinstance(message, ServiceBusMessageBatch):
        return copied_batch(message)
    if isinstance(message, list):
        return [snapshot(each) for each in message]
    raw = getattr(message, "raw_amqp_message", message)
    if not isinstance(raw, AmqpAnnotatedMessage):
        return message
    kept = shallow_copy(raw)
    for name, part in vars(raw).items():
        if not isinstance(part, _UNCHANGING):
            # A part that cannot be copied cannot be encoded either, which the SDK says better.
            with suppress(Exception):
                setattr(kept, name, _copied(part))
    return kept if raw is message else with_content(message, kept)


def _copied(part: Any) -> Any:
    if isinstance(part, AmqpMessageProperties | AmqpMessageHeader):
        return shallow_copy(part)
    if isinstance(part, dict) and all(isinstance(value, _UNCHANGING) for value in part.values()):
        return dict(part)
    return deepcopy(part)


class PairedMessageBatch(ServiceBusMessageBatch):
    """The SDK's batch, which prepares messages as they are added."""

    def __init__(self, like: ServiceBusMessageBatch) -> None:
        self.__dict__.update(like.__dict__)

    def add_message(self, message: OutgoingMessage) -> None:
        """Add a message to the batch; raises MessageSizeExceededError if it does not fit."""
        super().add_message(prepared(message))


def _prepared_batch(batch: ServiceBusMessageBatch) -> ServiceBusMessageBatch:
    if isinstance(batch, PairedMessageBatch):
        return batch
    messages = messages_of(batch)
    for each in messages:
        _check_names(each.raw_amqp_message)
    if all(_has_id(each.raw_amqp_message) for each in messages):
        return batch
    # An id takes room that the caller did not leave in the batch.
    room_bytes = 64 * len(messages)
    ready = batch_like(batch, batch.max_size_in_bytes + room_bytes)
    for each in messages:
        ready.add_message(prepared(each))
    return ready if ready.size_in_bytes <= batch.max_size_in_bytes else batch


def _has_id(raw: AmqpAnnotatedMessage) -> bool:
    # Of the content itself: a subclass may say something else.
    return raw.properties is not None and raw.properties.message_id is not None


def _identified(raw: AmqpAnnotatedMessage) -> AmqpAnnotatedMessage:
    """The same message with an id, sharing everything else."""
    copied = shallow_copy(raw)
    properties = AmqpMessageProperties() if raw.properties is None else shallow_copy(raw.properties)
    properties.message_id = next_message_id()
    copied.properties = properties
    return copied
