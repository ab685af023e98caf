"""Messages that come and go in any order, by sequence number.

They lie in blocks of a bounded size, so that adding one, finding one and removing the first stay cheap with a million.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from .message import GONE, QueuedMessage

# A block of twice this size is split.
BLOCK: Final = 1_024


class Returned:
    """The messages that returned to an entity or a session, came out of order, or are aside in a session."""

    __slots__ = ("_compacted", "_count", "_messages", "_seqs", "lasts")

    def __init__(self) -> None:
        # The blocks in order, none of them empty: their highest sequence number, their numbers, their messages. `lasts`
        # is public for `if returned.lasts`: a call for each message that is received would be felt.
        self.lasts: list[int] = []
        self._seqs: list[list[int]] = []
        self._messages: list[list[QueuedMessage]] = []
        self._count = 0
        # The block that is compacted next.
        self._compacted = 0

    def __len__(self) -> int:
        return self._count

    def add(self, message: QueuedMessage) -> None:
        seq = message.seq
        lasts = self.lasts
        self._count += 1
        if not lasts:
            lasts.append(seq)
            self._seqs.append([seq])
            self._messages.append([message])
            return
        at = bisect_left(lasts, seq)
        if at == len(lasts):
            at -= 1
            lasts[at] = seq
        seqs, messages = self._seqs[at], self._messages[at]
        place = bisect_left(seqs, seq)
        seqs.insert(place, seq)
        messages.insert(place, message)
        if len(seqs) == 2 * BLOCK:
            lasts.insert(at, seqs[BLOCK - 1])
            self._seqs[at : at + 1] = [seqs[:BLOCK], seqs[BLOCK:]]
            self._messages[at : at + 1] = [messages[:BLOCK], messages[BLOCK:]]

    def first(self) -> QueuedMessage:
        """The message with the lowest number; there must be one."""
        return self._messages[0][0]

    def pop_first(self) -> QueuedMessage:
        """Remove and return the message with the lowest number; there must be one."""
        message = self._messages[0].pop(0)
        del self._seqs[0][0]
        self._count -= 1
        if not self._seqs[0]:
            self._drop_block(0)
        return message

    def pop_last(self) -> QueuedMessage:
        """Remove and return the message with the highest number; there must be one."""
        message = self._messages[-1].pop()
        self._seqs[-1].pop()
        self._count -= 1
        if self._seqs[-1]:
            self.lasts[-1] = self._seqs[-1][-1]
        else:
            self._drop_block(-1)
        return message

    def find(self, seq: int) -> QueuedMessage | None:
        at = bisect_left(self.lasts, seq)
        if at == len(self.lasts):
            return None
        place = bisect_left(self._seqs[at], seq)
        return self._messages[at][place] if self._seqs[at][place] == seq else None

    def remove(self, seq: int) -> None:
        """Remove the message with that number, if it is here."""
        at = bisect_left(self.lasts, seq)
        if at == len(self.lasts):
            return
        seqs = self._seqs[at]
        place = bisect_left(seqs, seq)
        if seqs[place] != seq:
            return
        del seqs[place], self._messages[at][place]
        self._count -= 1
        if seqs:
            self.lasts[at] = seqs[-1]
        else:
            self._drop_block(at)

    def since(self, seq: int) -> Iterator[QueuedMessage]:
        """The messages from a number on, in order. Nothing may change meanwhile."""
        at = bisect_left(self.lasts, seq)
        if at == len(self.lasts):
            return
        yield from self._messages[at][bisect_left(self._seqs[at], seq) :]
        for messages in self._messages[at + 1 :]:
            yield from messages

    def compact_step(self, count: int) -> int:
        """Look at the next blocks with at least `count` messages, or all, and drop those that are GONE; return how
        many."""
        looked = dropped = 0
        for _ in range(len(self.lasts)):
            if looked >= count:
                break
            at = self._compacted if self._compacted < len(self.lasts) else 0
            before = len(self._seqs[at])
            kept = [message for message in self._messages[at] if message.state != GONE]
            looked += before
            dropped += before - len(kept)
            if kept:
                self._messages[at] = kept
                self._seqs[at] = [message.seq for message in kept]
                self.lasts[at] = kept[-1].seq
                self._compacted = at + 1
            else:
                self._drop_block(at)
                self._compacted = at
        self._count -= dropped
        return dropped

    def _drop_block(self, at: int) -> None:
        del self.lasts[at], self._seqs[at], self._messages[at]
