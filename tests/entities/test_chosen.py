"""Deleting and dead-lettering by sequence number: exactly the chosen messages, wherever they are."""

from __future__ import annotations

import pytest
from rules_house import House, new, tag

from twinbus.entities.available import Available
from twinbus.entities.dead_letter import DEAD_LETTER_REASON
from twinbus.entities.message import QueuedMessage
from twinbus.errors import EntityDisabledError, NotAllowedError
from twinbus.store.facts import Table


def test_exactly_the_chosen_ones_are_deleted() -> None:
    house = House()
    house.send(*"abcdef")
    locked = house.one()
    assert house.queue.delete_chosen([4, locked.seq, 2, 2, 99], house.now, house.facts) == [4, 2]
    assert house.names(house.acquire(9)) == ["c", "e", "f"], "gone at once for receivers"
    house.commit()
    house.queue.complete(tag(locked), house.now, house.facts)
    house.commit()
    house.crash()
    assert house.queue.counts.active == 3
    assert house.names(house.acquire(9)) == ["c", "e", "f"]
    assert len(house.tables.rows[Table.BODIES]) == 3


def test_one_that_came_back_from_a_lock_is_found() -> None:
    house = House()
    house.send("a", "b", "c")
    first, second = house.acquire(2)
    for message in (second, first):
        house.queue.release(tag(message), house.now, house.facts)
    house.commit()
    assert house.queue.delete_chosen([second.seq], house.now, house.facts) == [second.seq]
    assert house.names(house.acquire(9)) == ["a", "c"]


def test_scheduled_and_deferred_ones_too() -> None:
    house = House()
    (seq,) = house.queue.schedule([new("later", scheduled_ms=house.now + 1000)], house.now, house.facts)
    house.send("a")
    message = house.one()
    house.queue.defer(tag(message), house.now, house.facts)
    house.commit()
    assert house.queue.dead_letter_chosen([seq], house.now, house.facts, None, None) == [], "it was not there yet"
    assert house.queue.delete_chosen([seq, message.seq], house.now, house.facts) == [seq, message.seq]
    house.commit()
    house.step(seconds=5)
    counts = house.queue.counts
    assert (counts.active, counts.scheduled, counts.deferred, house.queue.size_bytes) == (0, 0, 0, 0)


def test_messages_of_a_session_leave_while_another_receiver_holds_it() -> None:
    house = House(requires_session=True)
    house.queue.send([new(name, session_id="s") for name in "abcd"], house.now, house.facts)
    house.commit()
    session = house.queue.accept_session("s", house.now)
    assert session is not None
    (held,) = session.acquire(1, house.now, house.facts)
    assert house.queue.delete_chosen([held.seq, 2], house.now, house.facts) == [2]
    assert house.queue.dead_letter_chosen([3], house.now, house.facts, "Bad", None) == [3]
    house.commit()
    assert house.names(session.acquire(9, house.now, house.facts)) == ["d"]
    assert house.queue.counts.dead_letter == 1


def test_a_session_whose_last_message_is_deleted_is_gone() -> None:
    house = House(requires_session=True)
    house.queue.send([new("a", session_id="s")], house.now, house.facts)
    house.commit()
    assert house.queue.delete_chosen([1], house.now, house.facts) == [1]
    house.commit()
    assert house.queue.accept_session(None, house.now) is None
    assert house.queue.list_sessions(None, 0, 9) == []


def test_chosen_ones_become_dead_letters_with_their_reason() -> None:
    house = House()
    house.send("a", "b", "c")
    house.queue.dead_letter_chosen([2], house.now, house.facts, "Bad", "It was bad.")
    house.commit()
    house.crash()
    assert (house.queue.counts.active, house.queue.counts.dead_letter) == (2, 1)
    (message,) = house.dead.acquire(9, house.now, house.facts)
    assert (message.seq, (message.changes or {})[DEAD_LETTER_REASON]) == (2, "Bad")
    with pytest.raises(NotAllowedError):
        house.dead.dead_letter_chosen([2], house.now, house.facts, None, None)


def test_nothing_leaves_what_is_disabled() -> None:
    house = House()
    house.send("a")
    settings = house.queue.settings
    house.queue.update(type(settings)(path="q", status="ReceiveDisabled"), house.now, house.facts)
    for call in (house.queue.delete_chosen, house.queue.dead_letter_chosen):
        with pytest.raises(EntityDisabledError):
            call([1], house.now, house.facts, *(("x", "y") if call == house.queue.dead_letter_chosen else ()))


def test_the_sessions_are_looked_through_once_for_all_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House(requires_session=True)
    for number in range(50):
        house.send("a", "b", session_id=f"s{number}")
    # Messages that returned are found too.
    session = house.accept("s7")
    session.acquire(2, house.now, house.facts)
    house.queue.release_session(session, house.now, house.facts)
    house.commit()
    looked = 0
    find = Available.find

    def counted(self: Available, seq: int) -> QueuedMessage | None:
        nonlocal looked
        looked += 1
        return find(self, seq)

    monkeypatch.setattr(Available, "find", counted)
    chosen = [15, 3, 99, 100, 200, 16, 50]
    assert house.queue.delete_chosen(chosen, house.now, house.facts) == [15, 3, 99, 100, 16, 50]
    assert looked <= 3 * len(chosen)
    house.commit()
    assert house.queue.counts.active == 94
    assert house.queue.dead_letter_chosen([1, 16], house.now, house.facts, "r", None) == [1]
