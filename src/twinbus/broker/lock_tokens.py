"""Lock tokens: 16 random bytes each, drawn from the system in handfuls because each draw costs a system call."""

from __future__ import annotations

import os
from typing import Final

_TOKEN_BYTES: Final = 16
_DRAWN_BYTES: Final = 256 * _TOKEN_BYTES


class LockTokenSource:
    """Call it for a token."""

    __slots__ = ("_at", "_pool")

    def __init__(self) -> None:
        # Random bytes not handed out yet.
        self._pool = b""
        # Where the next token starts in them.
        self._at = 0

    def __call__(self) -> bytes:
        at = self._at
        if at >= len(self._pool):
            self._pool = os.urandom(_DRAWN_BYTES)
            at = 0
        self._at = at + _TOKEN_BYTES
        return self._pool[at : at + _TOKEN_BYTES]
