from __future__ import annotations

import pytest
from rules_house import House, tag
from topic_house import TopicHouse

from twinbus.entities.dead_letter import DEAD_LETTER_REASON
from twinbus.entities.message import QueuedMessage, Relayed
from twinbus.entities.queue import Queue
from twinbus.entities.resubmission import Resubmitted
from twinbus.errors import ArgumentError, EntityDisabledError
from twinbus.limits import BATCH_DELETE_MESSAGES_MAX
from twinbus.store.facts import Table


def bury(house: House, queue: Queue | None = None, count: int = 1) -> None:
    queue = queue or house.queue
    for message in house.acquire(count, queue):
        queue.dead_letter(tag(message), house.now, house.facts, "Bad", "It was bad.")
    house.commit()


def resubmit(house: House, numbers: list[int] | None = None, queue: Queue | None = None, after: int = 0) -> Resubmitted:
    queue = queue or house.queue
    assert queue.dead_letters is not None
    done = queue.resubmit(queue.dead_letters, numbers, after, house.now, house.facts)
    house.commit()
    return done


def test_all_dead_letters_return_with_nothing_counted_and_no_reason() -> None:
    house = House()
    house.send("a", "b")
    bury(house, count=2)
    assert house.queue.counts.dead_letter == 2
    size = house.queue.size_bytes
    assert resubmit(house) == Resubmitted(2, 0, 2)
    assert (house.queue.counts.active, house.queue.counts.dead_letter, house.queue.size_bytes) == (2, 0, size)
    first, second = house.acquire(2)
    assert house.names([first, second]) == ["a", "b"]
    assert (first.seq, second.seq) == (3, 4), "as if they were sent now"
    assert isinstance(first, Relayed)
    assert (first.origin_seq, first.delivery_count, first.changes) == (1, 0, None)
    for message in (first, second):
        house.queue.complete(tag(message), house.now, house.facts)
    house.commit()
    assert not house.tables.rows[Table.BODIES]


def test_it_is_one_commit_and_survives_a_crash() -> None:
    house = House()
    house.send("a")
    bury(house)
    house.queue.resubmit(house.dead, None, 0, house.now, house.facts)
    assert house.dead.acquire(1, house.now, house.facts) == [], "gone from there at once"
    assert house.acquire() == [], "not seen before the commit"
    house.crash()
    assert (house.queue.counts.active, house.queue.counts.dead_letter) == (0, 1)
    resubmit(house)
    house.crash()
    assert (house.queue.counts.active, house.queue.counts.dead_letter) == (1, 0)


def test_only_the_chosen_ones() -> None:
    house = House()
    house.send("a", "b", "c")
    bury(house, count=3)
    assert resubmit(house, [2, 2, 99]).moved == 1
    assert house.names(house.acquire(5)) == ["b"]
    assert house.names(house.acquire(5, house.dead)) == ["a", "c"]


def test_one_that_was_locked_and_came_back_is_found() -> None:
    house = House()
    house.send("a", "b")
    bury(house, count=2)
    (locked,) = house.acquire(1, house.dead)
    assert resubmit(house, [locked.seq]).moved == 0, "somebody holds it"
    house.dead.release(tag(locked), house.now, house.facts)
    house.commit()
    assert resubmit(house, [locked.seq]).moved == 1
    assert resubmit(house).moved == 1
    assert house.names(house.acquire(2)) == ["a", "b"]


def test_a_bounded_number_at_a_time() -> None:
    house = House()
    count = BATCH_DELETE_MESSAGES_MAX + 1
    house.send(*(str(number) for number in range(count)))
    bury(house, count=count)
    first = resubmit(house)
    assert first == Resubmitted(BATCH_DELETE_MESSAGES_MAX, 0, BATCH_DELETE_MESSAGES_MAX)
    assert resubmit(house, after=first.last_seq).moved == 1
    with pytest.raises(ArgumentError, match="at most"):
        resubmit(house, list(range(count)))


def test_an_expired_one_lives_again() -> None:
    house = House(dead_letter_on_expiry=True)
    house.send("a", ttl_ms=5_000)
    house.step(seconds=6)
    assert house.queue.counts.dead_letter == 1
    resubmit(house)
    (message,) = house.acquire()
    assert (message.enqueued_ms, message.expires_ms) == (house.now, house.now + 5_000)


def test_it_is_no_duplicate_of_itself() -> None:
    house = House(requires_duplicate_detection=True)
    house.send("a")
    bury(house)
    resubmit(house)
    house.send("a")
    assert house.names(house.acquire(5)) == ["a"], "back, and a second one is still recognised"


def test_a_copy_returns_to_its_subscription_only() -> None:
    house = TopicHouse()
    house.subscribe("one")
    house.subscribe("two")
    house.publish("a")
    bury(house, house.sub("one"))
    assert resubmit(house, None, house.sub("one")).moved == 1
    assert house.finish(house.sub("one")) == ["a"]
    assert house.finish(house.sub("two")) == ["a"]
    assert house.bodies == 0


def test_what_needs_a_session_and_has_none_stays() -> None:
    house = TopicHouse()
    house.subscribe("s", requires_session=True)
    house.publish("a")
    assert house.sub("s").counts.dead_letter == 1, "it has no session"
    assert resubmit(house, None, house.sub("s")) == Resubmitted(0, 1, 1)
    assert house.sub("s").counts.dead_letter == 1


def test_a_disabled_queue_takes_nothing_back() -> None:
    house = House()
    house.send("a")
    bury(house)
    house.namespace.update_queue(
        house.queue.settings.__class__(path="q", status="SendDisabled"),  # type: ignore[call-arg]
        house.now,
        house.facts,
    )
    house.commit()
    with pytest.raises(EntityDisabledError):
        resubmit(house)
    assert house.queue.counts.dead_letter == 1


def test_dead_letters_of_another_queue_are_refused() -> None:
    house = House()
    other = house.create("other")
    assert other.dead_letters is not None
    with pytest.raises(ArgumentError, match="no dead-letter queue"):
        house.queue.resubmit(other.dead_letters, None, 0, house.now, house.facts)


def test_other_properties_stay() -> None:
    house = House()
    house.send("a")
    (message,) = house.acquire()
    house.queue.dead_letter(tag(message), house.now, house.facts, "Bad", None, {"seen": b"1"})
    house.commit()
    (dead,) = house.dead.messages.available.browse(0, 1)
    assert isinstance(dead, QueuedMessage)
    assert dead.changes == {"seen": b"1", DEAD_LETTER_REASON: "Bad"}
    resubmit(house)
    assert house.one().changes == {"seen": b"1"}
