from __future__ import annotations

import sys

import pytest
from rules_house import House, new, tag

from twinbus.entities.effects import EffectKind
from twinbus.entities.expiry import Expiry
from twinbus.entities.message import GONE, QueuedMessage
from twinbus.limits import COMPACT_STEP, EXPIRED_PER_ACQUIRE_MAX, TICK_MESSAGES_MAX
from twinbus.store.facts import Table

EXPIRED = {
    "DeadLetterReason": "TTLExpiredException",
    "DeadLetterErrorDescription": "The message expired and was dead lettered.",
}


@pytest.mark.parametrize(
    ("message_s", "entity_s", "lives_s"), [(5, None, 5), (None, 7, 7), (5, 7, 5), (9, 7, 7), (None, None, None)]
)
def test_the_entity_default_is_the_ceiling(message_s: int | None, entity_s: int | None, lives_s: int | None) -> None:
    house = House(**({} if entity_s is None else {"default_ttl_ms": entity_s * 1000}))
    house.send("a", ttl_ms=None if message_s is None else message_s * 1000)
    message = house.one()
    assert message.expires_ms == (None if lives_s is None else house.now + lives_s * 1000)


def test_an_expired_message_is_dropped() -> None:
    house = House()
    house.send("a", ttl_ms=1000)
    house.send("b")
    house.step(0.999)
    assert house.queue.counts.active == 2
    house.step(1.001)
    assert house.queue.counts == (1, 0, 0, 0)
    assert house.names(house.acquire(9)) == ["b"]
    assert len(house.tables.rows[Table.BODIES]) == 1


def test_an_expired_message_is_dead_lettered_where_asked() -> None:
    house = House(dead_letter_on_expiry=True)
    house.send("a", ttl_ms=1000)
    house.clock.step(seconds=2)
    (effect,) = house.namespace.tick(house.now, house.facts)
    assert (effect.kind, effect.count, effect.queue) == (EffectKind.EXPIRED, 1, house.queue)
    assert repr(effect) == "<Effect 1 messages expired in q>"
    house.commit()
    (moved,) = house.acquire(1, house.dead)
    assert moved.changes == EXPIRED


def test_receivers_check_to_the_millisecond() -> None:
    house = House(dead_letter_on_expiry=True)
    house.send("a", "b", ttl_ms=1500)
    house.send("c")
    house.clock.step(ms=1499)
    assert house.names(house.acquire(1)) == ["a"]
    house.clock.step(ms=1)
    assert house.names(house.acquire(1)) == ["c"]
    house.commit()
    assert house.queue.counts.dead_letter == 1


@pytest.mark.parametrize("how", ["abandon", "release", "drop", "lapse"])
def test_a_locked_message_expires_when_unlocked(how: str) -> None:
    house = House(dead_letter_on_expiry=True)
    house.send("a", ttl_ms=2000)
    message = house.one()
    house.step(5)
    assert house.queue.counts == (1, 0, 0, 0)
    if how == "lapse":
        house.step(60)
    else:
        getattr(house.queue, how)(tag(message), house.now, house.facts)
    house.commit()
    assert house.queue.counts == (0, 0, 0, 1)
    (moved,) = house.acquire(1, house.dead)
    assert moved.changes == EXPIRED


def test_a_message_that_expires_while_its_return_is_written_goes_with_the_next_tick() -> None:
    house = House()
    house.send("a", ttl_ms=2000)
    house.send("b", ttl_ms=1000)
    message, _ = house.acquire(2)
    house.clock.step(ms=1500)
    house.queue.abandon(tag(message), house.now, house.facts)
    first, house.facts = house.facts, type(house.facts)()
    house.step(5)
    house.tables.apply(first)
    for call, argument in first.then:
        call(argument)
    assert house.queue.counts.active == 2
    at_ms = house.namespace.next_deadline()
    assert at_ms is not None
    assert at_ms <= house.now
    house.tick()
    assert house.queue.counts.active == 1


def test_a_locked_message_can_be_completed_after_its_time() -> None:
    house = House()
    house.send("a", ttl_ms=1000)
    message = house.one()
    house.step(30)
    house.complete(message)
    assert house.queue.counts == (0, 0, 0, 0)


@pytest.mark.parametrize("dead_letter", [True, False])
def test_a_deferred_message_expires_when_asked_for(dead_letter: bool) -> None:
    house = House(dead_letter_on_expiry=dead_letter)
    house.send("a", ttl_ms=1000)
    house.defer(house.one())
    house.step(100)
    assert house.queue.counts.deferred == 1
    assert house.queue.receive_deferred([1], house.now, house.facts, session=None) == []
    house.commit()
    assert house.queue.counts == (0, 0, 0, int(dead_letter))


