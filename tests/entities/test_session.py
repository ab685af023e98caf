from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import pytest
from rules_house import House, new, tag
from test_rules_cost import steps

from twinbus.entities.message import QueuedMessage
from twinbus.entities.refusals import NO_SESSIONS_TEXT, SESSION_NEEDED_TEXT
from twinbus.entities.session import MessageSession
from twinbus.entities.settings import QueueSettings
from twinbus.errors import (
    ArgumentError,
    EntityDisabledError,
    MessageNotFoundError,
    NotAllowedError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)
from twinbus.limits import SESSION_STATE_BYTES_MAX, TICK_MESSAGES_MAX
from twinbus.store.facts import Table


@pytest.fixture
def house() -> House:
    return House(requires_session=True)


def send(house: House, *pairs: tuple[str, str], **fields: object) -> None:
    messages = [new(name, session_id=session, **fields) for session, name in pairs]  # type: ignore[arg-type]
    house.queue.send(messages, house.now, house.facts)
    house.commit()


def got(house: House, session: MessageSession, count: int = 9) -> list[str]:
    return house.names(session.acquire(count, house.now, house.facts))


# --- accepting ------------------------------------------------------------------------------------------------------


def test_a_session_gives_its_own_messages_in_order(house: House) -> None:
    send(house, ("s", "a"), ("t", "b"), ("s", "c"))
    assert got(house, house.accept("s")) == ["a", "c"]
    assert got(house, house.accept("t")) == ["b"]


def test_a_session_can_be_accepted_without_messages(house: House) -> None:
    session = house.accept("s")
    assert session.locked
    assert session.locked_until_ms == house.now + 60_000
    assert got(house, session) == []


def test_a_held_session_cannot_be_accepted(house: House) -> None:
    house.accept("s")
    with pytest.raises(SessionCannotBeLockedError, match="The requested session 's' cannot be accepted"):
        house.queue.accept_session("s", house.now)


def test_next_available_goes_round(house: House) -> None:
    assert house.queue.accept_session(None, house.now) is None
    send(house, ("a", "a1"), ("b", "b1"), ("c", "c1"), ("a", "a2"))
    first = house.accept()
    assert first.id == "a"
    got(house, first, 1)
    house.queue.release_session(first, house.now, house.facts)
    house.commit()
    assert [house.accept().id for _ in range(3)] == ["b", "c", "a"]
    assert house.queue.accept_session(None, house.now) is None


def test_a_session_accepted_by_id_is_not_next(house: House) -> None:
    send(house, ("a", "a1"), ("b", "b1"))
    house.accept("a")
    assert house.accept().id == "b"
    assert not house.queue.has_available()


def test_sessions_that_end_do_not_pile_up(house: House) -> None:
    send(house, ("first", "a"))
    for number in range(500):
        send(house, (f"s{number}", "a"))
        session = house.accept(f"s{number}")
        (message,) = session.acquire(1, house.now, house.facts)
        house.complete(message)
        house.queue.release_session(session, house.now, house.facts)
        house.commit()
    sessions = house.queue.sessions
    assert sessions is not None
    assert list(sessions.by_id) == ["first"]
    assert len(sessions._ready) <= 65
    assert house.accept().id == "first"
    assert house.queue.accept_session(None, house.now) is None
    assert len(sessions._ready) == 0


def test_available_is_told_to_the_holder_or_to_all(house: House) -> None:
    send(house, ("s", "a"))
    assert house.heard == ["available q"]
    session = house.accept()
    session.on_available = lambda session: house.heard.append(f"inside {session.id}")
    house.heard.clear()
    send(house, ("s", "b"))
    assert house.heard == ["inside s"]
    send(house, ("t", "c"))
    assert house.heard == ["inside s", "available q"]


