from __future__ import annotations

import pytest
from rules_house import House, new

from twinbus.entities.settings import QueueSettings
from twinbus.limits import TICK_MESSAGES_MAX
from twinbus.store.facts import Facts, Table

WINDOW_S = 20


def house_with_window() -> House:
    return House(requires_duplicate_detection=True, duplicate_window_ms=WINDOW_S * 1000)


def test_a_second_message_with_the_same_id_is_accepted_and_dropped() -> None:
    house = house_with_window()
    house.send("a")
    house.send("a", "b")
    house.send("c", "c")
    assert house.names(house.acquire(9)) == ["a", "b", "c"]


def test_without_detection_both_are_kept() -> None:
    house = House()
    house.send("a", "a")
    assert house.queue.counts.active == 2


def test_the_id_is_known_even_if_the_message_is_gone() -> None:
    house = house_with_window()
    house.send("a")
    house.complete(house.one())
    house.send("a")
    assert house.queue.counts.active == 0


def test_the_window_ends() -> None:
    house = house_with_window()
    house.send("a")
    house.clock.step(ms=WINDOW_S * 1000 - 1)
    house.send("a")
    assert house.queue.counts.active == 1
    house.clock.step(ms=1)
    house.send("a")
    assert house.queue.counts.active == 2
    house.send("a")
    assert house.queue.counts.active == 2


def test_the_window_survives_a_restart() -> None:
    house = house_with_window()
    house.send("a")
    house.clock.step(seconds=WINDOW_S - 1)
    house.crash()
    house.send("a")
    assert house.queue.counts.active == 1
    house.clock.step(seconds=1)
    house.send("a")
    assert house.queue.counts.active == 2
    house.crash()
    house.send("a")
    assert house.queue.counts.active == 2


def test_an_id_that_was_never_durable_is_unknown_after_a_crash() -> None:
    house = house_with_window()
    house.queue.send([new("a")], house.now, house.facts)
    house.crash()
    house.send("a")
    assert house.queue.counts.active == 1


def test_scheduled_messages_count_and_name_the_first() -> None:
    house = house_with_window()
    at_ms = house.now + 5000
    numbers = house.queue.schedule([new("a", scheduled_ms=at_ms), new("a", scheduled_ms=at_ms)], house.now, house.facts)
    assert numbers == [1, 1]
    house.commit()
    house.send("a")
    assert house.queue.counts == (0, 1, 0, 0)


def test_old_ids_are_purged_in_steps() -> None:
    house = house_with_window()
    count = TICK_MESSAGES_MAX + 10
    house.send(*(f"m{n}" for n in range(count)))
    rows = house.tables.rows[Table.DUPLICATES]
    assert len(rows) == count
    house.clock.step(seconds=WINDOW_S + 1)
    house.namespace.tick(house.now, house.facts)
    house.commit()
    assert len(rows) == count - TICK_MESSAGES_MAX
    house.tick()
    assert rows == {}
    assert house.queue.duplicates is not None
    assert len(house.queue.duplicates) == 0


def test_an_id_that_comes_back_in_the_commit_that_purges_it_is_remembered() -> None:
    house = house_with_window()
    house.send("a")
    house.clock.step(seconds=WINDOW_S + 1)
    house.queue.send([new("a")], house.now, house.facts)
    house.namespace.tick(house.now, house.facts)
    house.commit()
    house.crash()
    house.send("a")
    assert house.queue.counts.active == 2


@pytest.mark.parametrize(("window_s", "known"), [(100, True), (20, False)])
def test_a_changed_window_counts_for_ids_seen_before(window_s: int, known: bool) -> None:
    house = House(requires_duplicate_detection=True, duplicate_window_ms=60_000)
    house.send("a")
    settings = QueueSettings(path="q", requires_duplicate_detection=True, duplicate_window_ms=window_s * 1000)
    house.namespace.update_queue(settings, house.now, house.facts)
    house.commit()
    house.step(30)
    house.send("a")
    assert house.queue.counts.active == (1 if known else 2)


def test_a_duplicate_writes_nothing() -> None:
    house = house_with_window()
    house.send("a")
    house.queue.send([new("a")], house.now, house.facts)
    assert isinstance(house.facts, Facts)
    assert house.commit().empty
