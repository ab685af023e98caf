"""Settling: what the holder of a lock token can do with its message, and how receive-and-delete ends.

A token is good until its lock lapses, is settled or is released; after that every use is lock-lost, and nothing is
changed. A message that is received and deleted has no token: it is taken out, and removed when its receiver has it.
"""

from __future__ import annotations

from twinbus.errors import ArgumentError, MessageLockLostError, NotAllowedError, SessionLockLostError
from twinbus.limits import APPLICATION_PROPERTIES_BYTES_MAX
from twinbus.store.facts import Facts

from .message import ACTIVE, DEFERRED, RETURNING, TAKEN, Message
from .sending import Sending
from .session import LOCK_LOST_TEXT, Session

Changes = dict[str, str | bytes]


class Settlement(Sending):
    """Settlement by lock token."""

    __slots__ = ()

    def complete(self, token: bytes, now_ms: int, facts: Facts) -> None:
        """Remove the message for good."""
        message = self._locked(token, now_ms)
        self.accessed_ms = now_ms
        self._unlock(message)
        self._remove(message, facts)

    def abandon(self, token: bytes, now_ms: int, facts: Facts, changes: Changes | None = None) -> None:
        """Give it back, counting a delivery."""
        message = self._locked(token, now_ms)
        merged = _merged(message, changes)
        self.accessed_ms = now_ms
        self._unlock(message)
        message.changes = merged
        self._return(message, True, True, now_ms, facts)

    def defer(self, token: bytes, now_ms: int, facts: Facts, changes: Changes | None = None) -> None:
        """Set it aside, counting a delivery: from now on it is received by its sequence number only."""
        message = self._locked(token, now_ms)
        merged = _merged(message, changes)
        self.accessed_ms = now_ms
        self._unlock(message)
        message.changes = merged
        if self.dead_letters is not None:
            # However often that was: a message that its receiver wants to keep is not dead-lettered.
            message.delivery_count += 1
        if message.state == ACTIVE:
            message.state = DEFERRED
            self._active -= 1
            self._deferred_count += 1
        self._return(message, False, True, now_ms, facts)

    def dead_letter(
        self,
        token: bytes,
        now_ms: int,
        facts: Facts,
        reason: str | None,
        description: str | None,
        changes: Changes | None = None,
    ) -> None:
        """Move it to the dead-letter queue."""
        message = self._locked(token, now_ms)
        if self.dead_letters is None:
            raise NotAllowedError("A message in a dead-letter queue cannot be dead-lettered again.")
        merged = _merged(message, changes)
        self.accessed_ms = now_ms
        self._unlock(message)
        message.changes = merged
        self._dead_letter(message, reason, description, facts)

    def release(self, token: bytes, now_ms: int, facts: Facts) -> None:
        """Give it back untouched: no delivery is counted."""
        message = self._locked(token, now_ms)
        self.accessed_ms = now_ms
        self._unlock(message)
        self._return(message, False, False, now_ms, facts)

    def drop(self, token: bytes, now_ms: int, facts: Facts) -> None:
        """The receiver's connection broke: give it back at once, counting a delivery."""
        message = self._locked(token, now_ms)
        self._unlock(message)
        self._return(message, True, False, now_ms, facts)

    def _taken_out(self, messages: list[Message]) -> list[Message]:
        """They belong to whoever takes them, without a deadline: nothing lapses while a slow reader is sent them."""
        for message in messages:
            message.token = TAKEN
            self._taken[message.seq] = message
            if message.session is not None:
                # Later ones of the session wait: these may come back.
                message.session.returning += 1
        return messages

    def remove_taken(self, messages: list[Message], facts: Facts) -> None:
        """Receive and delete, second half: the receiver has them, so they leave for good."""
        if self.deleted:
            return
        told: dict[Session, None] = {}
        for message in messages:
            if message.session is not None:
                message.session.returning -= 1
                told[message.session] = None
            self._remove(message, facts)
        # Until the commit has taken their rows away, only this tells who browses that they are gone.
        facts.then.append((self._forget_taken, messages))
        if told:
            self._announce(told)

    def return_taken(self, messages: list[Message], now_ms: int, facts: Facts) -> None:
        """The receiver left before it had them: they are for others, and no delivery is counted."""
        if self.deleted:
            return
        for message in messages:
            del self._taken[message.seq]
            message.token = RETURNING
            if message.session is not None:
                message.session.returning -= 1
            self._return(message, False, False, now_ms, facts)

    def _forget_taken(self, messages: list[Message]) -> None:
        for message in messages:
            self._taken.pop(message.seq, None)

    def renew(self, token: bytes, now_ms: int) -> int:
        """Let the lock last a whole duration from now. A session's message is locked as long as its session."""
        message = self._locked(token, now_ms)
        self.accessed_ms = now_ms
        session = message.session
        if session is not None:
            until = session.locked_until_ms
            assert until is not None
            return until
        until = now_ms + self._lock_duration_ms
        message.locked_until_ms = until
        self._locks.renew(token, message)
        return until

    def check_lock(self, token: bytes, now_ms: int, changes: Changes | None = None) -> None:
        """Raise what a settlement of this token with these changes would raise."""
        _merged(self._locked(token, now_ms), changes)

    def _locked(self, token: bytes, now_ms: int) -> Message:
        """The message behind a live token."""
        message = self._locks.held.get(token)
        if message is None:
            message = self._locks.older.get(token)
            if message is None:
                if self._sessions is not None:
                    raise SessionLockLostError(LOCK_LOST_TEXT)
                raise MessageLockLostError
        session = message.session
        if session is not None:
            session.check(now_ms)
        else:
            until = message.locked_until_ms
            assert until is not None
            if until <= now_ms:
                raise MessageLockLostError
        return message


def _merged(message: Message, changes: Changes | None) -> Changes | None:
    """The message's changes with new ones on top; refused, before anything has changed, when they grow too large."""
    if not changes:
        return message.changes
    merged = dict(message.changes) if message.changes else {}
    merged.update(changes)
    size = 0
    for name, value in merged.items():
        text = name if isinstance(value, bytes) else name + value
        size += len(text.encode("utf-8", "surrogatepass")) + (len(value) if isinstance(value, bytes) else 0)
    if size >= APPLICATION_PROPERTIES_BYTES_MAX:
        raise ArgumentError(
            f"The properties to modify take {size} bytes, the limit is {APPLICATION_PROPERTIES_BYTES_MAX - 1}."
        )
    return merged
