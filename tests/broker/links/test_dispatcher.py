"""A receiver with credit that reached the limit of unsettled deliveries continues when some are settled."""

from __future__ import annotations

import pytest

from tests.broker.peer import Peer, text
from twinbus.amqp.states import STATE_ACCEPTED
from twinbus.broker.server import Server
from twinbus.testing import Broker

BOUND = 5


def bound(broker: Broker) -> None:
    """Limit the unsettled deliveries of every session of the broker's connections."""

    def narrow(server: Server) -> None:
        for connection in server.hosts["contoso"]._connections:
            for session in connection.engine.channels.values():
                session.unsettled_max = BOUND

    broker.call(narrow)


@pytest.mark.parametrize("settled", [False, True], ids=["answered", "settled at once"])
def test_settling_makes_room(settled: bool) -> None:
    with Broker(queues=["orders"]) as broker, Peer(broker) as peer:
        sender = peer.sender("orders")
        for _ in range(BOUND + 3):
            peer.send(sender, text())
        bound(broker)
        receiver = peer.receiver("orders", 100)
        first = [peer.receive(receiver) for _ in range(BOUND)]
        for delivery in first:
            receiver.session.dispose(delivery.delivery_id, delivery.delivery_id, STATE_ACCEPTED, settled)
        peer.flush()
        assert len({peer.receive(receiver).delivery_id for _ in range(3)}) == 3


def test_another_link_of_the_session_goes_on_too() -> None:
    with Broker(queues=["orders", "bills"]) as broker, Peer(broker) as peer:
        for queue, count in (("orders", BOUND), ("bills", 2)):
            sender = peer.sender(queue)
            for _ in range(count):
                peer.send(sender, text())
        bound(broker)
        orders = peer.receiver("orders", 100)
        first = [peer.receive(orders) for _ in range(BOUND)]
        bills = peer.receiver("bills", 100)
        for delivery in first[:2]:
            peer.settle(delivery)
        assert len({peer.receive(bills).delivery_id for _ in range(2)}) == 2