def test_wrong_kind_of_receiver(house: House) -> None:
    for command in (house.queue.acquire, house.queue.take):
        with pytest.raises(NotAllowedError) as caught:
            command(1, house.now, house.facts)
        assert caught.value.text == SESSION_NEEDED_TEXT
    with pytest.raises(NotAllowedError):
        house.queue.receive_deferred([1], house.now, house.facts, session=None)
    plain = House()
    with pytest.raises(NotAllowedError) as caught:
        plain.queue.accept_session("s", plain.now)
    assert caught.value.text == NO_SESSIONS_TEXT


def test_limits_and_status(house: House) -> None:
    with pytest.raises(ArgumentError):
        house.queue.accept_session("s" * 129, house.now)
    session = house.accept("s" * 128)
    settings = QueueSettings(path="q", requires_session=True, status="ReceiveDisabled")
    house.namespace.update_queue(settings, house.now, house.facts)
    for command in (
        lambda: house.queue.accept_session("t", house.now),
        lambda: session.acquire(1, house.now, house.facts),
        lambda: session.take(1, house.now, house.facts),
    ):
        with pytest.raises(EntityDisabledError):
            command()


# --- losing and releasing -------------------------------------------------------------------------------------------


def test_a_lapsed_session_returns_its_messages_and_tells(house: House) -> None:
    send(house, ("s", "a"), ("s", "b"))
    session = house.accept()
    (message,) = session.acquire(1, house.now, house.facts)
    token = tag(message)
    house.heard.clear()
    house.clock.step(seconds=60)
    for command in (
        lambda: session.acquire(1, house.now, house.facts),
        lambda: session.take(1, house.now, house.facts),
        lambda: house.queue.complete(token, house.now, house.facts),
        lambda: house.queue.renew_session("s", house.now),
        lambda: house.queue.set_session_state("s", b"", house.now, house.facts),
        lambda: house.queue.receive_deferred([1], house.now, house.facts, session=session),
    ):
        with pytest.raises(SessionLockLostError):
            command()
    house.namespace.tick(house.now, house.facts)
    assert not session.locked
    assert house.heard == []
    with pytest.raises(SessionCannotBeLockedError):
        house.queue.accept_session("s", house.now)
    assert house.queue.accept_session(None, house.now) is None
    house.commit()
    assert house.heard == ["available q", "lost s", "available q"]
    with pytest.raises(SessionLockLostError):
        house.queue.complete(token, house.now, house.facts)
    again = house.accept()
    assert got(house, again) == ["a", "b"]
    assert message.delivery_count == 1


def test_a_released_session_is_free_at_once_and_in_order(house: House) -> None:
    send(house, ("s", "a"), ("s", "b"))
    session = house.accept()
    session.acquire(1, house.now, house.facts)
    house.queue.release_session(session, house.now, house.facts)
    again = house.accept("s")
    assert got(house, again) == [], "later messages wait until the first is back"
    again.on_available = lambda session: house.heard.append("inside")
    house.heard.clear()
    house.commit()
    assert "inside" in house.heard
    assert got(house, again) == ["a", "b"]


def test_releasing_a_session_twice_or_late_does_nothing(house: House) -> None:
    session = house.accept("s")
    house.queue.release_session(session, house.now, house.facts)
    house.queue.release_session(session, house.now, house.facts)
    house.commit()
    assert session.id not in house.queue.sessions.by_id  # type: ignore[union-attr]


def test_a_session_accepted_anew_outlives_the_news_of_its_release(house: House) -> None:
    send(house, ("s", "a"))
    first = house.accept("s")
    house.queue.release_session(first, house.now, house.facts)
    house.queue.delete_batch(1, house.now + 1, house.now, house.facts)
    again = house.accept("s")
    assert again is not first
    house.commit()
    assert house.queue.renew_session("s", house.now) == house.now + 60_000


