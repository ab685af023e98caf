"""What waits in a session to be written, besides whole frames: large deliveries and marks.

A large delivery is cut into frames only as fast as the owner takes the output away, so that a message of 100 MB costs
its own bytes and not those of its frames besides. A mark tells the owner how far its output must be written before
everything sent up to there has left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twinbus.amqp.link import Link


class LargeDelivery:
    """A delivery of many frames, of which some are written."""

    __slots__ = ("link", "offset", "payload", "performative_last", "performative_more", "room")

    def __init__(
        self, link: Link, payload: bytes, performative_more: bytes, performative_last: bytes, room: int
    ) -> None:
        # The link it is sent on: when that is gone, so is the rest of the delivery.
        self.link = link
        self.payload = payload
        # The transfer of every frame but the last one, and of that one.
        self.performative_more = performative_more
        self.performative_last = performative_last
        # Bytes of the message in each frame.
        self.room = room
        # How much of it is written.
        self.offset = 0

    @property
    def left(self) -> int:
        """Bytes of the message that are not written yet."""
        return len(self.payload) - self.offset

    def next_frame(self) -> bytes:
        """The body of the next frame."""
        start = self.offset
        if len(self.payload) - start > self.room:
            self.offset = start + self.room
            return self.performative_more + self.payload[start : start + self.room]
        self.offset = len(self.payload)
        return self.performative_last + self.payload[start:]


class Mark:
    """A place in the output; `context` is the owner's."""

    __slots__ = ("context", "link", "position")

    def __init__(self, link: Link, context: Any) -> None:
        # Whose deliveries come before it.
        self.link = link
        # What the owner wants back when everything before it is written.
        self.context = context
        # Output bytes of the connection up to here; known once nothing before it waits.
        self.position = 0
