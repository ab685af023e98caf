"""Session commands: accepting, renewing and releasing a session, its state, its messages.

One receiver holds a session at a time. When its lock lapses, or is released, the messages it still had locked go
back, each counting a delivery, and nobody gets later ones of the session before that is durable.
"""

from __future__ import annotations

from typing import Final

from twinbus.errors import (
    ArgumentError,
    NotAllowedError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)
from twinbus.limits import ACQUIRE_BYTES_MAX, SESSION_ID_CHARS_MAX, SESSION_STATE_BYTES_MAX
from twinbus.store.facts import Facts, Table

from .message import Message
from .records import pack_session, session_key
from .session import LOCK_LOST_TEXT, Session, Sessions
from .settlement import Settlement

NO_SESSIONS_TEXT: Final = (
    "A sessionful message receiver cannot be created on an entity that does not require sessions. Ensure "
    "RequiresSession is set to true when creating a Queue or Subscription to enable sessionful behavior."
)
SESSION_NEEDED_TEXT: Final = (
    "It is not possible for an entity that requires sessions to create a non-sessionful message receiver."
)


class Accepting(Settlement):
    """Sessions of a queue that has them."""

    __slots__ = ()

    def accept_session(self, session_id: str | None, now_ms: int) -> Session | None:
        """Lock a session by id, messages or not; or, for None, the free one with messages that has waited longest."""
        self._check_receivable()
        sessions = self._need_sessions()
        if session_id is None:
            session = sessions.first()
            if session is None:
                return None
        else:
            if len(session_id) > SESSION_ID_CHARS_MAX:
                raise ArgumentError(
                    f"The session id has {len(session_id)} characters, the limit is {SESSION_ID_CHARS_MAX}."
                )
            known = sessions.by_id.get(session_id)
            if known is not None and (known.locked or known.leaving):
                raise SessionCannotBeLockedError(
                    f"The requested session '{session_id}' cannot be accepted. It may be locked by another receiver."
                )
            session = sessions.open(self._self(), session_id)
        self.accessed_ms = now_ms
        until = now_ms + self._lock_duration_ms
        sessions.lock(session, until)
        self._wake(until)
        return session

    def release_session(self, session: Session, now_ms: int, facts: Facts) -> None:
        """Give up a session; one that is not held any more is left alone."""
        if not session.locked or self._sessions is None:
            return
        self.accessed_ms = now_ms
        self._free_session(session, now_ms, facts)
        facts.then.append((self._session_freed, session))

    def renew_session(self, session_id: str, now_ms: int) -> int:
        """Let the session's lock last a whole duration from now."""
        session = self.held_session(session_id, now_ms)
        self.accessed_ms = now_ms
        until = now_ms + self._lock_duration_ms
        session.locked_until_ms = until
        self._need_sessions().locks.renew(session_id, session)
        return until

    def get_session_state(self, session_id: str) -> bytes | None:
        session = self._need_sessions().by_id.get(session_id)
        if session is None or not session.locked:
            raise SessionLockLostError(LOCK_LOST_TEXT)
        return session.state

    def set_session_state(self, session_id: str, state: bytes | None, now_ms: int, facts: Facts) -> None:
        """Set the state, or remove it by None or by an empty one."""
        session = self.held_session(session_id, now_ms)
        state = state or None
        if state is not None and len(state) > SESSION_STATE_BYTES_MAX:
            raise ArgumentError(f"The session state has {len(state)} bytes, the limit is {SESSION_STATE_BYTES_MAX}.")
        self.accessed_ms = now_ms
        key = session_key(self.entity_id, session_id)
        if state is None:
            if session.state is not None:
                facts.delete(Table.SESSIONS, key)
        else:
            facts.rows[Table.SESSIONS, key] = pack_session(session_id, now_ms, state)
        session.state = state
        session.updated_ms = now_ms

    def list_sessions(self, updated_after_ms: int | None, skip: int, top: int) -> list[str]:
        """Ids of sessions with messages or a state; with a time, of those whose state was set after it."""
        return self._need_sessions().names(updated_after_ms, skip, top)

    def peek_session(self, session_id: str, from_seq: int, count: int, now_ms: int) -> list[Message]:
        """Browse a session's messages in any place, by sequence number."""
        self.accessed_ms = now_ms
        session = self._need_sessions().by_id.get(session_id)
        return [] if session is None else session.browse(from_seq, count)

    def acquire_session(
        self, session: Session, count: int, now_ms: int, facts: Facts, limit_bytes: int = ACQUIRE_BYTES_MAX
    ) -> list[Message]:
        """Lock a session's next messages: none while an earlier one is on its way back."""
        self._check_receivable()
        session.check(now_ms)
        if session.returning:
            return []
        self.accessed_ms = now_ms
        until = session.locked_until_ms
        assert until is not None
        picked = self._pick(session.available, count, now_ms, facts, limit_bytes)
        for message in picked:
            self._lock(message, until)
        return picked

    def take_session(
        self, session: Session, count: int, now_ms: int, facts: Facts, limit_bytes: int = ACQUIRE_BYTES_MAX
    ) -> list[Message]:
        """Receive and delete a session's next messages, first half."""
        self._check_receivable()
        session.check(now_ms)
        if session.returning:
            return []
        self.accessed_ms = now_ms
        return self._taken_out(self._pick(session.available, count, now_ms, facts, limit_bytes))

    def _lapse_sessions(self, sessions: Sessions, now_ms: int, limit: int, facts: Facts) -> int:
        """Take back sessions whose lock is over."""
        lapsed = sessions.locks.lapsed(now_ms, limit)
        for session in lapsed:
            session.leaving = True
            self._free_session(session, now_ms, facts)
            facts.then.append((self._session_lost, session))
        return len(lapsed)

    def _free_session(self, session: Session, now_ms: int, facts: Facts) -> None:
        self._need_sessions().unlock(session)
        for message in list(session.held.values()):
            self._unlock(message)
            self._return(message, True, False, now_ms, facts)

    def _session_lost(self, session: Session) -> None:
        session.leaving = False
        if self.on_session_lost is not None:
            self.on_session_lost(self._self(), session)
        self._session_freed(session)

    def _session_freed(self, session: Session) -> None:
        if self._sessions is not None:
            self._announce({session: None})
            self._sessions.drop_if_unused(session)

    def held_session(self, session_id: str, now_ms: int) -> Session:
        session = self._need_sessions().by_id.get(session_id)
        if session is None:
            raise SessionLockLostError(LOCK_LOST_TEXT)
        session.check(now_ms)
        return session

    def _need_sessions(self) -> Sessions:
        if self._sessions is None:
            raise NotAllowedError(NO_SESSIONS_TEXT)
        return self._sessions
