"""Costs that must not grow: memory per message, and work per command at any depth. `bench/rules.py` has figures."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable

import pytest
from rules_house import House, new, tag

from twinbus.entities.message import QueuedMessage

BYTES_MAX = 300


@pytest.mark.parametrize("ttl_ms", [None, 3_600_000])
def test_a_queued_message_takes_at_most_300_bytes(ttl_ms: int | None) -> None:
    house = House(max_megabytes=5120)
    count = 20_000
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for start in range(0, count, 500):
        for number in range(start, start + 500):
            message = new("a", size=1000 + number % 1000, ttl_ms=ttl_ms)
            house.queue.send([message], house.now + number, house.facts)
        for call, argument in house.facts.then:
            call(argument)
        house.facts = type(house.facts)()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert house.queue.counts.active == count
    assert (after - before) / count <= BYTES_MAX


def steps(command: Callable[[], object]) -> int:
    """The number of Python lines that a command runs."""
    count = 0

    def trace(frame: object, event: str, argument: object) -> object:
        nonlocal count
        count += event == "line"
        return trace

    previous = sys.gettrace()
    # Hypothesis has a callback in the collector, whose lines would be counted too.
    gc.disable()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        command()
    finally:
        sys.settrace(previous)
        gc.enable()
    return count


def test_a_deep_queue_does_the_same_work_as_a_shallow_one() -> None:
    work_at(10)  # remembers the reason of its dead letter
    assert work_at(10) == work_at(5_500)


def work_at(depth: int) -> list[int]:
    house = House()
    house.queue.send([new(f"m{number}", ttl_ms=10**6) for number in range(depth)], house.now, house.facts)
    house.commit()
    queue, facts, now = house.queue, house.facts, house.now
    first, second, third = (tag(message) for message in house.acquire(3))
    return [
        steps(lambda: queue.send([new("x")], now, facts)),
        steps(lambda: queue.acquire(1, now, facts)),
        steps(lambda: queue.complete(first, now, facts)),
        steps(lambda: queue.abandon(second, now, facts)),
        steps(lambda: queue.dead_letter(third, now, facts, "r", "d")),
    ]


def held_messages() -> int:
    return sum(type(thing) is QueuedMessage for thing in gc.get_objects())


def test_a_finished_message_is_freed_without_the_collector() -> None:
    house = House()
    gc.collect()
    gc.disable()
    try:
        counts = [held_messages()]  # what other tests left behind
        for _ in range(2):
            for session in range(100):
                house.send("a", ttl_ms=10**6)
                message = house.one()
                if session % 2:
                    house.abandon(message)
                    message = house.one()
                house.complete(message)
            del message
            counts.append(held_messages())
        assert counts[1:] == [counts[0]] * 2
    finally:
        gc.enable()
