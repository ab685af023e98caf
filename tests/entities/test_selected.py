"""What a selector finds in a queue: each message is looked at once, in order, and the memory is bounded."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from rules_house import House, tag

from twinbus.entities import selected as module
from twinbus.entities.filters import MessageSelector, Properties
from twinbus.entities.message import ACTIVE, GONE, QueuedMessage
from twinbus.entities.selected import SelectedMessages
from twinbus.entities.views import BlankView


class NumberView(BlankView):
    """A message whose only property `n` is its body number."""

    __slots__ = ("_properties",)

    def __init__(self, message: QueuedMessage) -> None:
        self._properties = Properties({"n": message.body_number, "tries": message.delivery_count})

    @property
    def properties(self) -> Properties:
        return self._properties


class CountingViews:
    """Counts how often messages are looked at."""

    def __init__(self) -> None:
        self.looks = 0

    def of_new(self, new: Any) -> Any:
        raise AssertionError

    def of_stored(self, message: QueuedMessage) -> NumberView:
        self.looks += 1
        return NumberView(message)


class SelectorHouse(House):
    """A queue whose index can be scanned as the broker does."""

    def select(self, text: str, views: CountingViews | None = None) -> SelectedMessages:
        return SelectedMessages(self.queue, MessageSelector(text), views or CountingViews())

    def catch_up(self, found: SelectedMessages, step: int = 3) -> None:
        while found.looking:
            found.look(step)
            if found.behind and not found.full:
                stored = [each for each in self.everything() if each.seq >= found.next_seq][:step]
                found.scanned(stored, len(stored) < step)

    def everything(self) -> list[QueuedMessage]:
        messages = self.queue.messages
        held = [*messages.locks.held.values(), *messages.locks.older.values()]
        available = messages.available
        returned = [] if available.returned is None else list(available.returned.since(0))
        live = [each for each in [*available.fresh, *returned, *held] if each.state != GONE]
        return sorted(live, key=lambda each: each.seq)

    def got(self, found: SelectedMessages, count: int = 100) -> list[QueuedMessage]:
        self.catch_up(found)
        return found.acquire(count, self.now, self.facts)


@pytest.fixture
def house() -> SelectorHouse:
    return SelectorHouse()


def numbers(messages: list[QueuedMessage]) -> list[int]:
    return [each.seq for each in messages]


def test_matching_messages_in_order_and_the_others_for_others(house: SelectorHouse) -> None:
    house.send(*"abcdef")
    found = house.select("n = 2 OR n = 5")
    first = house.got(found)
    assert numbers(first) == [2, 5]
    assert numbers(house.acquire(10)) == [1, 3, 4, 6]
    assert house.queue.counts.active == 6
    house.complete(first[0])
    house.abandon(first[1])
    house.commit()
    assert numbers(house.got(found)) == [5]
    assert found._queue.messages.available.gone == 0


def test_arrivals_are_found_without_a_rescan(house: SelectorHouse) -> None:
    views = CountingViews()
    house.send(*(str(number) for number in range(50)))
    found = house.select("n = 10 OR n = 60", views)
    assert numbers(house.got(found)) == [10]
    assert views.looks == 50
    house.send(*(str(number) for number in range(50)))
    assert numbers(house.got(found)) == [60]
    assert views.looks == 100, "each message is looked at once"
    assert house.got(found) == []
    assert views.looks == 100


def test_a_returned_message_is_looked_at_again(house: SelectorHouse) -> None:
    house.send("a", "b")
    found = house.select("tries > 0")
    assert house.got(found) == []
    one = house.one()
    house.abandon(one)
    house.commit()
    assert numbers(house.got(found)) == [one.seq]


def test_a_message_that_others_took_is_not_delivered_twice(house: SelectorHouse) -> None:
    house.send(*"abc")
    found = house.select("n > 0")
    house.catch_up(found)
    assert found.ready
    taken = house.acquire(3)
    assert house.got(found) == []
    house.complete(taken[0])
    house.abandon(taken[1])
    house.commit()
    assert numbers(house.got(found)) == [2]


def test_a_lock_expires_and_another_receiver_gets_the_message(house: SelectorHouse) -> None:
    house.send(*"abc")
    found = house.select("n = 2")
    assert numbers(house.got(found)) == [2]
    house.step(seconds=61)
    again = house.acquire(3)
    assert numbers(again) == [1, 2, 3]
    assert again[1].delivery_count == 1


def test_an_expired_message_is_not_delivered(house: SelectorHouse) -> None:
    house.send("a", "b", ttl_ms=1_000)
    house.send("c", ttl_ms=90_000)
    found = house.select("n > 1")
    house.catch_up(found)
    house.clock.step(ms=1_000)
    kept = found.acquire(10, house.now, house.facts)
    assert numbers(kept) == [3]
    house.step(seconds=5)
    assert house.queue.counts.active == 1
    house.queue.release(tag(kept[0]), house.now, house.facts)
    house.commit()
    house.step(seconds=100)
    assert house.queue.counts.active == 0, "the copy that was extracted expires like the message itself"


def test_receive_and_delete(house: SelectorHouse) -> None:
    house.send(*"abc")
    found = house.select("n = 2")
    house.catch_up(found)
    taken = found.take(5, house.now, house.facts)
    assert numbers(taken) == [2]
    house.queue.remove_taken(taken, house.facts)
    house.commit()
    assert numbers(house.acquire(5)) == [1, 3]


def test_dead_letter_queue(house: SelectorHouse) -> None:
    house.send(*"abc")
    for one in house.acquire(3):
        house.queue.dead_letter(tag(one), house.now, house.facts, "r", None)
    house.commit()
    found = SelectedMessages(house.dead, MessageSelector("n = 2"), CountingViews())
    found.scanned(list(house.dead.messages.available.fresh), True)
    assert numbers(found.acquire(5, house.now, house.facts)) == [2]


def test_nothing_is_held_without_receivers(house: SelectorHouse) -> None:
    first, second = house.select("n = 1"), house.select("n = 2")
    first.close()
    assert house.queue.messages.selected == [second]
    second.close()
    second.close()
    assert house.queue.messages.selected is None
    house.send("a")
    assert not first.ready
    assert not second.ready


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(module, "SELECTED_MESSAGES_MAX", 8)
    return 8


def test_it_remembers_a_bounded_number_and_finds_the_rest_later(house: SelectorHouse, few: int) -> None:
    if few != module.SELECTED_MESSAGES_MAX or house.select("n = 0").full:
        pytest.skip("compiled: the constant is fixed")
    found = house.select("n > 0")
    got: list[int] = []
    for _ in range(10):
        house.send(*"abcde")
        house.catch_up(found)
        assert len(found._matched) <= few + 3
        assert len(found._unseen) <= few
    while some := house.got(found, 4):
        got += numbers(some)
    assert got == list(range(1, 51))


def test_messages_that_return_again_and_again_are_remembered_once(house: SelectorHouse, few: int) -> None:
    if house.select("n = 0").full:
        pytest.skip("compiled: the constant is fixed")
    house.send(*"abcdefghijkl")
    found = house.select("n > 0")
    house.catch_up(found)
    for _ in range(50):
        for one in house.acquire(4):
            house.queue.release(tag(one), house.now, house.facts)
        house.commit()
    assert len(found._unseen) <= 12
    assert sorted(numbers([*house.got(found), *house.got(found)])) == list(range(1, 13))


@pytest.mark.parametrize("seed", range(8))
def test_against_a_plain_model(seed: int) -> None:
    """Two selectors and a plain receiver compete: nobody gets a message twice, and nobody misses one."""
    chance = random.Random(seed)
    house = SelectorHouse(max_delivery_count=1_000)
    odd = house.select("n = 1 OR n = 3 OR n = 5 OR n = 7 OR n BETWEEN 20 AND 40")
    wide = house.select("n > 4 AND n < 60")
    locked: dict[int, QueuedMessage] = {}
    done: set[int] = set()
    for _ in range(400):
        match chance.randrange(6):
            case 0:
                house.send(*("x" for _ in range(chance.randrange(4))))
            case 1 | 2:
                found = chance.choice([odd, wide])
                if chance.random() < 0.7:
                    house.catch_up(found, chance.randrange(1, 5))
                got = found.acquire(chance.randrange(1, 4), house.now, house.facts)
                assert numbers(got) == sorted(numbers(got))
                for one in got:
                    assert found.selector.matches(NumberView(one))
                    assert one.seq not in locked
                    assert one.seq not in done
                    locked[one.seq] = one
            case 3:
                for one in house.acquire(chance.randrange(3)):
                    assert one.seq not in locked
                    assert one.seq not in done
                    locked[one.seq] = one
            case 4 if locked:
                seq = chance.choice(list(locked))
                house.complete(locked.pop(seq))
                done.add(seq)
            case 5 if locked:
                house.abandon(locked.pop(chance.choice(list(locked))))
                house.commit()
    for one in locked.values():
        house.abandon(one)
    house.commit()
    rest = {each.seq for each in house.everything() if each.state == ACTIVE}
    assert rest | done == set(range(1, len(rest | done) + 1)), "none is missing"
    for found in (odd, wide):
        free = [each for each in house.everything() if each.token is None]
        expected = {each.seq for each in free if found.selector.matches(NumberView(each))}
        assert set(numbers(house.got(found, 1_000))) == expected
    assert house.queue.counts.active == len(rest)
