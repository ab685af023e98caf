"""A send to a topic that makes many copies gives way to others, and keeps its place before them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.broker.links.test_transactions import control, declare, discharge, send_in
from tests.broker.order_tale import opened
from tests.broker.peer import Peer, body_of, text
from tests.broker.test_slices import STEPS, Turns
from twinbus.amqp.events import Disposed
from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.states import STATE_ACCEPTED, Accepted, Rejected, state_transactional
from twinbus.amqp.types import Described, ULong
from twinbus.broker.messages.intake import BATCH_FORMAT
from twinbus.broker.messages.stored import render
from twinbus.broker.sending import send
from twinbus.broker.server import Server
from twinbus.broker.slices import Slices
from twinbus.client import Message
from twinbus.client.batch import encode_batch
from twinbus.entities.message import NewMessage
from twinbus.entities.settings import QueueSettings
from twinbus.entities.topic_settings import SubscriptionSettings, TopicSettings
from twinbus.errors import EntityDisabledError
from twinbus.store.lmdb_store import Prepared
from twinbus.testing import Broker


@pytest.fixture
def wide() -> Iterator[Broker]:
    """A topic with twenty subscriptions."""

    def make(server: Server) -> None:
        host = server.hosts["contoso"]
        host.create_topic(TopicSettings(path="t"))
        for number in range(20):
            host.create_subscription(SubscriptionSettings(topic="t", name=f"s{number}"))

    with Broker(sync=False) as broker:
        broker.call(make)
        yield broker


def held_ids(broker: Broker, name: str) -> list[str]:
    """The ids of a subscription's messages, as a receiver would get them."""

    def look(server: Server) -> list[str]:
        host = server.hosts["contoso"]
        queue = host.entities.subscription("t", name).queue
        return [
            str(AmqpMessage.decode(render(host.store.body(message.body_number), message)).message_id)
            for message in queue.messages.available.browse(0, 10_000)
        ]

    return broker.call(look)


def test_a_batch_for_many_subscriptions_takes_several_turns_and_keeps_its_place(wide: Broker) -> None:
    def numbered(server: Server) -> int:
        """How many copies have a sequence number in their subscription."""
        entities = server.hosts["contoso"].entities
        return sum(entities.subscription("t", f"s{number}").queue.numbers.last for number in range(20))

    turns = Turns(wide, numbered)
    payload = encode_batch([Message(b"x", message_id=f"a{number}") for number in range(200)])
    single = text("x")
    single.message_id = "b"
    with Peer(wide) as peer:
        link = peer.sender("t")
        link.send(payload, tag=b"batch", settled=False, message_format=BATCH_FORMAT)
        link.send(single.encode(), tag=b"single", settled=False)
        left = 2
        while left:
            left -= len(peer.wait(Disposed).deliveries)
    turns.look()
    assert len(turns.done) == 20 * 201
    assert turns.most <= (STEPS + 1) * 50
    for name in ("s0", "s19"):
        assert held_ids(wide, name) == [*(f"a{number}" for number in range(200)), "b"]


