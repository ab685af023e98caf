"""Bringing dead letters back: they return to the entity that dead-lettered them, as if they were sent now.

1. A message leaves its dead-letter queue and arrives in the facts of one commit: it is never in both, never in neither.
2. It was accepted once, so it is no duplicate of itself; a subscription's copy goes to its subscription only.
3. What cannot return stays a dead letter, and does not keep the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from twinbus.errors import ArgumentError, FilterEvaluationError
from twinbus.limits import BATCH_DELETE_MESSAGES_MAX
from twinbus.store.facts import Facts, Table

from .filters import Changes
from .forwarding import Forwarding
from .holding import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON
from .message import ACTIVE, Message, Relayed
from .records import KEY

if TYPE_CHECKING:
    from .queue import Queue

_INDEX: Final = Table.INDEX


class Resubmitted(NamedTuple):
    """What became of dead letters that were to go back."""

    # How many are on their way.
    moved: int
    # How many could not go: they need a session and have none, or do not read.
    refused: int
    # The sequence number of the last one looked at: the next call goes on behind it.
    last_seq: int


class Resubmitting(Forwarding):
    """An entity that takes its dead letters back."""

    __slots__ = ()

    def resubmit(
        self, part: Queue, sequence_numbers: Sequence[int] | None, after_seq: int, now_ms: int, facts: Facts
    ) -> Resubmitted:
        """Take back the dead letters of one of its own dead-letter queues that nobody has locked: those with the given
        numbers, or without numbers the next ones behind `after_seq`, a bounded number of them."""
        if part.owner is not self:
            raise ArgumentError(f"'{part.path}' is no dead-letter queue of '{self.path}'.")
        if sequence_numbers is not None and len(sequence_numbers) > BATCH_DELETE_MESSAGES_MAX:
            raise ArgumentError(
                f"A call takes at most {BATCH_DELETE_MESSAGES_MAX} sequence numbers, this one has "
                f"{len(sequence_numbers)}."
            )
        self._check_open()
        self.accessed_ms = now_ms
        if sequence_numbers is None:
            # The ones that came back from a lock are all in it, however many: the lowest go first.
            found = sorted(part._available.browse(after_seq + 1, BATCH_DELETE_MESSAGES_MAX), key=_seq)
            found = found[:BATCH_DELETE_MESSAGES_MAX]
        else:
            found = [each for seq in dict.fromkeys(sequence_numbers) if (each := part._available.find(seq)) is not None]
        refused = sum(not self._take_back(part, message, now_ms, facts) for message in found)
        return Resubmitted(len(found) - refused, refused, max(map(_seq, found), default=after_seq))

    def _take_back(self, part: Queue, message: Message, now_ms: int, facts: Facts) -> bool:
        view = self._commons.views.of_stored(message)
        ttl_ms = None if message.expires_ms is None else max(message.expires_ms - message.enqueued_ms, 0)
        expires_ms = self._expires_ms(ttl_ms, now_ms)
        changes = dict(message.changes or {})
        changes.pop(DEAD_LETTER_REASON, None)
        changes.pop(DEAD_LETTER_DESCRIPTION, None)
        session_id = ""
        try:
            if self._sessions is not None:
                found = view.system("SessionId")
                if found is None:
                    return False
                session_id = str(found)
            if expires_ms is not None:
                # It was written down when the message was sent: clients drop what they take for expired.
                changes.update(view.encode(Changes({}, {"ExpiresAtUtc": expires_ms})))
        except FilterEvaluationError:
            return False
        origin_seq, source = message.seq, None
        if isinstance(message, Relayed):
            origin_seq, source = message.origin_seq, message.dead_letter_source
        fresh = Relayed(
            self._next_seq(facts),
            message.body,
            message.size,
            now_ms,
            expires_ms,
            ACTIVE,
            0,
            None,
            changes or None,
            origin_seq,
            0,
            source,
        )
        if self._sessions is not None:
            fresh.session = self._sessions.open(self._self(), session_id)
            fresh.session.members += 1
        part._leave(message)
        part._available.note_gone()
        facts.delete(_INDEX, KEY.pack(part.entity_id, message.seq))
        self._take_in(fresh, facts)
        return True


def _seq(message: Message) -> int:
    return message.seq
