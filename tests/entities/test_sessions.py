"""The sessions of a queue on their own: messages are only counted here."""

from __future__ import annotations

import pytest
from rules_house import House

from twinbus.entities.account import Accounts
from twinbus.entities.message import QueuedMessage
from twinbus.entities.records import session_key
from twinbus.entities.session import MessageSession
from twinbus.entities.sessions import Sessions
from twinbus.errors import ArgumentError, SessionCannotBeLockedError, SessionLockLostError
from twinbus.limits import SESSION_ID_CHARS_MAX, SESSION_STATE_BYTES_MAX
from twinbus.store.facts import Facts, Table


def made() -> Sessions:
    return Sessions(House(requires_session=True).queue, Accounts())


def waiting(sessions: Sessions, name: str, seq: int) -> MessageSession:
    """A session with one available message."""
    session = sessions.join(name)
    session.available.push(QueuedMessage(seq, seq, 1, 0, None, 0, 0, session, None))
    return session


def test_a_session_lasts_as_long_as_its_messages() -> None:
    sessions = made()
    session = sessions.join("a")
    assert sessions.join("a") is session
    sessions.leave(session)
    assert sessions.by_id == {"a": session}
    sessions.leave(session)
    assert sessions.by_id == {}


def test_a_lock_and_a_state_keep_it_too() -> None:
    sessions = made()
    session = sessions.accept("a", 100)
    assert session is not None
    sessions.set_state("a", b"state", 50, Facts())
    sessions.unlock(session)
    sessions.drop_if_unused(session)
    assert sessions.by_id == {"a": session}
    sessions.put_state("a", b"", 60, Facts())
    assert sessions.by_id == {}


def test_free_sessions_are_accepted_in_the_order_of_their_line() -> None:
    sessions = made()
    first, second = waiting(sessions, "b", 2), waiting(sessions, "a", 1)
    assert sessions.announce([first, second])
    assert sessions.accept(None, 100) is first
    assert sessions.accept(None, 100) is second
    assert sessions.accept(None, 100) is None


def test_after_a_restart_the_oldest_message_comes_first() -> None:
    sessions = made()
    waiting(sessions, "b", 2)
    oldest = waiting(sessions, "a", 1)
    sessions.offer_restored()
    assert sessions.accept(None, 100) is oldest


def test_the_holder_of_a_session_is_told_and_nobody_else() -> None:
    sessions = made()
    session = waiting(sessions, "a", 1)
    sessions.accept("a", 100)
    told: list[MessageSession] = []
    session.on_available = told.append
    assert not sessions.announce([session])
    assert told == [session]


def test_one_receiver_at_a_time() -> None:
    sessions = made()
    session = sessions.accept("a", 100)
    assert session is not None
    with pytest.raises(SessionCannotBeLockedError):
        sessions.accept("a", 100)
    sessions.unlock(session)
    session.leaving = True
    with pytest.raises(SessionCannotBeLockedError):
        sessions.accept("a", 100)
    with pytest.raises(ArgumentError, match=f"the limit is {SESSION_ID_CHARS_MAX}"):
        sessions.accept("x" * (SESSION_ID_CHARS_MAX + 1), 100)


def test_a_lock_is_held_until_its_end_and_can_be_renewed() -> None:
    sessions = made()
    session = sessions.accept("a", 100)
    assert session is not None
    assert sessions.held("a", 99) is session
    for name, now_ms in (("a", 100), ("nobody", 0)):
        with pytest.raises(SessionLockLostError):
            sessions.held(name, now_ms)
    sessions.renew(session, 200)
    assert sessions.held("a", 199) is session


def test_a_state_has_a_row_and_a_size() -> None:
    sessions = made()
    assert sessions.accept("a", 100) is not None
    facts = Facts()
    key = session_key(sessions._queue.entity_id, "a")
    sessions.set_state("a", b"state", 50, facts)
    assert list(facts.rows) == [(Table.SESSIONS, key)]
    assert sessions.state("a") == b"state"
    assert [row[1] for row in sessions._state_rows(sessions._queue.entity_id)] == [key]
    with pytest.raises(ArgumentError, match="The session state has"):
        sessions.set_state("a", bytes(SESSION_STATE_BYTES_MAX + 1), 60, facts)
    assert sessions.state("a") == b"state"
    sessions.set_state("a", None, 70, facts)
    assert facts.deletes == [(Table.SESSIONS, key)]
