"""Things that come and go: connections, sessions, links, waiters, transactions, entities, messages.

Promise: when they are gone, the broker holds what it held before: none of their objects is left, no container has grown
with their number, no descriptor is open. Sizes are counted object by object, which is repeatable.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.broker.peer import PATIENCE_S, Peer
from tests.proof.suite import Budget, Suite
from twinbus.amqp.events import Detached, Ended
from twinbus.amqp.link import Link
from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.states import STATE_RELEASED
from twinbus.amqp.terminus import Coordinator, Source
from twinbus.amqp.types import Symbol, Timestamp
from twinbus.broker.links.consumer import Consumer
from twinbus.entities.settings import QueueSettings
from twinbus.testing import Broker

# Objects of one round. What remains of a round may not grow with it.
ROUND = 200
# What a round may leave, whatever its size: dictionaries keep their capacity, and the console's rates name the entities
# of the last minute. The smallest object, left each time, would exceed it.
LEFT_BYTES_MAX = 14_000


def message(number: int, session_id: str | None = None, scheduled: bool = False) -> AmqpMessage:
    made = AmqpMessage()
    made.data = [b"x" * 50]
    made.message_id = f"m{number}"
    made.group_id = session_id
    if scheduled:
        at = datetime.now(UTC) + timedelta(days=1)
        made.message_annotations = {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(int(at.timestamp() * 1000))}
    return made


def detach(peer: Peer, link: Link) -> None:
    link.detach()
    peer.flush()
    peer.wait(Detached, lambda event: event.link is link)


def connections(broker: Broker, peer: Peer, count: int) -> None:
    for _ in range(count):
        with Peer(broker) as other:
            other.close()


def sessions(broker: Broker, peer: Peer, count: int) -> None:
    for _ in range(count):
        session = peer.begin()
        session.end()
        peer.flush()
        peer.wait(Ended)


def senders(broker: Broker, peer: Peer, count: int) -> None:
    for _ in range(count):
        detach(peer, peer.sender("plain"))


def receivers(broker: Broker, peer: Peer, count: int) -> None:
    for _ in range(count):
        detach(peer, peer.receiver("plain", 5))


def waiters(broker: Broker, peer: Peer, count: int) -> None:
    """Receivers that wait for any session, and disconnect while they wait."""
    for _ in range(count):
        with Peer(broker) as other:
            other.session.attach_receiver(
                "waits", source=Source("sessions", {Symbol("com.microsoft:session-filter"): None})
            )
            other.flush()
            other.begin()


def sent_and_settled(broker: Broker, peer: Peer, count: int) -> None:
    sender, receiver = peer.sender("plain"), peer.receiver("plain", 10)
    for number in range(count):
        peer.send(sender, message(number))
        delivery = peer.receive(receiver)
        if number % 3 == 0:
            peer.settle(delivery, STATE_RELEASED)
            delivery = peer.receive(receiver)
        peer.settle(delivery)
        receiver.flow(10)
    detach(peer, receiver)
    detach(peer, sender)


def in_sessions(broker: Broker, peer: Peer, count: int) -> None:
    sender = peer.sender("sessions")
    for number in range(count):
        peer.send(sender, message(number, f"s{number}"))
        receiver = peer.receiver("sessions", 1, session_filter=f"s{number}")
        peer.settle(peer.receive(receiver))
        detach(peer, receiver)
    detach(peer, sender)


def scheduled(broker: Broker, peer: Peer, count: int) -> None:
    node = "plain/$management"
    with Peer(broker) as other:
        for number in range(count):
            body = {"messages": [{"message-id": f"m{number}", "message": message(number, scheduled=True).encode()}]}
            answer = other.request(node, "com.microsoft:schedule-message", body)
            numbers = {"sequence-numbers": answer.value["sequence-numbers"]}
            other.request(node, "com.microsoft:cancel-scheduled-message", numbers)


def copies(broker: Broker, peer: Peer, count: int) -> None:
    sender, receiver = peer.sender("news"), peer.receiver("news/subscriptions/all", 10)
    for number in range(count):
        peer.send(sender, message(number))
        peer.settle(peer.receive(receiver))
        receiver.flow(10)
    detach(peer, receiver)
    detach(peer, sender)


def transactions(broker: Broker, peer: Peer, count: int) -> None:
    for _ in range(count):
        with Peer(broker) as other:
            other.session.attach_sender("coordinator", target=Coordinator())
            other.flush()
            other.begin()


def entities(broker: Broker, peer: Peer, count: int) -> None:
    for number in range(count // 4):
        broker.create_queue(f"queue-{number}")
        broker.create_topic(f"topic-{number}")
        broker.create_subscription(f"topic-{number}", "all")
        with Peer(broker) as other:
            other.send(other.sender(f"queue-{number}"), message(number))
        broker.delete_queue(f"queue-{number}")
        broker.delete_topic(f"topic-{number}")


KINDS: tuple[Callable[[Broker, Peer, int], None], ...] = (
    connections, sessions, senders, receivers, waiters, sent_and_settled, in_sessions, scheduled, copies, transactions,
    entities,
)  # fmt: skip


def drop_cancelled_timers() -> None:
    """asyncio keeps up to a hundred cancelled timers until they are due; how many depends on the machine's speed."""
    loop: Any = asyncio.get_running_loop()
    loop._scheduled[:] = [timer for timer in loop._scheduled if not timer.cancelled()]
    heapq.heapify(loop._scheduled)
    loop._timer_cancelled_count = 0