@pytest.mark.parametrize("how", ["abandon", "defer"])
def test_later_messages_wait_for_one_on_its_way_back(house: House, how: str) -> None:
    send(house, ("s", "a"), ("s", "b"))
    session = house.accept()
    session.on_available = lambda session: house.heard.append("inside")
    (message,) = session.acquire(1, house.now, house.facts)
    getattr(house.queue, how)(tag(message), house.now, house.facts)
    assert got(house, session) == []
    assert session.take(9, house.now, house.facts) == []
    house.heard.clear()
    house.commit()
    assert house.heard == ["inside"]
    assert got(house, session) == (["a", "b"] if how == "abandon" else ["b"])


def test_renewing_keeps_a_session_and_its_messages(house: House) -> None:
    send(house, ("s", "a"))
    session = house.accept()
    (message,) = session.acquire(1, house.now, house.facts)
    house.step(50)
    assert house.queue.renew_session("s", house.now) == house.now + 60_000
    assert house.queue.renew(tag(message), house.now) == house.now + 60_000
    house.step(50)
    house.complete(message)


def test_a_changed_lock_duration_counts_for_new_locks(house: House) -> None:
    house.accept("old")
    settings = QueueSettings(path="q", requires_session=True, lock_duration_ms=5000)
    house.namespace.update_queue(settings, house.now, house.facts)
    house.commit()
    house.accept("new")
    house.step(5)
    assert house.heard == ["lost new"]
    house.step(55)
    assert house.heard == ["lost new", "lost old"]


def test_exhausted_messages_of_a_session_are_dead_lettered() -> None:
    house = House(requires_session=True, max_delivery_count=1)
    send(house, ("s", "a"))
    session = house.accept()
    session.acquire(1, house.now, house.facts)
    house.queue.release_session(session, house.now, house.facts)
    house.commit()
    assert house.queue.counts == (0, 0, 0, 1)
    (message,) = house.acquire(1, house.dead)
    assert message.session is None
    assert house.queue.accept_session(None, house.now) is None


def test_messages_expire_inside_a_session(house: House) -> None:
    send(house, ("s", "a"), ttl_ms=1000)
    send(house, ("s", "b"))
    session = house.accept()
    house.step(2)
    assert house.queue.counts.active == 1
    assert got(house, session) == ["b"]


# --- state, listing, browsing ---------------------------------------------------------------------------------------


def test_state_is_set_read_and_removed_under_the_lock(house: House) -> None:
    with pytest.raises(SessionLockLostError):
        house.queue.get_session_state("s")
    with pytest.raises(SessionLockLostError):
        house.queue.set_session_state("s", b"x", house.now, house.facts)
    house.accept("s")
    assert house.queue.get_session_state("s") is None
    house.queue.set_session_state("s", b"x", house.now, house.facts)
    house.queue.set_session_state("s", b"", house.now, house.facts)
    assert house.queue.get_session_state("s") is None
    with pytest.raises(ArgumentError):
        house.queue.set_session_state("s", b"x" * (SESSION_STATE_BYTES_MAX + 1), house.now, house.facts)
    house.queue.set_session_state("s", b"x" * SESSION_STATE_BYTES_MAX, house.now, house.facts)
    house.commit()
    house.crash()
    with pytest.raises(SessionLockLostError):
        house.queue.get_session_state("s")
    house.accept("s")
    assert house.queue.get_session_state("s") == b"x" * SESSION_STATE_BYTES_MAX
    house.queue.set_session_state("s", None, house.now, house.facts)
    house.commit()
    assert house.tables.rows[Table.SESSIONS] == {}


def test_a_state_set_in_the_commit_that_removed_it_stays(house: House) -> None:
    house.accept("s")
    house.queue.set_session_state("s", b"one", house.now, house.facts)
    house.commit()
    for state in (None, b"two", None, b"three"):
        house.queue.set_session_state("s", state, house.now, house.facts)
    house.commit()
    house.crash()
    house.accept("s")
    assert house.queue.get_session_state("s") == b"three"


def test_the_longest_session_id_keeps_its_state(house: House) -> None:
    name = "\U0001f600" * 128
    house.accept(name)
    house.queue.set_session_state(name, b"x", house.now, house.facts)
    house.commit()
    house.crash()
    assert house.queue.list_sessions(None, 0, 10) == [name]


