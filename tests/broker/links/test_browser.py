"""Browsing over raw AMQP (distribution mode copy), and filters: nothing is removed or locked, no filter is ignored."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.broker.peer import Peer, body_of, text
from twinbus.amqp.events import Attached, Transfer
from twinbus.amqp.link import Link
from twinbus.amqp.states import state_modified, state_rejected
from twinbus.amqp.terminus import Source, Target
from twinbus.amqp.types import Described, Symbol, UInt, ULong
from twinbus.entities.settings import QueueSettings
from twinbus.testing import Broker

SELECTOR = Symbol("apache.org:selector-filter:string")
MODES = {"settled": 1, "unsettled": 0, "mixed": 2}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(queues=["q", QueueSettings(path="s", requires_session=True)]) as running:
        running.create_topic("t")
        running.create_subscription("t", "sub")
        yield running


def source(address: str, mode: str | None = None, filters: dict[Any, Any] | None = None) -> Source:
    symbol = None if mode is None else Symbol(mode)
    fields = [address, UInt(0), Symbol("session-end"), UInt(0), False, None, symbol, filters, None, None, None]
    return Source(address, filters, fields=fields)


def attach(peer: Peer, wanted: Source, snd: int = 1) -> Link:
    link = peer.session.attach_receiver(
        str(uuid.uuid4()), source=wanted, target=Target("peer"), snd_settle_mode=snd, rcv_settle_mode=0
    )
    peer.flush()
    return link


def browser(peer: Peer, address: str, snd: int = 1) -> Link:
    link = attach(peer, source(address, "copy"), snd)
    peer._answered(link)
    return link


def browsed(peer: Peer, link: Link, credit: int = 100) -> list[str]:
    """What a drain delivers, as JMS browsers request it."""
    link.flow(credit, drain=True)
    while link.credit:
        assert peer.read(10)
    found = [event for event in peer.events if isinstance(event, Transfer) and event.link is link]
    for event in found:
        peer.events.remove(event)
        assert event.settled
    return [body_of(event) for event in found]


def counts(broker: Broker, path: str) -> tuple[int, int]:
    def look(server: Any) -> tuple[int, int]:
        queue = server.hosts["contoso"].entities.queue(path)
        return queue.counts.active, len(queue.messages.locks)

    return broker.call(look)


def fill(peer: Peer, path: str, *bodies: str, **fields: Any) -> None:
    sender = peer.sender(path)
    for body in bodies:
        peer.send(sender, text(body, **fields))


@pytest.mark.parametrize("snd", MODES.values(), ids=MODES)
def test_browsing_removes_and_locks_nothing(broker: Broker, snd: int) -> None:
    with Peer(broker) as peer:
        fill(peer, "q", "a", "b", "c")
        link = browser(peer, "q", snd)
        assert browsed(peer, link) == ["a", "b", "c"]
        assert browsed(peer, link) == []
        assert browsed(peer, browser(peer, "q", snd)) == ["a", "b", "c"]
        assert counts(broker, "q") == (3, 0)
        delivery = peer.receive(peer.receiver("q", 1))
        assert body_of(delivery) == "a"
        # Others see locked messages, as when peeking.
        assert browsed(peer, browser(peer, "q", snd)) == ["a", "b", "c"]
        peer.settle(delivery)
        assert browsed(peer, browser(peer, "q", snd)) == ["b", "c"]


def test_credit_bounds_a_browse_and_it_goes_on(broker: Broker) -> None:
    with Peer(broker) as peer:
        fill(peer, "q", *map(str, range(5)))
        link = browser(peer, "q")
        link.flow(2)
        assert [body_of(peer.receive(link)) for _ in range(2)] == ["0", "1"]
        assert peer.quiet(Transfer)
        assert browsed(peer, link, 2) == ["2", "3"]
        assert browsed(peer, link, 2) == ["4"]


def test_new_messages_are_shown_as_they_come(broker: Broker) -> None:
    with Peer(broker) as peer, Peer(broker) as other:
        link = browser(peer, "q")
        link.flow(10)
        peer.flush()
        # A waiting receiver still gets them all.
        receiver = other.receiver("q", 1)
        fill(other, "q", "new")
        assert body_of(peer.receive(link)) == "new"
        assert body_of(other.receive(receiver)) == "new"


@pytest.mark.parametrize("place", ["t/subscriptions/sub", "q/$DeadLetterQueue", "s"])
def test_every_entity_that_is_received_from_can_be_browsed(broker: Broker, place: str) -> None:
    with Peer(broker) as peer:
        if place == "s":
            fill(peer, "s", "a", group_id="one")
            fill(peer, "s", "b", group_id="two")
        else:
            fill(peer, "t" if place.startswith("t") else "q", "a", "b")
        if place.startswith("q"):
            receiver = peer.receiver("q", 2)
            for _ in range(2):
                peer.settle(peer.receive(receiver), state_rejected(None))
        assert browsed(peer, browser(peer, place)) == ["a", "b"]
        assert counts(broker, place) == (2, 0)


def test_scheduled_and_deferred_messages_are_not_shown(broker: Broker) -> None:
    with Peer(broker) as peer:
        later = 4_000_000_000_000
        fill(peer, "q", "later", message_annotations={Symbol("x-opt-scheduled-enqueue-time"): later})
        fill(peer, "q", "aside", "here")
        delivery = peer.receive(peer.receiver("q", 1))
        peer.settle(delivery, state_modified(None, True, None))
        assert browsed(peer, browser(peer, "q")) == ["here"]


def test_a_browse_waits_for_a_reader_that_is_slow(broker: Broker) -> None:
    size, count = 200_000, 40
    with Peer(broker) as peer:
        fill(peer, "q", *(str(number).rjust(size) for number in range(count)))
        link = browser(peer, "q")
        # More than a connection may have unsent: the drain must not end before the last message.
        assert [int(body) for body in browsed(peer, link)] == list(range(count))
        assert counts(broker, "q") == (count, 0)


def test_a_browser_leaves_with_its_link_and_with_its_entity(broker: Broker) -> None:
    with Peer(broker) as peer:
        link = browser(peer, "q")
        link.detach(None)
        peer.flush()
        fill(peer, "q", "a")
        other = browser(peer, "q")
        broker.delete_queue("q")
        assert peer.refusal(lambda: other).condition == "amqp:not-found"


def test_the_mode_of_distribution_must_be_one_of_two(broker: Broker) -> None:
    with Peer(broker) as peer:
        error = peer.refusal(lambda: attach(peer, source("q", "both")))
        assert error.condition == "com.microsoft:argument-error"
        fill(peer, "q", "a")
        link = attach(peer, source("q", "move"))
        peer._answered(link)
        assert browsed(peer, link) == ["a"]
        broker.call(lambda server: None)
        assert counts(broker, "q") == (0, 0)


# --- filters ----------------------------------------------------------------------------------------------------------


def answer_to(peer: Peer, wanted: Source) -> Source:
    link = attach(peer, wanted)
    attached = peer.wait(Attached, lambda event: event.link is link)
    assert isinstance(attached.link.source, Source)
    return attached.link.source


@pytest.mark.parametrize("mode", [None, "move", "copy"])
@pytest.mark.parametrize(
    "filters",
    [
        {SELECTOR: Described(SELECTOR, "color = 'red'")},
        {Symbol("jms-selector"): Described(ULong(0x0000468C00000004), "color = 'red'")},
        {Symbol("mine"): Described(SELECTOR, "color = 'red'")},
        {SELECTOR: "color = 'red'"},
    ],
)
@pytest.mark.parametrize("place", ["q", "q/$DeadLetterQueue", "t/subscriptions/sub", "s"])
def test_a_selector_is_refused(broker: Broker, mode: str | None, filters: dict[Any, Any], place: str) -> None:
    if place == "s":
        filters = {**filters, Symbol("com.microsoft:session-filter"): "one"}
    with Peer(broker) as peer:
        error = peer.refusal(lambda: attach(peer, source(place, mode, filters)))
        assert error.condition == "amqp:not-implemented"
        assert "selector" in error.description
        assert counts(broker, "s") == (0, 0)
        # Nobody holds the session, so another can accept it.
        peer.receiver("s", 0, session_filter="one")


@pytest.mark.parametrize(
    "name",
    [
        "apache.org:no-local-filter:list",
        "apache.org:legacy-amqp-direct-binding:string",
        "com.microsoft:unknown-filter",
        "mine",
    ],
)
def test_no_filter_is_echoed_that_is_not_in_force(broker: Broker, name: str) -> None:
    given = {Symbol(name): Described(Symbol(name), "x")}
    session = Symbol("com.microsoft:session-filter")
    with Peer(broker) as peer:
        assert not answer_to(peer, source("q", None, given)).filter
        assert not answer_to(peer, source("q", "copy", given)).filter
        assert not answer_to(peer, source("$cbs", None, given)).filter
        assert not answer_to(peer, source("q/$management", None, given)).filter
        found = answer_to(peer, source("s", None, {**given, session: "one"}))
        assert found.filter == {session: "one"}
        assert found.address == "s"
