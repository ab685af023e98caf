"""The part of a delivered message that the broker wrote, for a client library that must not see the rest."""

from __future__ import annotations

from typing import Final

from twinbus.amqp import decode
from twinbus.amqp import sections as kinds
from twinbus.amqp.reader import items, locate
from twinbus.amqp.sections import data_section, map_section
from twinbus.errors import ProtocolError

# What a library needs to settle a message and to renew its lock.
_NEEDED: Final = frozenset({"x-opt-sequence-number", "x-opt-enqueued-time", "x-opt-locked-until"})


def delivered_part(payload: bytes) -> bytes:
    """A message with the broker's annotations and an empty body, which every library can decode."""
    kept: list[bytes] = []
    try:
        entries = items(payload, locate(payload).message_annotations)
        for at in range(0, len(entries) - 1, 2):
            if str(decode(entries[at])[0]) in _NEEDED:
                kept += entries[at : at + 2]
    except ProtocolError:
        # Nothing in it can be trusted.
        kept = []
    return map_section(kinds.MESSAGE_ANNOTATIONS, kept) + data_section(b"")
