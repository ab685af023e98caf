"""Large deliveries and marks, which wait in a session between ordinary frames.

A large delivery is split into frames only as fast as the owner takes the output, so a message of 100 MB costs its own
bytes but not a second copy as frames. A mark tells the owner when everything sent before it has been written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twinbus.amqp.link import Link


class LargeDelivery:
    """A delivery that is written over many frames."""

    __slots__ = ("link", "offset", "payload", "performative_last", "performative_more", "room")

    def __init__(
        self, link: Link, payload: bytes, performative_more: bytes, performative_last: bytes, room: int
    ) -> None:
        # If this link goes away, the rest of the delivery is dropped.
        self.link = link
        self.payload = payload
        # The transfer performatives: of every frame but the last, and of the last.
        self.performative_more = performative_more
        self.performative_last = performative_last
        # Message bytes per frame.
        self.room = room
        # Bytes written so far.
        self.offset = 0

    @property
    def left(self) -> int:
        """Message bytes not written yet."""
        return len(self.payload) - self.offset

    def next_frame(self) -> bytes:
        """Return the body of the next frame."""
        start = self.offset
        if len(self.payload) - start > self.room:
            self.offset = start + self.room
            return self.performative_more + self.payload[start : start + self.room]
        self.offset = len(self.payload)
        return self.performative_last + self.payload[start:]


class Mark:
    """A position in the output, with the owner's `context`."""

    __slots__ = ("context", "link", "position")

    def __init__(self, link: Link, context: Any) -> None:
        # The link whose deliveries precede the mark.
        self.link = link
        # Returned to the owner once everything before the mark has been written.
        self.context = context
        # The connection's output bytes up to the mark; set once nothing before it waits.
        self.position = 0
