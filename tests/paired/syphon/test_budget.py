"""Room for held messages: bounded in number and in bytes."""

from __future__ import annotations

import asyncio

import pytest

from twinbus.paired.syphon.budget import HeldBudget


def has_room(budget: HeldBudget) -> bool:
    return budget._free.is_set()


@pytest.mark.parametrize("sizes", [(1, 1, 1), (4, 6)], ids=["number", "bytes"])
async def test_there_is_room_up_to_the_bound(sizes: tuple[int, ...]) -> None:
    budget = HeldBudget(3, 10)
    assert (budget.messages, budget.bytes) == (0, 0)
    for size in sizes:
        assert has_room(budget)
        await budget.wait()
        budget.take(size)
    assert not has_room(budget)
    assert (budget.messages, budget.bytes) == (len(sizes), sum(sizes))
    waiting = asyncio.create_task(budget.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    budget.give(sizes[-1])
    await waiting
    assert (budget.messages, budget.bytes) == (len(sizes) - 1, sum(sizes[:-1]))


async def test_one_bound_is_enough() -> None:
    budget = HeldBudget(2, 10)
    budget.take(9)
    budget.take(9)
    budget.give(9)
    assert has_room(budget)
    budget.take(1)
    assert not has_room(budget)
    budget.give(1)
    budget.take(100)
    budget.give(9)
    assert not has_room(budget), "one message, of too many bytes"
