"""The sessions of a queue: which exist, who holds them, and their states.

A session exists while it has messages, a state or a lock, and one receiver holds it at a time. Free sessions with
available messages wait in line in the order they became available; accepting the next session takes the first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from twinbus.errors import ArgumentError, QuotaExceededError, SessionCannotBeLockedError, SessionLockLostError
from twinbus.limits import SESSION_ID_CHARS_MAX, SESSION_STATE_BYTES_MAX, SESSION_STATES_BYTES_MAX
from twinbus.store.facts import Facts, Table

from .account import Account, Accounts
from .locks import Locks
from .records import pack_session, session_key
from .refusals import too_long
from .session import LOCK_LOST_TEXT, MessageSession
from .session_blocks import SessionBlocks
from .sweep import Row, Sweep

if TYPE_CHECKING:
    from .queue import Queue

_READY_MIN: Final = 64
# Memory of a session that exists only for its state.
_SESSION_BYTES: Final = 1_024


class Sessions:
    """All sessions of one queue."""

    __slots__ = ("_queue", "_ready", "_states", "blocks", "by_id", "locks")

    def __init__(self, queue: Queue, accounts: Accounts) -> None:
        self._queue = queue
        # The memory of the states.
        self._states = Account(SESSION_STATES_BYTES_MAX, accounts.session_states)
        self.by_id: dict[str, MessageSession] = {}
        # The same in order, for lists that start anywhere.
        self.blocks = SessionBlocks()
        # The locked ones, earliest deadline first.
        self.locks: Locks[str, MessageSession] = Locks()
        # Free sessions with available messages, longest waiting first; some may since have been accepted by id.
        self._ready: deque[MessageSession] = deque()

    # --- messages ---------------------------------------------------------------------------------------------------

    def open(self, session_id: str) -> MessageSession:
        session = self.by_id.get(session_id)
        if session is None:
            session = MessageSession(self._queue, session_id)
            self.by_id[session_id] = session
            self.blocks.add(session)
        return session

    def join(self, session_id: str) -> MessageSession:
        """The session for one more message; creates it if needed."""
        session = self.open(session_id)
        session.members += 1
        return session

    def leave(self, session: MessageSession) -> None:
        """One of its messages has left."""
        session.members -= 1
        if session.block is not None:
            session.block.mark()
        if session.members == 0:
            self.drop_if_unused(session)

    def drop_if_unused(self, session: MessageSession) -> None:
        unused = session.members == 0 and session.state is None and not session.locked and not session.leaving
        # It may already be gone, and a new session may have its id.
        if unused and self.by_id.get(session.id) is session:
            del self.by_id[session.id]
            self.blocks.remove(session)

    def announce(self, sessions: Iterable[MessageSession]) -> bool:
        """Tell the holders about new messages and queue free sessions. Returns whether a free session has messages."""
        free = False
        for session in sessions:
            if session.locked:
                if session.on_available is not None:
                    session.on_available(session)
            else:
                self.offer(session)
                free = free or len(session.available) > 0
        return free

    # --- the line of free sessions ----------------------------------------------------------------------------------

    def offer(self, session: MessageSession) -> None:
        """Put a session in line unless it is there already or cannot be accepted."""
        if session.ready or session.locked or session.leaving or not len(session.available):
            return
        session.ready = True
        self._ready.append(session)
        if len(self._ready) > _READY_MIN and len(self._ready) > 2 * len(self.by_id):
            self._tidy()

    def offer_restored(self) -> None:
        """After a restart, the session with the oldest message comes first."""
        waiting = [session for session in self.by_id.values() if session.available.fresh]
        for session in sorted(waiting, key=_first_seq):
            self.offer(session)

    def first(self) -> MessageSession | None:
        """The free session that has waited longest, without removing it."""
        while self._ready:
            session = self._ready[0]
            if not session.locked and not session.leaving and len(session.available):
                return session
            self._ready.popleft()
            session.ready = False
        return None

    def _tidy(self) -> None:
        """Drop sessions that can no longer be accepted."""
        kept: deque[MessageSession] = deque()
        for session in self._ready:
            if session.locked or not len(session.available):
                session.ready = False
            else:
                kept.append(session)
        self._ready = kept

    # --- locks ------------------------------------------------------------------------------------------------------

    def accept(self, session_id: str | None, until_ms: int) -> MessageSession | None:
        """Lock a session by id, or the first in line for None; None if no session waits."""
        if session_id is None:
            session = self.first()
            if session is None:
                return None
        else:
            if len(session_id) > SESSION_ID_CHARS_MAX:
                raise too_long("session id", session_id, SESSION_ID_CHARS_MAX)
            known = self.by_id.get(session_id)
            if known is not None and (known.locked or known.leaving):
                raise SessionCannotBeLockedError(
                    f"The requested session '{session_id}' cannot be accepted. It may be locked by another receiver."
                )
            session = self.open(session_id)
        session.locked = True
        session.locked_until_ms = until_ms
        self.locks.held[session.id] = session
        if self._ready and self._ready[0] is session:
            self._ready.popleft()
            session.ready = False
        return session

    def held(self, session_id: str, now_ms: int) -> MessageSession:
        """The session with that id; raises unless its lock is valid."""
        session = self.by_id.get(session_id)
        if session is None:
            raise SessionLockLostError(LOCK_LOST_TEXT)
        session.check(now_ms)
        return session

    def renew(self, session: MessageSession, until_ms: int) -> None:
        session.locked_until_ms = until_ms
        self.locks.renew(session.id, session)

    def unlock(self, session: MessageSession) -> None:
        session.locked = False
        session.locked_until_ms = None
        session.on_available = None
        self.locks.remove(session.id)

    # --- states -----------------------------------------------------------------------------------------------------

    def state(self, session_id: str) -> bytes | None:
        """The state of a locked session, even if the lock's deadline has passed."""
        session = self.by_id.get(session_id)
        if session is None or not session.locked:
            raise SessionLockLostError(LOCK_LOST_TEXT)
        return session.state

    def check_state(self, session_id: str, state: bytes | None, now_ms: int) -> None:
        """Raise if the holder of the session cannot give it this state."""
        session = self.held(session_id, now_ms)
        state = state or None
        if state is not None and len(state) > SESSION_STATE_BYTES_MAX:
            raise ArgumentError(f"The session state has {len(state)} bytes, the limit is {SESSION_STATE_BYTES_MAX}.")
        if not self._states.room(_held_bytes(state) - _held_bytes(session.state)):
            raise QuotaExceededError(
                f"The session states of '{self._queue.path}', or of all entities, take as many bytes as they may. "
                "Clear the states of sessions that are over."
            )

    def set_state(self, session_id: str, state: bytes | None, now_ms: int, facts: Facts) -> None:
        """Set the state of a held session; None or an empty state removes it."""
        self.check_state(session_id, state, now_ms)
        self.put_state(session_id, state, now_ms, facts)

    def put_state(self, session_id: str, state: bytes | None, now_ms: int, facts: Facts) -> None:
        """Set a checked state, also if the lock has expired since; None or an empty state removes it."""
        session = self.open(session_id)
        state = state or None
        self._states.hold(_held_bytes(state) - _held_bytes(session.state))
        key = session_key(self._queue.entity_id, session.id)
        if state is None:
            if session.state is not None:
                facts.delete(Table.SESSIONS, key)
        else:
            facts.rows[Table.SESSIONS, key] = pack_session(session.id, now_ms, state)
        session.state = state
        session.updated_ms = now_ms
        self._mark_state(session)
        self.drop_if_unused(session)

    def restore_state(self, session_id: str, updated_ms: int, state: bytes) -> None:
        session = self.open(session_id)
        session.state = state
        session.updated_ms = updated_ms
        self._mark_state(session)
        self._states.hold(_held_bytes(state))

    def close(self, entity_id: int, sweep: Sweep) -> None:
        """Hand the rows of all states to the sweep, because the queue is deleted."""
        sweep.add(self._state_rows(entity_id))
        self._states.close()

    def _state_rows(self, entity_id: int) -> Iterator[Row]:
        for session in self.by_id.values():
            if session.state is not None:
                yield Table.SESSIONS, session_key(entity_id, session.id), 0

    def names(self, updated_after_ms: int | None, skip: int, top: int) -> list[str]:
        """Ids of sessions with messages or a state; with a time, of those whose state was set after it."""
        return self.blocks.page(updated_after_ms, skip, top)

    def _mark_state(self, session: MessageSession) -> None:
        if session.block is not None:
            session.block.mark()
            session.block.updates = None


def _held_bytes(state: bytes | None) -> int:
    return 0 if state is None else len(state) + _SESSION_BYTES


def _first_seq(session: MessageSession) -> int:
    return session.available.fresh[0].seq
