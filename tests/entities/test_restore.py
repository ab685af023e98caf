from __future__ import annotations

import random

import pytest
from rules_house import House, new, tag

from twinbus.entities import records
from twinbus.entities.namespace import Namespace
from twinbus.errors import StoreCorruptError
from twinbus.store.facts import Table


def test_locks_are_released_without_counting() -> None:
    house = House()
    house.send("a", "b")
    house.acquire(2)
    house.crash()
    assert [message.delivery_count for message in house.acquire(9)] == [0, 0]


def test_everything_comes_back_where_it_was() -> None:
    house = House(requires_duplicate_detection=True)
    house.create("empty")
    house.send(*(f"m{number}" for number in range(30)))
    messages = house.acquire(30)
    randomness = random.Random(7)
    randomness.shuffle(messages)
    for message in messages[:10]:
        house.queue.abandon(tag(message), house.now, house.facts, {"k": "v"} if message.seq % 2 else None)
    for message in messages[10:15]:
        house.queue.defer(tag(message), house.now, house.facts)
    for message in messages[15:18]:
        house.queue.dead_letter(tag(message), house.now, house.facts, "r", None)
    for message in messages[18:20]:
        house.queue.complete(tag(message), house.now, house.facts)
    house.queue.schedule([new("later", scheduled_ms=house.now + 5000)], house.now, house.facts)
    house.commit()
    counts, size = house.queue.counts, house.queue.size_bytes
    house.crash()
    assert (house.queue.counts, house.queue.size_bytes) == (counts, size) == ((20, 1, 5, 3), 2900)
    got = house.acquire(99)
    assert [message.seq for message in got] == sorted(message.seq for message in [*messages[:10], *messages[20:]])
    assert sum(message.delivery_count for message in got) == 10
    assert len(house.namespace.queues()) == 2
    assert house.namespace.queue("empty").counts == (0, 0, 0, 0)


def test_a_crash_before_the_first_commit_leaves_an_empty_namespace() -> None:
    namespace = Namespace.restore("n", [], [], [], [], [], 0, lambda: b"t" * 16)
    assert namespace.queues() == []
    assert namespace.next_deadline() is None


def test_rows_without_a_mark_still_do_not_let_numbers_come_twice() -> None:
    house = House()
    house.send("a", "b")
    del house.tables.rows[Table.META][records.META_SEQUENCE + records.ENTITY_KEY.pack(house.queue.entity_id)]
    house.crash()
    house.send("c")
    assert [message.seq for message in house.acquire(9)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("table", "value"),
    [
        (Table.ENTITIES, b"{"),
        (Table.ENTITIES, b"{}"),
        (Table.ENTITIES, b'{"settings":{"path":""},"created_ms":1,"updated_ms":1}'),
        (Table.ENTITIES, b'{"settings":{"path":"q","colour":1},"created_ms":1,"updated_ms":1}'),
    ],
)
def test_a_row_that_does_not_read_back_stops_the_start(table: Table, value: bytes) -> None:
    house = House()
    house.send("a")
    (key,) = house.tables.rows[table]
    house.tables.rows[table][key] = value
    with pytest.raises(StoreCorruptError):
        house.crash()


@pytest.mark.parametrize("value", [b"", b"\x01" * 20, b"\x05" + bytes(33), b"\x01\x03" + bytes(32)])
def test_a_message_that_does_not_read_back_keeps_nobody_from_starting(value: bytes) -> None:
    house = House()
    house.send("a", "b")
    key = min(house.tables.rows[Table.INDEX])
    house.tables.rows[Table.INDEX][key] = value
    house.crash()
    assert [(each.table, each.key) for each in house.namespace.set_aside.found] == [(Table.INDEX, key)]
    assert house.names(house.acquire(9)) == ["b"]


def test_shared_bodies_are_counted_again() -> None:
    house = House()
    house.create("other")
    house.send("a")
    message = house.one()
    house.namespace._commons.bodies.share(message.body_number, 2)
    house.queue.messages.write(message, house.facts)
    value = list(house.facts.index.values())[-1]
    assert records.unpack(value).shared
    other = house.namespace.queue("other")
    house.facts.index[records.key(other.entity_id, 1)] = value
    house.facts.index[records.key(other.entity_id, 2)] = value
    house.commit()
    house.crash()
    bodies = house.namespace._commons.bodies
    assert bodies.references == {message.body_number: 3}
    other = house.namespace.queue("other")
    for token in [tag(copy) for copy in house.acquire(2, other)]:
        other.complete(token, house.now, house.facts)
        house.commit()
        assert len(house.tables.rows[Table.BODIES]) == 1
    assert bodies.references == {}
    house.crash()
    assert house.namespace._commons.bodies.references == {}
    house.complete(house.one())
    assert house.tables.rows[Table.BODIES] == {}
