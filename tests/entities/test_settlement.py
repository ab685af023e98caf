from __future__ import annotations

from collections.abc import Callable

import pytest
from rules_house import House, tag

from twinbus.entities import records
from twinbus.entities.settings import QueueSettings
from twinbus.errors import ArgumentError, MessageLockLostError, NotAllowedError
from twinbus.limits import DEAD_LETTER_TEXT_CHARS_MAX
from twinbus.store.facts import Table

Command = Callable[[House, bytes], object]

COMMANDS: dict[str, Command] = {
    "complete": lambda house, token: house.queue.complete(token, house.now, house.facts),
    "abandon": lambda house, token: house.queue.abandon(token, house.now, house.facts),
    "defer": lambda house, token: house.queue.defer(token, house.now, house.facts),
    "dead_letter": lambda house, token: house.queue.dead_letter(token, house.now, house.facts, "r", "d"),
    "release": lambda house, token: house.queue.release(token, house.now, house.facts),
    "drop": lambda house, token: house.queue.drop(token, house.now, house.facts),
    "renew": lambda house, token: house.queue.renew(token, house.now),
}
SETTLING = [name for name in COMMANDS if name != "renew"]


def lost(house: House, name: str, token: bytes) -> bool:
    """Whether the lock is lost and nothing has changed."""
    before = house.snapshot()
    with pytest.raises(MessageLockLostError):
        COMMANDS[name](house, token)
    return house.snapshot() == before


@pytest.mark.parametrize("name", COMMANDS)
def test_an_unknown_token_is_lock_lost(name: str) -> None:
    house = House()
    assert lost(house, name, b"?" * 16)
    assert lost(house, name, b"")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_lapsed_lock_is_lost_even_before_the_tick(name: str) -> None:
    house = House()
    house.send("a")
    message = house.one()
    house.clock.step(ms=59_999)
    house.queue.renew(tag(message), house.now)
    house.clock.step(ms=60_000)
    assert lost(house, name, tag(message))
    token = tag(message)
    house.tick()
    assert lost(house, name, token)


@pytest.mark.parametrize("first", SETTLING)
@pytest.mark.parametrize("second", COMMANDS)
def test_a_settled_message_cannot_be_settled_again(first: str, second: str) -> None:
    house = House()
    house.send("a")
    token = tag(house.one())
    COMMANDS[first](house, token)
    assert lost(house, second, token)
    house.commit()
    assert lost(house, second, token)


def test_complete_is_for_good_once_durable() -> None:
    house = House()
    house.send("a")
    house.queue.complete(tag(house.one()), house.now, house.facts)
    house.crash()
    house.complete(house.one())
    house.crash()
    assert house.acquire() == []
    assert house.tables.rows[Table.INDEX] == {}
    assert house.tables.rows[Table.BODIES] == {}


def test_an_abandoned_message_returns_after_the_commit_and_counts() -> None:
    house = House()
    house.send("a")
    house.heard.clear()
    house.queue.abandon(tag(house.one()), house.now, house.facts, {"tried": "once", "raw": b"\x40"})
    assert house.acquire() == []
    assert house.heard == []
    house.commit()
    assert house.heard == ["available q"]
    message = house.one()
    assert message.delivery_count == 1
    assert message.changes == {"tried": "once", "raw": b"\x40"}
    house.queue.abandon(tag(message), house.now, house.facts, {"tried": "twice"})
    house.commit()
    house.crash()
    message = house.one()
    assert message.delivery_count == 2
    assert message.changes == {"tried": "twice", "raw": b"\x40"}


def test_release_counts_nothing_and_writes_nothing() -> None:
    house = House()
    house.send("a")
    house.queue.release(tag(house.one()), house.now, house.facts)
    assert house.commit().empty
    assert house.one().delivery_count == 0


def test_drop_counts() -> None:
    house = House()
    house.send("a")
    house.queue.drop(tag(house.one()), house.now, house.facts)
    assert not house.commit().empty
    assert house.one().delivery_count == 1


@pytest.mark.parametrize("name", ["abandon", "drop", "lapse"])
def test_the_last_delivery_dead_letters(name: str) -> None:
    house = House(max_delivery_count=2)
    house.send("a", "b")
    for _ in range(2):
        token = tag(house.one())
        if name == "lapse":
            house.step(60)
        else:
            COMMANDS[name](house, token)
            house.commit()
    assert house.queue.counts == (1, 0, 0, 1)
    house.crash()
    (message,) = house.acquire(1, house.dead)
    assert house.body(message) == "a"
    assert message.seq == 1
    assert message.delivery_count == 2
    assert message.changes == {
        "DeadLetterReason": "MaxDeliveryCountExceeded",
        "DeadLetterErrorDescription": "Message could not be consumed after 2 delivery attempts.",
    }
    assert house.names(house.acquire(9)) == ["b"]


