from __future__ import annotations

import pytest
from rules_house import House, new

from twinbus.entities.effects import EffectKind
from twinbus.entities.message import QueuedMessage
from twinbus.entities.schedule import Schedule
from twinbus.errors import MessageNotFoundError
from twinbus.limits import TICK_MESSAGES_MAX
from twinbus.store.facts import Table


def scheduled(house: House, *names: str, seconds: float = 10, **fields: object) -> list[int]:
    at_ms = house.now + round(seconds * 1000)
    messages = [new(name, scheduled_ms=at_ms, **fields) for name in names]  # type: ignore[arg-type]
    numbers = house.queue.schedule(messages, house.now, house.facts)
    house.commit()
    return numbers


def test_a_scheduled_message_becomes_active_at_its_time_under_a_new_number() -> None:
    house = House()
    assert scheduled(house, "a", "b") == [1, 2]
    house.send("c")
    assert house.queue.counts == (1, 2, 0, 0)
    house.step(9.999)
    assert house.names(house.acquire(9)) == ["c"]
    house.heard.clear()
    house.clock.step(ms=1)
    (effect,) = house.namespace.tick(house.now, house.facts)
    assert (effect.kind, effect.count) == (EffectKind.ACTIVATED, 2)
    assert house.acquire() == []
    house.commit()
    assert house.heard == ["available q"]
    got = house.acquire(9)
    assert house.names(got) == ["a", "b"]
    assert [message.seq for message in got] == [4, 5]
    assert {message.enqueued_ms for message in got} == {house.now}
    assert len(house.tables.rows[Table.INDEX]) == 3


def test_an_ordinary_send_with_a_future_time_schedules() -> None:
    house = House()
    house.send("a", scheduled_ms=house.now + 5000)
    house.send("b", scheduled_ms=house.now - 5000)
    assert house.queue.counts == (1, 1, 0, 0)
    house.step(5)
    assert house.names(house.acquire(9)) == ["b", "a"]


def test_schedules_survive_a_restart_even_if_it_lasts_longer() -> None:
    house = House()
    scheduled(house, "a", ttl_ms=20_000)
    house.clock.step(seconds=100)
    house.crash()
    assert house.queue.counts.scheduled == 1
    house.tick()
    (message,) = house.acquire()
    assert message.expires_ms == house.now + 20_000


def test_time_to_live_counts_from_the_scheduled_time() -> None:
    house = House()
    scheduled(house, "a", ttl_ms=5000)
    house.step(10)
    assert house.one().expires_ms == house.now + 5000


def test_cancel_removes_all_or_none() -> None:
    house = House()
    first, second = scheduled(house, "a", "b")
    house.send("c")
    before = house.snapshot()
    for numbers in ([first, 99], [3], [first, 3]):
        with pytest.raises(MessageNotFoundError):
            house.queue.cancel(numbers, house.now, house.facts)
        assert house.snapshot() == before
    house.queue.cancel([second, second], house.now, house.facts)
    house.commit()
    with pytest.raises(MessageNotFoundError):
        house.queue.cancel([second], house.now, house.facts)
    house.step(10)
    assert house.names(house.acquire(9)) == ["c", "a"]
    assert len(house.tables.rows[Table.BODIES]) == 2


def test_a_message_that_became_active_cannot_be_cancelled() -> None:
    house = House()
    numbers = scheduled(house, "a")
    house.step(10)
    with pytest.raises(MessageNotFoundError):
        house.queue.cancel(numbers, house.now, house.facts)


def test_a_scheduled_ping_gets_a_number_and_nothing_else() -> None:
    house = House()
    assert scheduled(house, "a", ping=True) == [1]
    assert house.queue.pings == 1
    assert house.queue.counts == (0, 0, 0, 0)


def test_many_due_at_once_are_activated_in_steps() -> None:
    house = House()
    scheduled(house, *(f"m{n}" for n in range(TICK_MESSAGES_MAX + 5)))
    house.clock.step(seconds=10)
    (effect,) = house.namespace.tick(house.now, house.facts)
    assert effect.count == TICK_MESSAGES_MAX
    at_ms = house.namespace.next_deadline()
    assert at_ms is not None
    assert at_ms <= house.now
    (effect,) = house.namespace.tick(house.now, house.facts)
    assert effect.count == 5
    house.commit()
    assert house.names(house.acquire(2000)) == [f"m{n}" for n in range(TICK_MESSAGES_MAX + 5)]


def test_scheduled_messages_of_a_session() -> None:
    house = House(requires_session=True)
    (first, _) = scheduled(house, "a", "b", session_id="s")
    house.queue.cancel([first], house.now, house.facts)
    house.commit()
    assert house.queue.accept_session(None, house.now) is None
    house.step(10)
    session = house.accept()
    assert house.names(session.acquire(9, house.now, house.facts)) == ["b"]


def test_cancelled_entries_do_not_pile_up() -> None:
    schedule = Schedule()
    for seq in range(1000):
        schedule.add(QueuedMessage(seq, seq, 1, 5000 + seq, None, 2, 0, None, None))
        if seq % 10:
            schedule.remove(seq)
    assert len(schedule) == 100
    assert len(schedule._heap) <= 200
    assert schedule.deadline_ms() == 5000
    assert [message.seq for message in schedule.due(5020, 10)] == [0, 10, 20]
