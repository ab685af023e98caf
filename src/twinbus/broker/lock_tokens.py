"""Lock tokens: 16 random bytes each, drawn many at a time because each draw costs a system call."""

from __future__ import annotations

import os
from typing import Final

_TOKEN_BYTES: Final = 16
_DRAWN_BYTES: Final = 256 * _TOKEN_BYTES


class LockTokenSource:
    """Call it to get a token."""

    __slots__ = ("_at", "_pool")

    def __init__(self) -> None:
        # Random bytes not yet used.
        self._pool = b""
        # The offset of the next token.
        self._at = 0

    def __call__(self) -> bytes:
        at = self._at
        if at >= len(self._pool):
            self._pool = os.urandom(_DRAWN_BYTES)
            at = 0
        self._at = at + _TOKEN_BYTES
        return self._pool[at : at + _TOKEN_BYTES]
