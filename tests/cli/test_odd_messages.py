"""Odd messages on the command line: each is shown, and none stops or loses others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from tests.broker.odd_messages import MARK, PLACES, in_place, others
from tests.broker.peer import Peer
from twinbus.amqp.states import Accepted
from twinbus.testing import Broker


@pytest.fixture
def bus() -> Iterator[Broker]:
    with Broker(queues=["orders"], sync=False) as broker:
        yield broker


@pytest.mark.parametrize("part", range(4))
def test_every_message_is_shown(bus: Broker, done: Callable[..., str], part: int) -> None:
    payloads = dict(others()) if part == 0 else {}
    for place in PLACES[part::4]:
        payloads |= in_place(place)
    accepted = 0
    marked = 0
    with Peer(bus) as peer:
        link = peer.sender("orders")
        for payload in payloads.values():
            if isinstance(peer.send(link, payload), Accepted):
                accepted += 1
                marked += MARK in payload
    for command in (["peek"], ["receive", "--then", "abandon"]):
        text = done(command[0], "orders", *command[1:], "--max", "500")
        assert command[0] == "peek" or text.count(MARK.decode()) == marked
    peeked = [json.loads(line) for line in done("peek", "orders", "--max", "500", "--json").splitlines()]
    assert len(peeked) == accepted
    lines = done("receive", "orders", "--all", "--delete", "--wait", "1s", "--json").splitlines()
    received = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    assert [each["sequence_number"] for each in received] == list(range(1, accepted + 1))
    assert sum(MARK.decode() in str(each.get("body", "")) for each in received) == marked
