"""AMQP's sequence numbers: 32 bits that wrap around."""

from __future__ import annotations

from typing import Final

MASK: Final = 0xFFFFFFFF
_HALF: Final = 0x80000000


def serial_difference(left: int, right: int) -> int:
    """left - right as sequence numbers: how far left is ahead, negative when it is behind."""
    return ((left - right + _HALF) & MASK) - _HALF
