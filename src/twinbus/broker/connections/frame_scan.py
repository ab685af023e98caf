"""Finds the frames in a WebSocket's stream before the WebSocket library sees them.

- What a frame costs does not depend on its size, so frames are counted, not only bytes.
- A client must mask its frames (RFC 6455, 5.1); the library does not insist.
- Only the heads are read: two to fourteen bytes of each frame. The payload is skipped.
"""

from __future__ import annotations

_MASKED = 0x80
_LENGTH = 0x7F
_MASK_BYTES = 4


class UnmaskedFrameError(Exception):
    """The peer sent a frame that is not masked."""


class FrameScan:
    """Follows one stream of frames."""

    __slots__ = ("_head", "_left", "frames")

    def __init__(self) -> None:
        # The beginning of a head that is not complete.
        self._head = b""
        # Bytes of the payload that are still to come.
        self._left = 0
        # Heads seen so far.
        self.frames = 0

    def end_of(self, data: bytes, at: int, frames_max: int) -> int:
        """Where a piece of `data` ends that begins at `at` and has at most so many heads, with their payloads. The next
        piece begins there."""
        size = len(data)
        step = min(self._left, size - at)
        self._left -= step
        at += step
        end = self.frames + frames_max
        while at < size and self.frames < end:
            head = self._head + data[at : at + 14 - len(self._head)]
            if len(head) > 1 and not head[1] & _MASKED:
                raise UnmaskedFrameError
            wide = head[1] & _LENGTH if len(head) > 1 else 0
            length_bytes = 8 if wide == 127 else 2 if wide == 126 else 0
            needed = 2 + length_bytes + _MASK_BYTES
            if len(head) < needed:
                self._head = head
                return size
            payload = int.from_bytes(head[2 : 2 + length_bytes], "big") if length_bytes else wide
            at += needed - len(self._head)
            self._head = b""
            self.frames += 1
            step = min(payload, size - at)
            self._left = payload - step
            at += step
        return at