def test_listing(house: House) -> None:
    send(house, *((f"s{number}", "a") for number in range(5)))
    house.accept("empty")
    assert house.queue.list_sessions(None, 0, 100) == [f"s{number}" for number in range(5)]
    assert house.queue.list_sessions(None, 3, 1) == ["s3"]
    assert house.queue.list_sessions(None, 5, 100) == []
    house.queue.set_session_state("empty", b"x", house.now, house.facts)
    assert house.queue.list_sessions(None, 5, 100) == ["empty"]
    assert house.queue.list_sessions(house.now - 1, 0, 100) == ["empty"]
    assert house.queue.list_sessions(house.now, 0, 100) == []


def test_browsing_shows_every_place_in_order(house: House) -> None:
    send(house, *(("s", f"m{number}") for number in range(6)))
    send(house, ("t", "other"))
    house.queue.schedule([new("later", session_id="s", scheduled_ms=house.now + 9999)], house.now, house.facts)
    house.commit()
    session = house.accept("s")
    first, second, third = session.acquire(3, house.now, house.facts)
    house.queue.abandon(tag(first), house.now, house.facts)
    house.queue.defer(tag(second), house.now, house.facts)
    house.commit()
    assert third.token

    def peek(start: int, count: int) -> list[str]:
        return house.names(house.queue.peek_session("s", start, count, house.now))

    assert peek(0, 100) == ["m0", "m1", "m2", "m3", "m4", "m5", "later"]
    assert peek(2, 3) == ["m1", "m2", "m3"]
    assert peek(7, 3) == ["later"]
    assert peek(100, 3) == []
    assert house.queue.peek_session("nobody", 0, 10, house.now) == []


def test_deferred_messages_belong_to_their_session(house: House) -> None:
    send(house, ("s", "a"))
    session = house.accept("s")
    other = house.accept("t")
    (message,) = session.acquire(1, house.now, house.facts)
    house.defer(message)
    with pytest.raises(MessageNotFoundError):
        house.queue.receive_deferred([1], house.now, house.facts, session=other)
    (again,) = house.queue.receive_deferred([1], house.now, house.facts, session=session)
    assert again.locked_until_ms == session.locked_until_ms
    house.complete(again)
    assert session.members == 0


def test_batch_delete_by_session_and_over_all(house: House) -> None:
    send(house, ("s", "a"), ("s", "b"), ("t", "c"))
    house.step(1)
    assert house.queue.delete_batch(5, house.now, house.now, house.facts, "nobody") == 0
    assert house.queue.delete_batch(1, house.now, house.now, house.facts, "s") == 1
    assert house.queue.delete_batch(5, house.now, house.now, house.facts) == 2
    house.commit()
    assert house.queue.counts.active == 0
    assert house.tables.rows[Table.BODIES] == {}


def test_a_restart_keeps_order_states_and_places(house: House) -> None:
    send(house, ("s", "a"), ("t", "b"), ("s", "c"))
    session = house.accept("s")
    (message,) = session.acquire(1, house.now, house.facts)
    house.defer(message)
    house.crash()
    assert house.queue.counts == (2, 0, 1, 0)
    first = house.accept()
    assert first.id == "t"
    second = house.accept()
    assert got(house, second) == ["c"]
    (deferred,) = house.queue.receive_deferred([1], house.now, house.facts, session=second)
    assert house.body(deferred) == "a"


def test_a_session_shows_itself(house: House) -> None:
    assert repr(house.accept("s")) == "<MessageSession 's' locked=True members=0>"