def test_others_who_send_to_the_topic_come_after_the_batch(wide: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    commit = Prepared.commit

    def slow(prepared: Prepared) -> None:
        gate.wait(20)
        commit(prepared)

    payload = encode_batch([Message(b"x", message_id=f"a{number}") for number in range(1_000)])
    with Peer(wide) as first, Peer(wide) as second, Peer(wide) as third:
        links = first.sender("t"), second.sender("t")
        coordinator = control(third)
        txn_id = declare(third, coordinator)
        message = text("x")
        message.message_id = "in transaction"
        send_in(third, third.sender("t"), txn_id, message)
        monkeypatch.setattr(Prepared, "commit", slow)
        links[0].send(payload, tag=b"batch", settled=False, message_format=BATCH_FORMAT)
        first.flush()
        # Read from this thread, because a call waits for the disk.
        assert wide.server is not None
        topic = wide.server.hosts["contoso"].entities.topic("t")
        while topic.held is None:
            pass
        message = text("x")
        message.message_id = "b"
        links[1].send(message.encode(), tag=b"b", settled=False)
        second.flush()
        request = AmqpMessage()
        request.value, request.has_value = Described(ULong(0x32), [txn_id, False]), True
        coordinator.send(request.encode(), tag=b"end", settled=False)
        third.flush()
        while len(topic.held) < 2:
            pass
        gate.set()
        first.wait(Disposed)
        second.wait(Disposed)
        third.wait(Disposed)
    ids = held_ids(wide, "s7")
    assert ids[:1_000] == [f"a{number}" for number in range(1_000)]
    assert sorted(ids[1_000:]) == ["b", "in transaction"]


def test_a_transaction_for_many_subscriptions_takes_several_turns(
    wide: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide.call(lambda server: server.hosts["contoso"].create_queue(QueueSettings(path="q")))
    turns = Turns(wide)
    monkeypatch.setattr(Slices, "_step", turns.counting(Slices._step))
    with Peer(wide) as peer:
        link = peer.sender("t")
        peer.send(peer.sender("q"), text("settled"))
        delivery = peer.receive(peer.receiver("q", 1))
        coordinator = control(peer)
        txn_id = declare(peer, coordinator)
        peer.settle(delivery, state_transactional(txn_id, STATE_ACCEPTED))
        for number in range(98):
            message = text("x")
            message.message_id = f"a{number}"
            send_in(peer, link, txn_id, message)
        send_in(peer, peer.sender("q"), txn_id, text("sent"))
        assert isinstance(discharge(peer, coordinator, txn_id), Accepted)
        assert body_of(peer.receive(peer.receiver("q", 2))) == "sent"
        assert isinstance(peer.send(link, text("x")), Accepted), "the topic is free again"
    assert len(turns.done) >= 20 * 2, "two for each subscription"
    assert turns.most <= STEPS + 1
    assert held_ids(wide, "s7")[:98] == [f"a{number}" for number in range(98)]


def test_a_transaction_for_many_subscriptions_is_refused_as_a_whole(wide: Broker) -> None:
    with Peer(wide) as peer:
        link = peer.sender("t")
        coordinator = control(peer)
        txn_id = declare(peer, coordinator)
        for _ in range(99):
            send_in(peer, link, txn_id, text("x"))
        topic = wide.call(lambda server: server.hosts["contoso"].entities.topic("t"))
        disabled = replace(topic.settings, status="SendDisabled")
        wide.call(lambda server: server.hosts["contoso"].update_topic(disabled))
        assert isinstance(discharge(peer, coordinator, txn_id), Rejected)
    assert topic.held is None
    assert held_ids(wide, "s7") == []


async def test_http_and_console_wait_for_their_turn(tmp_path: Path) -> None:
    host = opened(tmp_path)
    host.start()
    topic = host.create_topic(TopicSettings(path="t"))
    for number in range(20):
        host.create_subscription(SubscriptionSettings(topic="t", name=f"s{number}"))
    await host.commits.drain()
    many = [NewMessage(f"a{number}", b"x", 1) for number in range(100)]
    large = asyncio.ensure_future(send(host, topic, many))
    await asyncio.sleep(0)
    assert topic.held is not None
    small = asyncio.ensure_future(send(host, topic, [NewMessage("b", b"x", 1)]))
    await asyncio.sleep(0)
    assert not small.done()
    await large
    await small
    assert topic.held is None
    await host.commits.drain()
    assert topic.subscriptions[3].queue.counts.active == 101
    host.update_topic(replace(topic.settings, status="SendDisabled"))
    with pytest.raises(EntityDisabledError):
        await send(host, topic, many)
    assert topic.held is None
    await host.stop()


async def test_a_batch_under_way_is_written_whole_before_the_broker_stops(tmp_path: Path) -> None:
    host = opened(tmp_path)
    host.start()
    topic = host.create_topic(TopicSettings(path="t"))
    for number in range(20):
        host.create_subscription(SubscriptionSettings(topic="t", name=f"s{number}"))
    await host.commits.drain()
    many = [NewMessage(f"a{number}", b"x", 1) for number in range(1_000)]
    large = asyncio.ensure_future(send(host, topic, many))
    await asyncio.sleep(0)
    await host.stop()
    await large
    again = opened(tmp_path)
    assert {each.queue.counts.active for each in again.entities.topic("t").subscriptions} == {1_000}
    again.store.close()
