"""Messages whose body cannot be read: they stay where they are, and nobody is given them.

A damaged message keeps its row, marked, and whatever is left of its body; it fills the quota as before. It is neither
received nor peeked, and neither expires nor is dead-lettered: only deleting its entity removes it.
"""

from __future__ import annotations

from twinbus.store.facts import Facts

from .holding import Holding
from .message import ACTIVE, GONE, RETURNING, TAKEN, Message
from .records import DAMAGED, KEY, pack


class Damage(Holding):
    """The damaged messages of an entity."""

    __slots__ = ()

    @property
    def damaged_count(self) -> int:
        """Damaged messages, those of its dead-letter queues included."""
        parts = (self, self.dead_letters, self.transfer_dead_letters)
        return sum(len(part._damaged) for part in parts if part is not None)

    def put_aside(self, message: Message, facts: Facts) -> bool:
        """Keep a message from everybody; False when it is gone already, or on its way back and met again later."""
        if message.state == GONE or message.token == RETURNING:
            return False
        session = message.session
        shared = message.body in self._bodies.references
        row = pack(message, None if session is None else session.id, shared)
        if message.token == TAKEN:
            del self._taken[message.seq]
            if session is not None:
                session.returning -= 1
        elif message.token is not None:
            self._unlock(message)
        elif message.state == ACTIVE:
            (self._available if session is None else session.available).note_gone()
        else:
            self._schedule.messages.pop(message.seq, None)
            self._deferred.pop(message.seq, None)
            if session is not None:
                session.aside.pop(message.seq, None)
        self._leave(message)
        self._bytes += message.size
        self._damaged[message.seq] = message
        facts.index[KEY.pack(self.entity_id, message.seq)] = row[:1] + bytes((row[1] | DAMAGED,)) + row[2:]
        return True

    def find_at_rest(self, seq: int) -> Message | None:
        """The message of that number, if it is available, deferred or scheduled."""
        found = self._deferred.get(seq) or self._schedule.messages.get(seq) or self._available.find(seq)
        if found is None and self._sessions is not None:
            for session in self._sessions.by_id.values():
                found = session.available.find(seq)
                if found is not None:
                    break
        return found

    def restore_damaged(self, message: Message) -> None:
        self._bytes += message.size
        self._damaged[message.seq] = message
