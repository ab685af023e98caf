"""A message whose body cannot be read is set aside from every place, kept, and blocks nobody."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from rules_house import House, new, tag

from twinbus.entities.message import QueuedMessage
from twinbus.entities.queue import Queue
from twinbus.store.facts import Table

Place = Callable[[House], QueuedMessage]


def available(house: House) -> QueuedMessage:
    found = house.queue.messages.find_at_rest(2)
    assert found is not None
    return found


def returned(house: House) -> QueuedMessage:
    _, second = house.acquire(2)
    house.abandon(second)
    return available(house)


def locked(house: House) -> QueuedMessage:
    return house.acquire(2)[1]


def taken(house: House) -> QueuedMessage:
    return house.queue.take(2, house.now, house.facts)[1]


def deferred(house: House) -> QueuedMessage:
    house.defer(house.acquire(2)[1])
    return available(house)


def deferred_and_locked(house: House) -> QueuedMessage:
    house.defer(house.acquire(2)[1])
    (message,) = house.queue.receive_deferred([2], house.now, house.facts, session=None)
    return message


PLACES: list[Place] = [available, returned, locked, taken, deferred, deferred_and_locked]


def settle_others(house: House, queue: Queue) -> None:
    """Return, receive and complete everything else."""
    house.step(seconds=120)
    queue.return_taken(list(queue.messages.taken.values()), house.now, house.facts)
    house.commit()
    while messages := house.acquire(5, queue):
        for message in messages:
            queue.complete(tag(message), house.now, house.facts)
        house.commit()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("ttl_ms", [None, 3_600_000])
def test_a_damaged_message_is_kept_and_the_others_go_on(place: Place, ttl_ms: int | None) -> None:
    house = House()
    house.send("a", "b", "c", ttl_ms=ttl_ms)
    message = place(house)
    assert message.seq == 2
    assert house.queue.messages.put_aside(message, house.facts)
    assert not house.queue.messages.put_aside(message, house.facts)
    house.commit()
    for _ in range(2):
        assert house.queue.damaged_count == 1
        assert house.queue.messages.find_at_rest(2) is None
        assert house.queue.counts.deferred == 0
        assert house.queue.size_bytes >= 100
        settle_others(house, house.queue)
        assert house.queue.counts == (0, 0, 0, 0)
        assert house.queue.size_bytes == 100
        assert len(house.tables.rows[Table.INDEX]) == len(house.tables.rows[Table.BODIES]) == 1
        house.step(seconds=7200)  # it does not expire
        house.crash()
    house.namespace.delete_queue("q", house.now, house.facts)
    house.commit()
    while house.namespace.sweep_pending:
        house.namespace.sweep(house.facts)
        house.commit()
    assert house.tables.rows[Table.INDEX] == house.tables.rows[Table.BODIES] == {}


def test_a_scheduled_message() -> None:
    house = House()
    house.queue.schedule([new("later", scheduled_ms=house.now + 1000)], house.now, house.facts)
    house.commit()
    message = house.queue.messages.find_at_rest(1)
    assert message is not None
    house.queue.messages.put_aside(message, house.facts)
    house.commit()
    house.step(seconds=5)
    assert house.queue.counts == (0, 0, 0, 0)
    assert house.acquire(5) == []
    house.crash()
    house.step(seconds=5)
    assert (house.queue.damaged_count, house.acquire(5)) == (1, [])


@pytest.mark.parametrize("take", [False, True])
def test_a_session_is_free_again_behind_it(take: bool) -> None:
    house = House(requires_session=True)
    house.send("a", "b", session_id="s")
    session = house.accept("s")
    receive = session.take if take else session.acquire
    (first,) = receive(1, house.now, house.facts)
    house.queue.messages.put_aside(first, house.facts)
    house.commit()
    (second,) = receive(1, house.now, house.facts)
    assert house.names([second]) == ["b"]
    if take:
        house.queue.remove_taken([second], house.facts)
    else:
        house.complete(second)
    house.commit()
    house.queue.release_session(session, house.now, house.facts)
    house.commit()
    assert house.queue.list_sessions(None, 0, 10) == []
    house.crash()
    assert house.queue.damaged_count == 1
    assert house.queue.list_sessions(None, 0, 10) == []


def test_a_message_on_its_way_back_is_met_again() -> None:
    house = House()
    house.send("a")
    message = house.one()
    house.queue.abandon(tag(message), house.now, house.facts)
    assert not house.queue.messages.put_aside(message, house.facts)
    house.commit()
    assert house.queue.messages.put_aside(house.one(), house.facts)


def test_a_dead_letter() -> None:
    house = House()
    house.send("a")
    house.queue.dead_letter(tag(house.one()), house.now, house.facts, None, None)
    house.commit()
    (message,) = house.acquire(1, house.dead)
    house.dead.messages.put_aside(message, house.facts)
    house.commit()
    assert (house.queue.damaged_count, house.queue.counts) == (1, (0, 0, 0, 0))
    house.crash()
    assert (house.queue.damaged_count, house.queue.counts) == (1, (0, 0, 0, 0))