def test_dead_letter_queues_ignore_it() -> None:
    house = House(dead_letter_on_expiry=True, default_ttl_ms=1000)
    house.send("a")
    house.step(2)
    house.step(1000)
    house.crash()
    house.step(1000)
    (message,) = house.acquire(1, house.dead)
    house.dead.abandon(tag(message), house.now, house.facts)
    house.commit()
    house.step(1000)
    assert house.queue.counts.dead_letter == 1


def test_expiry_goes_on_after_a_restart() -> None:
    house = House()
    house.send("a", ttl_ms=5000)
    house.clock.step(seconds=3)
    house.crash()
    house.step(3)
    assert house.queue.counts.active == 0


def test_acquire_clears_a_bounded_number_of_expired_ones() -> None:
    house = House()
    house.queue.send([new(f"m{n}", ttl_ms=1000) for n in range(EXPIRED_PER_ACQUIRE_MAX + 1)], house.now, house.facts)
    house.queue.send([new("last")], house.now, house.facts)
    house.commit()
    house.heard.clear()
    house.clock.step(seconds=1.5)
    assert house.acquire(5) == []
    assert len(house.facts.deletes) == 2 * EXPIRED_PER_ACQUIRE_MAX
    house.commit()
    assert house.heard == ["available q"]
    assert house.names(house.acquire(5)) == ["last"]


def test_finished_messages_with_a_long_time_to_live_leave_nothing() -> None:
    house = House()
    for _ in range(300):
        house.send("a", "b", ttl_ms=14 * 86_400_000)
        for message in house.acquire(2):
            house.complete(message)
        house.step(1)
    expiry = house.queue.messages.expiry
    assert expiry._buckets == {}
    assert len(expiry._seconds) <= 64


def message(seq: int, expires_ms: int) -> QueuedMessage:
    return QueuedMessage(seq, seq, 1, 0, expires_ms, 0, 0, None, None)


def test_a_bucket_is_rebuilt_when_half_of_it_is_stale() -> None:
    expiry = Expiry()
    messages = [message(seq, 5000 + seq) for seq in range(100)]
    for one in messages:
        expiry.add(one)
    for one in messages[:51]:
        one.state = GONE
        expiry.forget(one)
    assert [kept.seq for kept in expiry._buckets[5].messages] == list(range(51, 100))
    assert sys.getrefcount(messages[0]) <= 3
    assert sorted(found.seq for found in expiry.due(6000, 1000)) == list(range(51, 100))
    assert expiry.deadline_ms() is None


def test_many_messages_that_leave_early_are_forgotten_in_steps() -> None:
    expiry = Expiry()
    count = 3 * COMPACT_STEP
    messages = [message(seq, 5_000) for seq in range(count)]
    for one in messages:
        expiry.add(one)
    bucket = expiry._buckets[5]
    dropped = 0
    for one in [*messages[100::2], *messages[101::2]]:
        one.state = GONE
        expiry.forget(one)
        now_dropped = count - len(bucket.messages)
        assert now_dropped - dropped <= COMPACT_STEP
        dropped = now_dropped
    assert len(bucket.messages) < 200
    assert [found.seq for found in expiry.due(6_000, count)] == list(range(100))


def test_due_is_bounded_and_goes_on() -> None:
    expiry = Expiry()
    for seq in range(10):
        expiry.add(message(seq, 1000 * seq))
    assert expiry.deadline_ms() == 1000
    assert len(expiry.due(5000, 3)) == 3
    assert len(expiry.due(5000, 3)) == 2
    assert expiry.due(5000, 3) == []
    assert expiry.deadline_ms() == 6000


def test_those_that_expire_together_leave_oldest_first_a_bounded_number_a_tick() -> None:
    house = House(dead_letter_on_expiry=True)
    count = 2 * TICK_MESSAGES_MAX + 10
    house.send(*(f"m{number}" for number in range(count)), ttl_ms=1000)
    house.clock.step(seconds=2)
    dead = house.queue.dead_letters
    assert dead is not None
    left = count
    while left > 0:
        house.namespace.tick(house.now, house.facts)
        house.commit()
        left = max(left - TICK_MESSAGES_MAX, 0)
        assert [message.seq for message in dead.messages.available.fresh] == list(range(1, count - left + 1))
        assert not dead.messages.available.returned
        assert len(house.queue.messages.available.fresh) == left, "nobody walks over those that are gone"
