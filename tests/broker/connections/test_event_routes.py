"""Transfers and dispositions reach the owner of their link, everything else the handler for its type."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.events import AmqpEvent, Credit, Disposed, Transfer
from twinbus.amqp.link import Link
from twinbus.amqp.session import Session
from twinbus.amqp.states import ACCEPTED
from twinbus.broker.connections.event_routes import route
from twinbus.limits import SLICE_EVENTS


@pytest.fixture
def link() -> Link:
    return Link(Session(Connection(Role.SERVER, container_id="test"), 0), "link", 0, False)


def noting(heard: list[Any]) -> Any:
    return SimpleNamespace(
        on_transfer=lambda event: heard.append(event.delivery_id),
        on_disposed=lambda *said: heard.append(said),
    )


def test_each_event_reaches_whom_it_is_for_in_order(link: Link) -> None:
    heard: list[Any] = []
    link.context = noting(heard)
    events: list[AmqpEvent] = [
        Transfer(link, 7, b"t", 0, False, b"", 0, None),
        Credit(link),
        Disposed(link.session, [(1, link, b"a"), (2, link, b"b")], ACCEPTED, True),
    ]
    route(events, {Credit: lambda event: heard.append(type(event))})
    assert heard == [7, Credit, (1, b"a", ACCEPTED, True), (2, b"b", ACCEPTED, True)]


def test_a_link_that_nobody_stands_behind_hears_nothing(link: Link) -> None:
    heard: list[Any] = []
    link.context = None
    other = Link(link.session, "other", 1, False)
    other.context = noting(heard)
    disposed = Disposed(link.session, [(1, link, b"a"), (2, other, b"b")], ACCEPTED, True)
    route([Transfer(link, 7, b"t", 0, False, b"", 0, None), disposed], {})
    assert heard == [(2, b"b", ACCEPTED, True)]


def test_it_stops_when_the_slice_is_over_and_behind_long_work(link: Link) -> None:
    heard: list[Any] = []
    events: list[AmqpEvent] = [Credit(link)] * (3 * SLICE_EVENTS)
    assert route(events, {Credit: heard.append}, lambda: len(heard) > SLICE_EVENTS) == (2 * SLICE_EVENTS, None)
    work = iter([None])
    link.context = SimpleNamespace(on_transfer=lambda event: work)
    assert route([Transfer(link, 7, b"t", 0, False, b"", 0, None), *events], {Credit: heard.append}) == (1, work)
