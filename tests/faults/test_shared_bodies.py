"""kill -9 in the middle of a transaction that commits in steps: what others completed meanwhile takes nothing along."""

from __future__ import annotations

import socket
from pathlib import Path

import kill
from tests.broker.peer import PATIENCE_S, Peer, body_of, text
from transacting import Control

from twinbus.amqp.events import Disposed, Drained, Outcome, Transfer
from twinbus.amqp.states import STATE_ACCEPTED

COPIES = 20
WIDE = 1_500
ROUNDS_MAX = 5

TOPICS = "".join(
    f"[namespaces.{kill.NAMESPACE}.topics.{topic}.subscriptions.{name}]\n"
    for topic, names in (("src", ["A", "B"]), ("wide", [f"s{number}" for number in range(WIDE)]))
    for name in names
)


def connected(broker: kill.Broker) -> Peer:
    plain = socket.create_connection(("127.0.0.1", broker.port), timeout=PATIENCE_S)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Peer(None, over=plain)  # type: ignore[arg-type]


def received(peer: Peer, subscription: str) -> list[Transfer]:
    """Lock everything in a subscription."""
    link = peer.receiver(f"src/Subscriptions/{subscription}")
    link.flow(100, drain=True)
    peer.flush()
    peer.wait(Drained)
    return [event for event in peer.events if isinstance(event, Transfer)]


def killed_in_the_middle(broker: kill.Broker) -> bool:
    """Kill the broker when B's completions are confirmed; returns whether the transaction had not ended by then."""
    with connected(broker) as first, connected(broker) as second:
        sender = second.sender("src")
        for number in range(COPIES):
            second.send(sender, text(f"m{number}"))
        control = Control(first)
        txn_id = control.declare()
        for delivery in received(first, "A"):
            control.complete(delivery, txn_id)
        wide = first.sender("wide")
        for number in range(5):
            control.send(wide, txn_id, text(f"w{number}").encode())
        mine = received(second, "B")
        assert len(mine) == COPIES
        second.events.clear()
        control.begin_discharge(txn_id)
        second.session.dispose(mine[0].delivery_id, mine[-1].delivery_id, STATE_ACCEPTED, False)
        second.flush()
        left = COPIES
        while left:
            confirmed = second.wait(Outcome)
            left -= confirmed.last - confirmed.first + 1
        broker.kill()
        while first.read(PATIENCE_S):
            pass
        return not any(isinstance(event, Disposed) for event in first.events)


def test_others_complete_their_copies_meanwhile(tmp_path: Path) -> None:
    broker = kill.Broker(tmp_path, entities=TOPICS)
    try:
        for _ in range(ROUNDS_MAX):
            broker.start()
            in_the_middle = killed_in_the_middle(broker)
            broker.start()
            with connected(broker) as peer:
                found = received(peer, "A")
                assert "is not in the store" not in broker.log()
                assert [body_of(each) for each in found] in ([], [f"m{number}" for number in range(COPIES)])
                for each in found:
                    peer.settle(each)
            broker.stop()
            if in_the_middle and found:
                return
        raise AssertionError("the transaction always ended first")
    finally:
        broker.kill()
