"""What callers give to a sender, made ready: names checked, ids set.

Rules:
- A property name that the backlog needs is refused on every send, not only in a failover.
- A message without an id gets one before its first attempt: a send whose outcome is in doubt is repeated, and only an
  id shows that it is the same. It is set on a copy, because the caller may send the object again as another message.
  (The SDK gives its own messages an id; an annotated message may have none.)
- What the SDK would refuse is passed on to it, so that the error is the SDK's own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any, TypeVar
from uuid import uuid4

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties

from twinbus.client.envelope import RESERVED, clashes
from twinbus.paired.sdk_internals import batch_like, messages_of

T = TypeVar("T")


# A process draws its prefix once and counts on: drawing an id for each message would cost more. A forked child draws
# another prefix, because its count goes on where its parent's does.
_prefix = uuid4().hex
_numbers = count(1)


def next_message_id() -> str:
    """An id that no other message has, in any thread, process or forked child."""
    return f"{_prefix}{next(_numbers):012x}"


def _renew_prefix() -> None:
    global _prefix
    _prefix = uuid4().hex


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_prefix)


def prepared(message: Any) -> Any:
    """The message, list or batch as it is sent; ValueError for a property name that is taken."""
    if isinstance(message, ServiceBusMessage):
        raw = message.raw_amqp_message
        own = raw.application_properties
        if own and not RESERVED.isdisjoint(own):
            refuse(own)
        properties = raw.properties
        if properties is not None and properties.message_id is not None:
            return message
        copied = _copy(message)
        copied._raw_amqp_message = _identified(raw)
        return copied
    if isinstance(message, ServiceBusMessageBatch):
        return _prepared_batch(message)
    if isinstance(message, AmqpAnnotatedMessage):
        own = message.application_properties
        if own and not RESERVED.isdisjoint(own):
            refuse(own)
        properties = message.properties
        if properties is not None and properties.message_id is not None:
            return message
        return _identified(message)
    if isinstance(message, Mapping):
        try:
            return prepared(ServiceBusMessage(**message))
        except TypeError:
            return message
    if isinstance(message, Iterable):
        # A generator can be read only once, and there may be more than one attempt.
        return [prepared(each) for each in message]
    return message


def refuse(names: Iterable[Any]) -> None:
    """Say which of `names` cannot be used."""
    found = ", ".join(repr(name) for name in clashes(names))
    raise ValueError(
        f"The application property {found} is a name that a message needs for itself in a backlog queue of paired "
        "namespaces: give yours another name."
    )


class PairedMessageBatch(ServiceBusMessageBatch):
    """The SDK's batch, whose messages are made ready when they are added."""

    def __init__(self, like: ServiceBusMessageBatch) -> None:
        self.__dict__.update(like.__dict__)

    def add_message(self, message: ServiceBusMessage | AmqpAnnotatedMessage | Mapping[str, Any]) -> None:
        """Try to add a single message to the batch; MessageSizeExceededError when it does not fit."""
        super().add_message(prepared(message))


def _prepared_batch(batch: ServiceBusMessageBatch) -> ServiceBusMessageBatch:
    if isinstance(batch, PairedMessageBatch):
        return batch
    messages = messages_of(batch)
    for each in messages:
        own = each.raw_amqp_message.application_properties
        if own and not RESERVED.isdisjoint(own):
            refuse(own)
    if all(each.message_id is not None for each in messages):
        return batch
    # An id takes room, and the caller has filled the batch without it.
    room_bytes = 64 * len(messages)
    ready = batch_like(batch, batch.max_size_in_bytes + room_bytes)
    for each in messages:
        ready.add_message(prepared(each))
    return ready if ready.size_in_bytes <= batch.max_size_in_bytes else batch


def _identified(raw: AmqpAnnotatedMessage) -> AmqpAnnotatedMessage:
    """The same message with an id, sharing everything else."""
    copied = _copy(raw)
    properties = AmqpMessageProperties() if raw.properties is None else _copy(raw.properties)
    properties.message_id = next_message_id()
    copied.properties = properties
    return copied


def _copy(original: T) -> T:
    # copy.copy takes three times as long, which the healthy path would feel.
    copied = object.__new__(type(original))
    copied.__dict__.update(original.__dict__)
    return copied
