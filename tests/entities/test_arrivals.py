from __future__ import annotations

from twinbus.entities.arrivals import Arrivals
from twinbus.entities.message import QueuedMessage
from twinbus.store.facts import Facts


def message(seq: int) -> QueuedMessage:
    return QueuedMessage(seq, seq, 1, 0, None, 0, 0, None, None)


def durable(facts: Facts) -> None:
    for call, argument in facts.then:
        call(argument)


def test_all_messages_of_a_commit_are_shown_in_one_call() -> None:
    shown: list[list[int]] = []
    arrivals = Arrivals(lambda messages: shown.append([each.seq for each in messages]))
    facts = Facts()
    for seq in (1, 2, 3):
        arrivals.add(message(seq), facts)
    assert len(facts.then) == 1
    assert shown == []
    durable(facts)
    assert shown == [[1, 2, 3]]


def test_messages_wait_for_their_own_commit() -> None:
    shown: list[list[int]] = []
    arrivals = Arrivals(lambda messages: shown.append([each.seq for each in messages]))
    first, second = Facts(), Facts()
    arrivals.add(message(1), first)
    arrivals.add(message(2), second)
    durable(first)
    arrivals.add(message(3), second)
    assert shown == [[1]]
    durable(second)
    assert shown == [[1], [2, 3]]


def test_a_commit_that_is_over_is_not_kept() -> None:
    shown: list[list[int]] = []
    arrivals = Arrivals(lambda messages: shown.append([each.seq for each in messages]))
    facts = Facts()
    arrivals.add(message(1), facts)
    durable(facts)
    assert arrivals._facts is None
    again = Facts()
    arrivals.add(message(2), again)
    durable(again)
    assert shown == [[1], [2]]