def test_a_tick_takes_back_sessions_until_their_messages_are_enough() -> None:
    house = House(requires_session=True, lock_duration_ms=10_000)
    held = TICK_MESSAGES_MAX // 2
    sessions = [f"s{number}" for number in range(5)]
    for name in sessions:
        house.send(*(f"{name}-{number}" for number in range(held)), session_id=name)
        house.accept(name).acquire(held, house.now, house.facts)
    house.clock.step(seconds=10)
    lost: list[list[str]] = []
    while (at_ms := house.namespace.next_deadline()) is not None and at_ms <= house.now:
        house.heard.clear()
        house.namespace.tick(house.now, house.facts)
        assert len(house.facts.index) <= TICK_MESSAGES_MAX
        house.commit()
        lost.append([each for each in house.heard if each.startswith("lost")])
    assert lost == [["lost s0", "lost s1"], ["lost s2", "lost s3"], ["lost s4"]]
    assert house.queue.counts.active == len(sessions) * held


class WatchedDict(dict[str, MessageSession]):
    """Counts the values that are looked at."""

    looked = 0

    def values(self) -> Iterator[MessageSession]:  # type: ignore[override]
        for value in super().values():
            self.looked += 1
            yield value


def test_deleting_a_batch_looks_at_no_more_sessions_than_it_needs() -> None:
    house = House(requires_session=True)
    for number in range(100):
        house.send("a", "b", session_id=f"s{number}")
    assert house.queue.sessions is not None
    house.queue.sessions.by_id = by_id = WatchedDict(house.queue.sessions.by_id)
    for left in (190, 180):
        assert house.queue.delete_batch(10, house.now + 1, house.now, house.facts) == 10
        assert house.queue.counts.active == left
    assert by_id.looked <= 20
    assert house.queue.delete_batch(500, house.now, house.now, house.facts) == 0
    assert house.queue.delete_batch(500, house.now + 1, house.now, house.facts) == 180


def test_a_peek_among_many_messages_aside_is_as_cheap_as_among_few() -> None:
    def work_at(count: int) -> int:
        house = House(requires_session=True)
        later_ms = house.now + 86_400_000
        house.send(*(f"m{number}" for number in range(count)), session_id="s", scheduled_ms=later_ms)
        peek = house.queue.peek_session
        assert [each.seq for each in peek("s", count - 3, 2, house.now)] == [count - 3, count - 2]
        return steps(lambda: peek("s", count - 3, 2, house.now))

    assert work_at(4_000) == work_at(100)


def test_a_peek_far_into_a_session_does_not_walk_to_its_place() -> None:
    house = House(requires_session=True)
    house.send(*(f"m{number}" for number in range(2_000)), session_id="s")
    (session,) = house.queue.sessions.by_id.values()  # type: ignore[union-attr]

    class WatchedDeque(deque[QueuedMessage]):
        def __iter__(self) -> Iterator[QueuedMessage]:  # type: ignore[override]
            raise AssertionError("it walks")

    session.available.fresh = WatchedDeque(session.available.fresh)
    assert [each.seq for each in house.queue.peek_session("s", 1_990, 2, house.now)] == [1_990, 1_991]


def test_a_peek_shows_messages_that_are_on_their_way() -> None:
    house = House(requires_session=True)
    house.send("a", "b", "c", "d", session_id="x")
    session = house.accept("x")
    first, second = session.acquire(2, house.now, house.facts)
    house.queue.abandon(tag(first), house.now, house.facts)
    house.queue.messages.pin(tag(second), house.now)
    peeked = house.queue.peek_session("x", 0, 10, house.now)
    assert house.names(peeked) == ["a", "b", "c", "d"]
    house.queue.complete(tag(second), house.now, house.facts)
    assert house.names(house.queue.peek_session("x", 0, 10, house.now)) == ["a", "c", "d"]
    house.commit()
    (taken,) = session.take(1, house.now, house.facts)
    assert house.names(house.queue.peek_session("x", 0, 10, house.now)) == ["a", "c", "d"]
    house.queue.remove_taken([taken], house.facts)
    assert house.names(house.queue.peek_session("x", 0, 10, house.now)) == ["c", "d"]
