"""Receiving and settling by hand: locks are real, and only the login that holds one can settle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.broker.http.console.window import Window
from twinbus.clock import SteppedClock
from twinbus.entities.settings import QueueSettings
from twinbus.limits import CONSOLE_HELD_MAX, CONSOLE_RECEIVE_MAX
from twinbus.testing import Broker

START_MS = 1_800_000_000_000


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock(START_MS)


@pytest.fixture
def broker(clock: SteppedClock) -> Iterator[Broker]:
    queues = ["q", QueueSettings(path="s", requires_session=True)]
    with Broker(queues=queues, sync=False, clock=clock) as broker:
        yield broker


def opened(broker: Broker) -> Window:
    window = Window(broker)
    window.greet()
    return window


@pytest.fixture
def window(broker: Broker) -> Window:
    return opened(broker)


def sent(window: Window, *bodies: str, entity: str = "q", **fields: Any) -> None:
    for body in bodies:
        assert window.post("send", entity=entity, body=body, **fields).status == 200


def received(window: Window, entity: str = "q", **fields: Any) -> list[Any]:
    found: list[Any] = window.post("receive", entity=entity, **fields).json["received"]
    return found


def numbers(window: Window, entity: str = "q") -> tuple[int, int, int]:
    found = window.get("entity", entity=entity).json
    return found["active"], found["deferred"], found["dead"]


def test_each_settlement(window: Window) -> None:
    sent(window, "complete", "abandon", "defer", "dead-letter")
    rows = received(window, count=4)
    assert received(window) == [], "they are locked"
    for row, how in zip(rows, ("complete", "abandon", "defer", "dead-letter"), strict=True):
        assert row["locked_until_ms"] > START_MS
        answer = window.post("settle", entity="q", handle=row["handle"], how=how, reason="Bad")
        assert answer.json["settled"] == how
        assert window.post("settle", entity="q", handle=row["handle"], how=how).status == 410, "once"
    assert numbers(window) == (1, 1, 1)
    (again,) = received(window, count=5)
    assert (again["preview"], again["deliveries"]) == ("abandon", 1)
    deferred = [row for row in window.get("messages", entity="q").json["rows"] if row["state"] == "deferred"]
    (by_number,) = received(window, numbers=[deferred[0]["seq"]])
    assert by_number["preview"] == "defer"
    (dead,) = received(window, part="dead")
    assert (dead["preview"], dead["reason"]) == ("dead-letter", "Bad")


def test_another_login_cannot_settle(broker: Broker, window: Window) -> None:
    sent(window, "a")
    (row,) = received(window)
    assert "token" not in row
    other = opened(broker)
    assert other.post("settle", entity="q", handle=row["handle"], how="complete").status == 410
    assert window.post("settle", entity="s", handle=row["handle"], how="complete").status == 410, "not of that entity"
    assert window.post("settle", entity="q", handle=row["handle"], how="eat").status == 400
    assert window.post("settle", entity="q", handle=row["handle"], how="complete").status == 200
    assert numbers(window) == (0, 0, 0)


def test_a_lock_lapses_and_can_be_renewed(broker: Broker, window: Window, clock: SteppedClock) -> None:
    sent(window, "a")
    (row,) = received(window)
    clock.step(seconds=50)
    answer = window.post("settle", entity="q", handle=row["handle"], how="renew").json
    assert answer["locked_until_ms"] == START_MS + 110_000
    clock.step(seconds=55)
    assert received(window) == []
    clock.step(seconds=10)
    broker.call(lambda server: server.step(), None)
    assert window.post("settle", entity="q", handle=row["handle"], how="complete").status == 410
    (again,) = received(window)
    assert again["deliveries"] == 1
    assert numbers(window) == (1, 0, 0), "nothing was lost"


def test_a_session_is_held_until_its_last_message_is_settled(broker: Broker, window: Window) -> None:
    sent(window, "a1", "a2", entity="s", session_id="a")
    sent(window, "b1", entity="s", session_id="b")
    first, second = received(window, "s", count=5, session="a")
    other = opened(broker)
    assert other.post("receive", entity="s", session="a").status in (409, 410)
    (of_b,) = received(other, "s", count=5)
    assert of_b["session"] == "b", "the next free session"
    for row in (first, second):
        assert window.post("settle", entity="s", handle=row["handle"], how="abandon").status == 200
    again = received(other, "s", count=5, session="a")
    assert [row["preview"] for row in again] == ["a1", "a2"]
    assert received(window, "s") == []
    assert received(window, "s", session="nobody") == []


def test_what_is_held_is_bounded(window: Window, broker: Broker, clock: SteppedClock) -> None:
    window.post("send", entity="q", body="x", copies=100)
    window.post("send", entity="q", body="x", copies=10)
    assert window.post("receive", entity="q", count=CONSOLE_RECEIVE_MAX + 1).status == 400
    for _ in range(CONSOLE_HELD_MAX // CONSOLE_RECEIVE_MAX):
        assert len(received(window, count=CONSOLE_RECEIVE_MAX)) == CONSOLE_RECEIVE_MAX
    assert "settle some first" in window.post("receive", entity="q").error
    clock.step(seconds=61)
    broker.call(lambda server: server.step(), None)
    assert len(received(window)) == 1, "those whose locks have lapsed do not count"