def held(broker: Broker) -> tuple[int, int]:
    """Bytes of all reachable objects, and open descriptors, once only the neighbour is connected."""
    deadline_s = time.monotonic() + PATIENCE_S
    while broker.call(lambda server: len(server.hosts["contoso"]._connections)) > 1:
        assert time.monotonic() < deadline_s, "connections that were closed are still there"
    # An entity's counters disappear with the interval in which it was deleted.
    broker.call(lambda server: server.hosts["contoso"].meter.flush())
    broker.call(lambda server: drop_cancelled_timers())
    for _ in range(3):
        gc.collect()
    return sum(map(sys.getsizeof, gc.get_objects())), len(os.listdir("/proc/self/fd"))


def run(budget: Budget) -> str:
    """Create and drop things of every kind: none of them stays in memory, and no descriptor."""
    queues = [QueueSettings(path="plain"), QueueSettings(path="sessions", requires_session=True)]
    worst = (0, "none")
    with Broker(queues=queues, sync=False) as broker:
        broker.create_topic("news")
        broker.create_subscription("news", "all")
        with Peer(broker) as peer:
            # An idle receiver in front: those behind it must disappear all the same.
            peer.receiver("plain", 0)
            for kind in KINDS:
                kind(broker, peer, ROUND)
            peer.events.clear()
            for _ in budget:
                kind = KINDS[budget.tried % len(KINDS)]
                before_bytes, before_files = held(broker)
                kind(broker, peer, ROUND)
                # The neighbour's own notes do not belong to the broker.
                peer.events.clear()
                after_bytes, after_files = held(broker)
                left = after_bytes - before_bytes
                assert after_files <= before_files, f"{kind.__name__} leaves {after_files - before_files} descriptors"
                assert left <= LEFT_BYTES_MAX, f"{kind.__name__} leaves {left:,} bytes"
                worst = max(worst, (left, kind.__name__))
    most = f"at most {worst[0]:,} bytes left of a round of {ROUND} ({worst[1]})"
    return f"{budget.tried * ROUND:,} objects of {len(KINDS)} kinds came and went, {most}"


@contextmanager
def planted() -> Iterator[None]:
    """Receivers that left are kept."""
    sound = Consumer.on_detached
    kept: list[object] = []

    # Called by the connection, which is never compiled: compiled code would not call a replaced method.
    def forgetful(self: Consumer, orderly: bool) -> None:
        sound(self, orderly)
        kept.append(self)

    Consumer.on_detached = forgetful
    try:
        yield
    finally:
        Consumer.on_detached = sound


SUITE = Suite("rounds", len(KINDS), 1_100, run, planted)