def test_release_never_dead_letters() -> None:
    house = House(max_delivery_count=1)
    house.send("a")
    for _ in range(5):
        house.queue.release(tag(house.one()), house.now, house.facts)
        house.commit()
    assert house.queue.counts.dead_letter == 0


def test_dead_letter_keeps_number_size_body_and_says_why() -> None:
    house = House()
    house.send("a", "b")
    house.dead.on_available = lambda queue: house.heard.append("dead")
    _, message = house.acquire(2)
    house.heard.clear()
    house.queue.dead_letter(tag(message), house.now, house.facts, "Bad", "x" * 9999, {"more": "yes"})
    assert house.queue.size_bytes == 200
    assert house.acquire(1, house.dead) == []
    facts = house.commit()
    assert facts.bodies == {}
    assert house.heard == ["dead"]
    (moved,) = house.acquire(1, house.dead)
    assert (moved.seq, house.body(moved)) == (2, "b")
    assert moved.changes == {
        "more": "yes",
        "DeadLetterReason": "Bad",
        "DeadLetterErrorDescription": "x" * DEAD_LETTER_TEXT_CHARS_MAX,
    }
    assert house.dead.path == "q/$DeadLetterQueue"


def test_dead_letter_without_a_reason() -> None:
    house = House()
    house.send("a")
    house.queue.dead_letter(tag(house.one()), house.now, house.facts, None, None)
    house.commit()
    (moved,) = house.acquire(1, house.dead)
    assert moved.changes is None


def test_a_dead_letter_stays_where_it_is() -> None:
    house = House(max_delivery_count=1)
    house.send("a")
    house.abandon(house.one())
    (message,) = house.acquire(1, house.dead)
    with pytest.raises(NotAllowedError):
        house.dead.dead_letter(tag(message), house.now, house.facts, None, None)
    for _ in range(20):
        house.dead.abandon(tag(message), house.now, house.facts)
        house.commit()
        (message,) = house.acquire(1, house.dead)
    assert message.delivery_count == 1
    house.dead.defer(tag(message), house.now, house.facts)
    house.commit()
    assert house.queue.counts.dead_letter == 1
    (message,) = house.dead.receive_deferred([1], house.now, house.facts, session=None)
    house.dead.complete(tag(message), house.now, house.facts)
    house.commit()
    assert house.queue.counts == (0, 0, 0, 0)
    assert house.tables.rows[Table.BODIES] == {}


def test_dead_letters_are_in_sequence_order_whenever_they_came() -> None:
    house = House()
    house.send("a", "b", "c")
    for message in reversed(house.acquire(3)):
        house.queue.dead_letter(tag(message), house.now, house.facts, None, None)
        house.commit()
    assert house.names(house.acquire(3, house.dead)) == ["a", "b", "c"]


@pytest.mark.parametrize("name", ["abandon", "defer", "dead_letter"])
def test_properties_to_modify_are_bounded_before_anything_changes(name: str) -> None:
    house = House()
    house.send("a")
    message = house.one()
    house.queue.abandon(tag(message), house.now, house.facts, {"first": "x" * 40_000})
    house.commit()
    message = house.one()
    before = house.snapshot()
    arguments = ("r", "d") if name == "dead_letter" else ()
    with pytest.raises(ArgumentError):
        getattr(house.queue, name)(tag(message), house.now, house.facts, *arguments, {"more": "y" * 30_000})
    assert house.snapshot() == before
    house.complete(message)


def test_renewal_lasts_a_whole_duration_from_now() -> None:
    house = House()
    house.send("a", "b")
    first, second = house.acquire(2)
    house.step(50)
    assert house.queue.renew(tag(first), house.now) == house.now + 60_000
    house.step(10)
    assert second.token is None
    house.step(49.999)
    house.complete(first)


def test_a_shorter_lock_duration_counts_for_new_locks_only() -> None:
    house = House(lock_duration_ms=300_000)
    house.send("a", "b", "c")
    old, renewed = house.acquire(2)
    house.namespace.update_queue(QueueSettings(path="q", lock_duration_ms=5_000), house.now, house.facts)
    house.commit()
    house.acquire()
    house.step(4)
    assert house.queue.renew(tag(renewed), house.now) == house.now + 5_000
    house.step(1)
    assert house.names(house.acquire(9)) == ["c"]
    house.step(4)
    assert house.names(house.acquire(9)) == ["b"]
    house.step(200)
    house.complete(old)
    assert house.queue.counts.active == 2


def test_records_of_settled_messages_follow() -> None:
    house = House()
    house.send("a")
    house.queue.defer(tag(house.one()), house.now, house.facts, {"k": "v"})
    house.commit()
    (value,) = house.tables.rows[Table.INDEX].values()
    record = records.unpack(value)
    assert (record.state, record.delivery_count, record.changes) == (1, 1, {"k": "v"})
