"""AMQP's 32-bit sequence numbers, which wrap around."""

from __future__ import annotations

from typing import Final

MASK: Final = 0xFFFFFFFF
_HALF: Final = 0x80000000


def serial_difference(left: int, right: int) -> int:
    """Return left - right in serial arithmetic: positive if left is ahead, negative if it is behind."""
    return ((left - right + _HALF) & MASK) - _HALF
