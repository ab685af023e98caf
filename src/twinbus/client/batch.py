"""Many messages in one delivery.

Two rules. The envelope repeats the first message's routing properties (message id, session id, partition key) and holds
all messages as data sections. A batch has one outcome: all of it is accepted or none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from twinbus.amqp import AmqpMessage, data_section
from twinbus.amqp.reader import PARTITION_KEY, listed, locate, mapped
from twinbus.amqp.sections import GROUP_ID, MESSAGE_ID, PROPERTY_FIELDS
from twinbus.client.message import Message
from twinbus.errors import MessageTooLargeError
from twinbus.limits import BATCH_MESSAGES_MAX, MESSAGE_BYTES_DEFAULT

FORMAT = 0x80013700


def encoded(message: Message | bytes) -> bytes:
    return message if type(message) is bytes else message.encode()  # type: ignore[union-attr]


def envelope(first: bytes) -> bytes:
    """Encode the sections that precede the data in a batch whose first message is `first`."""
    found = locate(first)
    outer = AmqpMessage()
    if found.properties is not None:
        fields = listed(first, found.properties, PROPERTY_FIELDS)
        outer.message_id, outer.group_id = fields[MESSAGE_ID], fields[GROUP_ID]
    key = (mapped(first, found.message_annotations) or {}).get(PARTITION_KEY)
    if key is not None:
        outer.message_annotations = {PARTITION_KEY: key}
    return outer.encode()


def encode_batch(messages: Iterable[Message | bytes]) -> bytes:
    """Encode one batch; send it with the message format above."""
    payloads = [encoded(message) for message in messages]
    if not payloads:
        raise ValueError("A batch needs at least one message.")
    if len(payloads) > BATCH_MESSAGES_MAX:
        raise MessageTooLargeError(f"A batch holds at most {BATCH_MESSAGES_MAX} messages, not {len(payloads)}.")
    return envelope(payloads[0]) + b"".join(map(data_section, payloads))


def batches(
    messages: Iterable[Message | bytes], max_bytes: int = MESSAGE_BYTES_DEFAULT, max_count: int = BATCH_MESSAGES_MAX
) -> Iterator[list[bytes]]:
    """Split a stream of messages into batches of limited size, in order."""
    held: list[bytes] = []
    size = 0
    for message in messages:
        payload = encoded(message)
        # A data section adds at most eight bytes.
        cost = len(payload) + 8
        if held and (size + cost > max_bytes or len(held) >= max_count):
            yield held
            held, size = [], 0
        if not held:
            size = len(envelope(payload))
            if size + cost > max_bytes:
                raise MessageTooLargeError(f"A message of {len(payload)} bytes does not fit a batch of {max_bytes}.")
        held.append(payload)
        size += cost
    if held:
        yield held
