"""How messages arrive, come back and are read back: everything that makes one visible.

A message is shown only when the facts that brought it are durable. All messages of one commit are shown in one go,
and those who wait are told once.
"""

from __future__ import annotations

from twinbus.limits import ACQUIRE_BYTES_MAX, EXPIRED_PER_ACQUIRE_MAX, SEQUENCE_BLOCK
from twinbus.store.facts import Facts, Table

from .available import Available
from .damage import Damage
from .holding import EXHAUSTED_REASON, index_rows
from .message import ACTIVE, DEFERRED, SCHEDULED, Message
from .records import ENTITY_KEY, KEY, META_SEQUENCE, NUMBER, pack
from .session import Session


class Arriving(Damage):
    """Arrivals, returns and recovery."""

    __slots__ = ()

    # --- arriving ---------------------------------------------------------------------------------------------------

    def _next_seq(self, facts: Facts) -> int:
        seq = self._last_seq + 1
        if seq > self._reserved_seq:
            self._reserved_seq = seq + SEQUENCE_BLOCK - 1
            mark = META_SEQUENCE + ENTITY_KEY.pack(self.entity_id)
            facts.rows[Table.META, mark] = NUMBER.pack(self._reserved_seq)
        self._last_seq = seq
        return seq

    def _write(self, message: Message, facts: Facts) -> None:
        """Write a message's index record as it is now."""
        session = message.session
        facts.index[KEY.pack(self.entity_id, message.seq)] = pack(
            message, None if session is None else session.id, message.body in self._bodies.references
        )

    def _take_in(self, message: Message, facts: Facts) -> None:
        """Hold a message whose number is given and whose body is stored."""
        self._bytes += message.size
        self._write(message, facts)
        self._show_after(message, facts)

    def _show_after(self, message: Message, facts: Facts) -> None:
        """Make a message visible once these facts are durable. All messages of one commit come in one call."""
        if self._group is facts:
            self._arrivals.append(message)
        else:
            self._group = facts
            self._arrivals = [message]
            facts.then.append((self._show, self._arrivals))

    def _show(self, arrivals: list[Message]) -> None:
        if self._arrivals is arrivals:
            self._group = None
            self._arrivals = []
        if self.deleted:
            self._commons.sweep.add(index_rows(self.entity_id, iter(arrivals)))
            return
        told: dict[Session, None] = {}
        for message in arrivals:
            session = message.session
            if message.state == ACTIVE:
                available = self._available if session is None else session.available
                if message.token is None:
                    self._active += 1
                    if self.dead_letters is None:
                        available.push(message)
                        continue
                    available.fresh.append(message)
                    if message.expires_ms is not None:
                        self._expiry.add(message)
                else:
                    message.token = None
                    available.give_back(message)
                    if message.expires_ms is not None and self.dead_letters is not None:
                        self._expiry.add_again(message)
                    if session is not None:
                        session.returning -= 1
                if session is not None:
                    told[session] = None
            else:
                self._show_aside(message)
                if session is not None and message.state == DEFERRED:
                    told[session] = None
        self._rearm()
        if self._forward_path is not None and len(self._available):
            self._wake(0)
        self._announce(told)

    def _show_aside(self, message: Message) -> None:
        """A scheduled or deferred message has become durable."""
        session = message.session
        if message.state == SCHEDULED:
            self._schedule.add(message)
        else:
            message.token = None
            self._deferred[message.seq] = message
            if session is not None:
                session.returning -= 1
        if session is not None:
            session.aside[message.seq] = message

    def _announce(self, told: dict[Session, None]) -> None:
        """Wake those who wait: the holder of a session for its messages, everybody else for free ones."""
        free = self._sessions is None and len(self._available) > 0
        for session in told:
            if session.locked:
                if session.on_available is not None:
                    session.on_available(session)
            elif self._sessions is not None:
                self._sessions.offer(session)
                free = free or len(session.available) > 0
        if free and self.on_available is not None:
            self.on_available(self._self())

    # --- picking ----------------------------------------------------------------------------------------------------

    def _pick(
        self, available: Available, count: int, now_ms: int, facts: Facts, limit_bytes: int = ACQUIRE_BYTES_MAX
    ) -> list[Message]:
        """Take out the next messages up to one that reaches the limit; a bounded number of expired ones leave."""
        picked: list[Message] = []
        expired = 0
        size = 0
        while len(picked) < count and size < limit_bytes:
            message = available.pop()
            if message is None:
                break
            if message.expires_ms is not None and message.expires_ms <= now_ms and self.dead_letters is not None:
                self._expire(message, facts)
                expired += 1
                if expired == EXPIRED_PER_ACQUIRE_MAX:
                    facts.then.append((self._announce_again, message.session))
                    break
                continue
            picked.append(message)
            size += message.size
        return picked

    def _announce_again(self, session: Session | None) -> None:
        """Messages that were there already can be had now."""
        if session is not None:
            self._announce({session: None})
        elif self.on_available is not None and self._self().has_available():
            self.on_available(self._self())

    # --- returning --------------------------------------------------------------------------------------------------

    def _return(self, message: Message, counts: bool, changed: bool, now_ms: int, facts: Facts) -> None:
        """An unlocked message goes back to its old place, unless its deliveries or its time are used up."""
        # Dead-letter queues do not count: there is no place further down.
        counts = counts and self.dead_letters is not None
        if counts:
            message.delivery_count += 1
            if message.delivery_count >= self._settings.max_delivery_count:
                description = f"Message could not be consumed after {message.delivery_count} delivery attempts."
                self._dead_letter(message, EXHAUSTED_REASON, description, facts)
                return
        expires_ms = message.expires_ms
        if (
            expires_ms is not None
            and expires_ms <= now_ms
            and message.state == ACTIVE
            and self.dead_letters is not None
        ):
            self._expire(message, facts)
            return
        if counts or changed:
            self._write(message, facts)
        if message.session is not None:
            message.session.returning += 1
        self._show_after(message, facts)

    def _rearm(self) -> None:
        """Tell the alarms when the earliest of the timers is due, if that is earlier than they know."""
        at_ms = self._expiry.deadline_ms()
        if at_ms is not None and at_ms < self.wake_ms:
            self._wake(at_ms)
        at_ms = self._schedule.deadline_ms()
        if at_ms is not None and at_ms < self.wake_ms:
            self._wake(at_ms)
        if self._duplicates is not None:
            at_ms = self._duplicates.deadline_ms()
            if at_ms is not None and at_ms < self.wake_ms:
                self._wake(at_ms)

    # --- recovery ---------------------------------------------------------------------------------------------------

    def reserve(self, seq: int) -> None:
        """Go on above a high-water mark of sequence numbers."""
        self._last_seq = max(self._last_seq, seq)
        self._reserved_seq = max(self._reserved_seq, seq)

    def restore_many(self, messages: list[Message], size: int) -> None:
        """Take back active messages of a queue without sessions, in order."""
        self._available.fresh.extend(messages)
        self._active += len(messages)
        self._bytes += size
        self.reserve(messages[-1].seq)
        if self.dead_letters is not None:
            add = self._expiry.add
            for message in messages:
                if message.expires_ms is not None:
                    add(message)

    def restore_message(self, message: Message, session_id: str | None) -> None:
        """Take back one message of any kind, in order."""
        self._bytes += message.size
        self.reserve(message.seq)
        if session_id is not None and self._sessions is not None:
            message.session = self._sessions.open(self._self(), session_id)
            message.session.members += 1
        if message.state == ACTIVE:
            available = self._available if message.session is None else message.session.available
            available.fresh.append(message)
            self._active += 1
            if message.expires_ms is not None and self.dead_letters is not None:
                self._expiry.add(message)
            return
        if message.state == SCHEDULED:
            self._schedule.add(message)
        else:
            self._deferred[message.seq] = message
            self._deferred_count += 1
        if message.session is not None:
            message.session.aside[message.seq] = message

    def restore_session(self, session_id: str, updated_ms: int, state: bytes) -> None:
        if self._sessions is not None:
            session = self._sessions.open(self._self(), session_id)
            session.state = state
            session.updated_ms = updated_ms

    def restore_duplicate(self, message_id: str, seq: int, seen_ms: int, now_ms: int) -> None:
        if self._duplicates is not None:
            self._duplicates.restore(message_id, seq, seen_ms, now_ms)

    def restored(self) -> None:
        """Everything is back: sessions with messages can be accepted, the one with the oldest message first."""
        if self._sessions is not None:
            waiting = [session for session in self._sessions.by_id.values() if session.available.fresh]
            for session in sorted(waiting, key=_first_seq):
                self._sessions.offer(session)


def _first_seq(session: Session) -> int:
    return session.available.fresh[0].seq
