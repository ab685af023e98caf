"""A generic AMQP 1.0 client, Apache Qpid Proton: PLAIN login, send, receive, and a transaction over two queues."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from twinbus.testing import Broker

if os.environ.get("CI") != "true":
    pytest.importorskip("proton", reason="python-qpid-proton is not installed: pip install 'twinbus[compat]'")

from proton import Message
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container, Copy, Selector


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(queues=["in", "out", "looked-at"]) as broker:
        yield broker


def active(broker: Broker, path: str) -> int:
    return broker.call(lambda server: server.hosts["contoso"].entities.queue(path).counts.active)


def url(broker: Broker) -> str:
    endpoint = broker.endpoint()
    return f"amqp://RootManageSharedAccessKey:SAS_KEY_VALUE@{endpoint.host}:{endpoint.port}"


class Sending(MessagingHandler):
    """Sends messages and waits until all are accepted."""

    def __init__(self, url: str, address: str, bodies: list[str]) -> None:
        super().__init__()
        self.url, self.address, self.bodies = url, address, bodies
        self.accepted = 0

    def on_start(self, event) -> None:  # type: ignore[no-untyped-def]
        connection = event.container.connect(self.url, allowed_mechs="PLAIN", allow_insecure_mechs=True)
        event.container.create_sender(connection, self.address)

    def on_sendable(self, event) -> None:  # type: ignore[no-untyped-def]
        while self.bodies and event.sender.credit:
            body = self.bodies.pop(0)
            event.sender.send(Message(body=body, id=body, durable=True))

    def on_accepted(self, event) -> None:  # type: ignore[no-untyped-def]
        self.accepted += 1
        if not self.bodies:
            event.connection.close()


class Moving(MessagingHandler, TransactionHandler):
    """Receives from one queue and sends to another, `count` messages in one transaction."""

    def __init__(self, url: str, count: int, *, commit: bool) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self.url, self.count, self.commit = url, count, commit
        self.deliveries: list[object] = []
        self.outcome = ""

    def on_start(self, event) -> None:  # type: ignore[no-untyped-def]
        self.container = event.container
        self.connection = event.container.connect(self.url, allowed_mechs="PLAIN", allow_insecure_mechs=True)
        self.receiver = event.container.create_receiver(self.connection, "in")
        self.sender = event.container.create_sender(self.connection, "out")
        self.container.declare_transaction(self.connection, handler=self)
        self.transaction = None

    def on_transaction_declared(self, event) -> None:  # type: ignore[no-untyped-def]
        self.transaction = event.transaction
        self.receiver.flow(self.count)

    def on_message(self, event) -> None:  # type: ignore[no-untyped-def]
        self.transaction.send(self.sender, Message(body=event.message.body, id=event.message.id))
        self.transaction.accept(event.delivery)
        self.deliveries.append(event.delivery)
        if len(self.deliveries) == self.count:
            if self.commit:
                self.transaction.commit()
            else:
                self.transaction.abort()

    def on_transaction_committed(self, event) -> None:  # type: ignore[no-untyped-def]
        self.outcome = "committed"
        self.connection.close()

    def on_transaction_aborted(self, event) -> None:  # type: ignore[no-untyped-def]
        self.outcome = "aborted"
        self.connection.close()


def test_transaction_over_two_queues(broker: Broker) -> None:
    sending = Sending(url(broker), "in", ["one", "two", "three"])
    Container(sending).run()
    assert sending.accepted == 3
    assert (active(broker, "in"), active(broker, "out")) == (3, 0)

    aborted = Moving(url(broker), 2, commit=False)
    Container(aborted).run()
    assert aborted.outcome == "aborted"
    assert (active(broker, "in"), active(broker, "out")) == (3, 0)

    # The client releases what the aborted transaction touched, so nothing is locked.
    committed = Moving(url(broker), 3, commit=True)
    Container(committed).run()
    assert committed.outcome == "committed"
    assert (active(broker, "in"), active(broker, "out")) == (0, 3)


class Browsing(MessagingHandler):
    """Looks at a queue and drains, as browsers do to know the end."""

    def __init__(self, url: str, address: str, *options: object) -> None:
        super().__init__(prefetch=0)
        self.url, self.address, self.options = url, address, list(options)
        self.bodies: list[str] = []
        self.refused = ""

    def on_start(self, event) -> None:  # type: ignore[no-untyped-def]
        connection = event.container.connect(self.url, allowed_mechs="PLAIN", allow_insecure_mechs=True)
        event.container.create_receiver(connection, self.address, options=self.options)

    def on_link_opened(self, event) -> None:  # type: ignore[no-untyped-def]
        event.receiver.drain(100)

    def on_message(self, event) -> None:  # type: ignore[no-untyped-def]
        self.bodies.append(event.message.body)

    def on_link_flow(self, event) -> None:  # type: ignore[no-untyped-def]
        if event.receiver.credit == 0:
            event.connection.close()

    def on_link_error(self, event) -> None:  # type: ignore[no-untyped-def]
        self.refused = event.link.remote_condition.name
        event.connection.close()


def test_browsing_a_queue(broker: Broker) -> None:
    Container(Sending(url(broker), "looked-at", ["one", "two"])).run()
    for _ in range(2):
        browsing = Browsing(url(broker), "looked-at", Copy())
        Container(browsing).run()
        assert browsing.bodies == ["one", "two"]
    assert active(broker, "looked-at") == 2
    selecting = Browsing(url(broker), "looked-at", Selector("color = 'red'"))
    Container(selecting).run()
    assert (selecting.refused, selecting.bodies) == ("amqp:not-implemented", [])
    assert active(broker, "looked-at") == 2
