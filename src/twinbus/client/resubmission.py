"""Prepare dead-lettered messages to be sent again: to their original entity or through their backlog queue.

Rules:
- What a broker added on delivery and dead-lettering is removed; what the sender wrote stays.
- For the backlog, a message is restored if possible and wrapped again, as when it was diverted.
- A message with a missing or invalid destination needs a path given by the user.
"""

from __future__ import annotations

from typing import Final

from twinbus.amqp import decode, encode
from twinbus.amqp import sections as kinds
from twinbus.amqp.reader import PARTITION_KEY, items, locate
from twinbus.amqp.sections import ABSOLUTE_EXPIRY, NULL, list_section, map_section
from twinbus.client.envelope import NAMES, pack, unwrap, wrap
from twinbus.errors import EnvelopeError

MARKS: Final = frozenset({"DeadLetterReason", "DeadLetterErrorDescription", "DeadLetterSource"})

# The property with which a Spark stream claims a message.
CLAIM: Final = "x-twinbus-claim"

# Prefix of the annotations that a broker adds on delivery.
_BROKERS: Final = "x-opt-"


def resubmitted(payload: bytes, path: str | None = None) -> bytes:
    """Rewrite a message for the backlog queue, for its own destination or for `path`."""
    try:
        restored = unwrap(payload)
    except EnvelopeError:
        if path is None:
            raise
        return wrap(without(_undelivered(payload), MARKS | frozenset(NAMES)), path)
    target = path or restored.path
    if len(restored.payloads) > 1:
        return pack(restored.payloads, target)
    return wrap(without(restored.payloads[0], MARKS), target)


def sent_again(payload: bytes, message_id: str | None = None) -> bytes:
    """Restore the message as sent, optionally with a new id. The partition key stays; the schedule is dropped."""
    plain = without(_undelivered(payload, keep=frozenset({PARTITION_KEY})), MARKS)
    found = locate(plain)
    fields = items(plain, found.properties)
    # The broker computes the expiry again from the time to live.
    fields = [NULL if at == ABSOLUTE_EXPIRY else each for at, each in enumerate(fields)]
    if message_id is not None:
        fields = [encode(message_id), *fields[1:]]
    if found.properties is None:
        start = end = max(
            (span[1] for span in (found.header, found.delivery_annotations, found.message_annotations) if span),
            default=0,
        )
    else:
        start, end = found.properties
    section = list_section(kinds.PROPERTIES, fields) if fields else b""
    return plain[:start] + section + plain[end:]


def without(payload: bytes, names: frozenset[str]) -> bytes:
    """Remove application properties by name."""
    found = locate(payload)
    if found.application_properties is None:
        return payload
    entries = items(payload, found.application_properties)
    kept: list[bytes] = []
    for at in range(0, len(entries) - 1, 2):
        if decode(entries[at])[0] not in names:
            kept += entries[at : at + 2]
    start, end = found.application_properties
    return payload[:start] + map_section(kinds.APPLICATION_PROPERTIES, kept) + payload[end:]


def _undelivered(payload: bytes, keep: frozenset[str] = frozenset()) -> bytes:
    """Remove what the broker added on delivery; annotations in `keep` belong to the sender."""
    found = locate(payload)
    header = items(payload, found.header)
    annotations = items(payload, found.message_annotations)
    kept: list[bytes] = []
    for at in range(0, len(annotations) - 1, 2):
        name = str(decode(annotations[at])[0])
        if name in keep or not name.startswith(_BROKERS):
            kept += annotations[at : at + 2]
    after = max(
        (span[1] for span in (found.header, found.delivery_annotations, found.message_annotations) if span), default=0
    )
    # Durable, priority and time to live belong to the sender, the rest of the header to the broker.
    return list_section(kinds.HEADER, header[:3]) + map_section(kinds.MESSAGE_ANNOTATIONS, kept) + payload[after:]
