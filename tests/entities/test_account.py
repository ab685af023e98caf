from __future__ import annotations

from rules_house import House, new
from topic_house import TopicHouse

from twinbus.entities.account import Account
from twinbus.limits import APPLICATION_PROPERTY_BYTES_MAX


def test_what_was_accepted_is_held_whatever_the_bound() -> None:
    account = Account(10)
    account.hold(12)
    assert not account.room(0)
    assert not account.take(1)
    account.give(5)
    assert account.take(3)
    account.close()
    assert account.held_bytes == 0


def test_a_restart_counts_what_is_there() -> None:
    house = House(requires_session=True, requires_duplicate_detection=True, duplicate_window_ms=60_000)
    house.queue.send([new("a", session_id="one")], house.now, house.facts)
    house.commit()
    session = house.queue.accept_session("one", house.now)
    assert session is not None
    house.queue.set_session_state("one", b"state", house.now, house.facts)
    message = session.acquire(1, house.now, house.facts)[0]
    assert message.token is not None
    house.queue.abandon(message.token, house.now, house.facts, {"p": b"x" * 10_000})
    house.commit()
    before = _held(house)
    assert all(before)
    house.crash()
    assert _held(house) == before
    house.namespace.delete_queue("q", house.now, house.facts)
    assert _held(house) == (0, 0, 0)


def test_a_copy_whose_changes_find_no_room_is_a_dead_letter() -> None:
    house = TopicHouse()
    queue = house.subscribe("s", "1=1", "SET b = a")
    value = "x" * (APPLICATION_PROPERTY_BYTES_MAX - 100)
    house.namespace._commons.accounts.changes.bytes_max = 40_000
    house.publish("first", a=value)
    house.publish("second", a=value)
    assert queue.counts.active == 1
    assert queue.counts.dead_letter == 1
    assert 30_000 < _held(house)[1] < 40_000


def _held(house: House) -> tuple[int, int, int]:
    accounts = house.namespace._commons.accounts
    return accounts.session_states.held_bytes, accounts.changes.held_bytes, accounts.duplicate_ids.held_bytes
