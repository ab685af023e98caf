from __future__ import annotations

import random

import pytest

from twinbus.entities.message import GONE, QueuedMessage
from twinbus.entities.returned import BLOCK, Returned


def message(seq: int) -> QueuedMessage:
    return QueuedMessage(seq, seq, 1, 0, None, 0, 0, None, None)


def made(numbers: list[int]) -> Returned:
    returned = Returned()
    for seq in numbers:
        returned.add(message(seq))
    return returned


def numbers_of(returned: Returned) -> list[int]:
    return [one.seq for one in returned.since(0)]


@pytest.mark.parametrize("order", ["ascending", "descending", "any"])
def test_they_are_found_and_leave_by_number_whatever_came_when(order: str) -> None:
    numbers = list(range(0, 10 * BLOCK, 2))
    if order == "descending":
        numbers.reverse()
    elif order == "any":
        random.Random(1).shuffle(numbers)
    returned = made(numbers)
    numbers.sort()
    assert len(returned) == len(numbers)
    assert numbers_of(returned) == numbers
    for seq in (0, 2, BLOCK, 5 * BLOCK, numbers[-1]):
        found = returned.find(seq)
        assert found is not None
        assert found.seq == seq
        assert returned.find(seq + 1) is None
        assert [one.seq for one in returned.since(seq)] == numbers[seq // 2 :]
        assert [one.seq for one in returned.since(seq + 1)] == numbers[seq // 2 + 1 :]
    while numbers:
        assert returned.first().seq == numbers[0]
        assert returned.pop_first().seq == numbers.pop(0)
        assert returned.pop_last().seq == numbers.pop()
        assert len(returned) == len(numbers)
    assert returned.find(2) is None
    assert numbers_of(returned) == []


@pytest.mark.parametrize("seed", range(20))
def test_any_commands_do_what_a_sorted_list_does(seed: int) -> None:
    chance = random.Random(seed)
    returned = Returned()
    model: dict[int, QueuedMessage] = {}
    unused = list(range(6 * BLOCK))
    chance.shuffle(unused)
    for _ in range(4 * BLOCK):
        what = chance.random()
        if what < 0.7 and unused:
            one = message(unused.pop())
            model[one.seq] = one
            returned.add(one)
        elif what < 0.8 and model:
            assert returned.pop_first() is model.pop(min(model))
        elif what < 0.85 and model:
            assert returned.pop_last() is model.pop(max(model))
        elif what < 0.9 and model:
            seq = chance.choice([*model, *unused, 10 * BLOCK])
            returned.remove(seq)
            model.pop(seq, None)
        elif what < 0.99 and model:
            chance.choice(list(model.values())).state = GONE
        else:
            gone = returned.compact_step(1)
            left = {one.seq: one for one in returned.since(0)}
            assert all(one.state == GONE for seq, one in model.items() if seq not in left)
            assert len(model) - len(left) == gone
            model = left
        assert len(returned) == len(model)
    assert list(returned.since(0)) == [model[seq] for seq in sorted(model)]
    returned.compact_step(len(model))
    assert list(returned.since(0)) == [model[seq] for seq in sorted(model) if model[seq].state != GONE]


def test_a_step_of_compacting_looks_at_a_bounded_number() -> None:
    returned = made(list(range(10 * BLOCK)))
    for one in returned.since(0):
        one.state = GONE
    while len(returned):
        assert 0 < returned.compact_step(3 * BLOCK) <= 5 * BLOCK
    assert returned.compact_step(1) == 0
