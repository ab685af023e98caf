"""Entities deleted and created again under open links: nobody works on the deleted entity."""

from __future__ import annotations

import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.broker.peer import Peer, body_of, text
from twinbus.amqp.events import Attached, Detached
from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.states import Accepted, Declared, Rejected, state_transactional
from twinbus.amqp.terminus import Coordinator, Source, Target
from twinbus.amqp.types import Described, Int, Symbol, Timestamp, UInt, ULong
from twinbus.clock import SteppedClock
from twinbus.store.facts import Table
from twinbus.testing import Broker

SUBSCRIPTION = "t/Subscriptions/s"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(clock=SteppedClock()) as broker:
        broker.create_queue("q")
        yield broker


@pytest.fixture
def peer(broker: Broker) -> Iterator[Peer]:
    with Peer(broker) as peer:
        yield peer


class Node:
    """A management node whose pair of links stays open between requests."""

    def __init__(self, peer: Peer, entity: str) -> None:
        self._peer = peer
        self._name = str(uuid.uuid4())
        node = f"{entity}/$management"
        self._receiver = peer.session.attach_receiver(self._name, source=Source(node), target=Target(self._name))
        peer.flush()
        peer.wait(Attached, lambda event: event.link is self._receiver)
        self._receiver.flow(1_000)
        self._sender = peer.sender(node)

    def call(self, operation: str, **body: Any) -> tuple[int, Any]:
        request = AmqpMessage()
        request.message_id = str(uuid.uuid4())
        request.reply_to = self._name
        request.application_properties = {"operation": f"com.microsoft:{operation}"}
        request.value = {name.replace("_", "-"): value for name, value in body.items()}
        request.has_value = True
        assert isinstance(self._peer.send(self._sender, request), Accepted)
        response = AmqpMessage.decode(self._peer.receive(self._receiver).payload or b"")
        assert response.correlation_id == request.message_id
        return int((response.application_properties or {})["statusCode"]), response.value

    def rules(self) -> list[str]:
        status, body = self.call("enumerate-rules", top=Int(100), skip=Int(0))
        return [] if status == 204 else [str(each["rule-description"].value[2]) for each in body["rules"]]


RULE = {"sql-filter": {"expression": "color = 'red'"}}


def subscribe(broker: Broker, **settings: Any) -> None:
    broker.create_topic("t")
    broker.create_subscription("t", "s", **settings)


def recreate_subscription(broker: Broker) -> None:
    broker.delete_subscription("t", "s")
    broker.create_subscription("t", "s")


def recreate_topic(broker: Broker) -> None:
    broker.delete_topic("t")
    subscribe(broker)


def recreate_in_one_commit(broker: Broker) -> None:
    def work(server: Any) -> None:
        host = server.hosts["contoso"]
        settings = host.entities.subscription("t", "s").settings
        host.delete_subscription("t", "s")
        host.create_subscription(settings)

    broker.call(work)


def recreate_queue(broker: Broker, **settings: Any) -> None:
    broker.delete_queue("q")
    broker.create_queue("q", **settings)


def rows(broker: Broker, table: Table) -> int:
    return broker.call(lambda server: len(list(server.hosts["contoso"].store.scan(table))))


# --- management ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("again", [recreate_subscription, recreate_topic, recreate_in_one_commit])
def test_rules_are_those_of_the_subscription_that_is_there(
    broker: Broker, peer: Peer, again: Callable[[Broker], None]
) -> None:
    subscribe(broker)
    node = Node(peer, SUBSCRIPTION)
    assert node.call("add-rule", rule_name="old", rule_description=RULE)[0] == 200
    again(broker)
    assert node.rules() == ["$Default"]
    assert node.call("add-rule", rule_name="red", rule_description=RULE)[0] == 200
    assert node.call("remove-rule", rule_name="$Default")[0] == 200
    assert node.rules() == ["red"]
    entity_rows = rows(broker, Table.ENTITIES)
    broker.restart()
    with Peer(broker) as other:
        assert Node(other, SUBSCRIPTION).rules() == ["red"]
    assert rows(broker, Table.ENTITIES) == entity_rows == 4  # a queue, a topic, a subscription, a rule


def test_peek_schedule_and_cancel_are_about_the_queue_that_is_there(broker: Broker, peer: Peer) -> None:
    node = Node(peer, "q")
    recreate_queue(broker)
    assert isinstance(peer.send(peer.sender("q"), text("here")), Accepted)
    status, body = node.call("peek-message", from_sequence_number=0, message_count=Int(10))
    assert (status, len(body["messages"])) == (200, 1)
    later = text("later", message_annotations={Symbol("x-opt-scheduled-enqueue-time"): Timestamp(1_800_000_000_000)})
    entry = {"message": later.encode(), "message-id": "later"}
    status, body = node.call("schedule-message", messages=[entry])
    assert status == 200
    assert node.call("cancel-scheduled-message", sequence_numbers=list(body["sequence-numbers"]))[0] == 200


def test_locks_and_deferred_messages_are_those_of_the_queue_that_is_there(broker: Broker, peer: Peer) -> None:
    node = Node(peer, "q")
    recreate_queue(broker)
    sender = peer.sender("q")
    link = peer.receiver("q", credit=3)
    for name in ("renewed", "deferred", "completed"):
        peer.send(sender, text(name))
    renewed, deferred, completed = (peer.receive(link) for _ in range(3))
    tokens = [uuid.UUID(bytes_le=each.tag) for each in (renewed, deferred, completed)]
    assert node.call("renew-lock", lock_tokens=[tokens[0]])[0] == 200
    assert node.call("update-disposition", disposition_status="defered", lock_tokens=[tokens[1]])[0] == 200
    assert node.call("update-disposition", disposition_status="completed", lock_tokens=[tokens[2]])[0] == 200
    status, body = node.call("receive-by-sequence-number", sequence_numbers=[2], receiver_settle_mode=UInt(0))
    assert (status, len(body["messages"])) == (200, 1)
    peer.send(sender, text("purged"))
    assert node.call("batch-delete-messages", message_count=Int(5))[0] in (200, 204)


def test_sessions_are_those_of_the_queue_that_is_there(broker: Broker, peer: Peer) -> None:
    recreate_queue(broker, requires_session=True)
    node = Node(peer, "q")
    peer.receiver("q", session_filter="one")
    assert node.call("set-session-state", session_id="one", session_state=b"old")[0] == 200
    recreate_queue(broker, requires_session=True)
    peer.receiver("q", session_filter="one")
    assert node.call("get-session-state", session_id="one") == (200, {"session-state": None})
    assert node.call("set-session-state", session_id="one", session_state=b"new")[0] == 200
    assert node.call("renew-session-lock", session_id="one")[0] == 200
    assert node.call("get-message-sessions", skip=Int(0), top=Int(10))[1]["sessions-ids"] == ["one"]
    broker.restart()
    with Peer(broker) as other:
        other.receiver("q", session_filter="one")
        assert Node(other, "q").call("get-session-state", session_id="one") == (200, {"session-state": b"new"})
    assert rows(broker, Table.SESSIONS) == 1


def test_an_entity_that_came_back_as_another_kind(broker: Broker, peer: Peer) -> None:
    node = Node(peer, "q")
    broker.delete_queue("q")
    assert node.call("peek-message", from_sequence_number=0, message_count=Int(1))[0] == 404
    broker.create_topic("q")
    assert node.call("renew-lock", lock_tokens=[uuid.uuid4()])[0] == 501
    assert node.call("peek-message", from_sequence_number=0, message_count=Int(1))[0] == 204
    broker.delete_topic("q")
    broker.create_queue("q", requires_session=True)
    peer.receiver("q", session_filter="one")
    assert node.call("set-session-state", session_id="one", session_state=b"s")[0] == 200
    recreate_queue(broker)
    assert node.call("set-session-state", session_id="one", session_state=b"s")[0] != 200
    assert node.call("get-message-sessions", skip=Int(0), top=Int(10))[0] != 200
    broker.restart()
    assert rows(broker, Table.SESSIONS) == 0


def test_the_dead_letters_of_a_queue_that_came_back(broker: Broker, peer: Peer) -> None:
    node = Node(peer, "q/$DeadLetterQueue")
    recreate_queue(broker)
    peer.send(peer.sender("q"), text("dead"))
    link = peer.receiver("q", credit=1)
    token = uuid.UUID(bytes_le=peer.receive(link).tag)
    assert Node(peer, "q").call("update-disposition", disposition_status="suspended", lock_tokens=[token])[0] == 200
    status, body = node.call("peek-message", from_sequence_number=0, message_count=Int(10))
    assert (status, len(body["messages"])) == (200, 1)


# --- senders, receivers, transactions -----------------------------------------------------------------------------


@pytest.mark.parametrize("attach", [lambda peer: peer.sender("q"), lambda peer: peer.receiver("q", credit=5)])
def test_links_on_a_deleted_entity_end_at_once(broker: Broker, peer: Peer, attach: Callable[[Peer], Any]) -> None:
    link = attach(peer)
    recreate_queue(broker)
    detached = peer.wait(Detached, lambda event: event.link is link)
    assert detached.error is not None
    assert detached.error.condition == "amqp:not-found"
    assert isinstance(peer.send(peer.sender("q"), text("new")), Accepted)
    assert body_of(peer.receive(peer.receiver("q", credit=1))) == "new"


def test_a_wait_for_any_session_ends_with_its_entity(broker: Broker, peer: Peer) -> None:
    recreate_queue(broker, requires_session=True)
    waiting = peer.session.attach_receiver(
        "waiting",
        source=Source("q", {Symbol("com.microsoft:session-filter"): None}),
        target=Target("peer"),
    )
    peer.flush()
    # The broker has processed the attach once it answers a later request.
    Node(peer, "q")
    recreate_queue(broker, requires_session=True)
    detached = peer.wait(Detached, lambda event: event.link is waiting)
    assert detached.error is not None
    assert detached.error.condition == "amqp:not-found"


def command(code: int, *fields: Any) -> bytes:
    message = AmqpMessage()
    message.value, message.has_value = Described(ULong(code), list(fields)), True
    return message.encode()


@pytest.mark.parametrize("by_way_of", [False, True])
def test_a_transaction_never_reaches_the_entity_that_is_gone(broker: Broker, peer: Peer, by_way_of: bool) -> None:
    broker.create_queue("via")
    peer.send(peer.sender("q"), text("locked"))
    receiver = peer.receiver("q", credit=1)
    locked = peer.receive(receiver)
    control = peer.session.attach_sender("control", source=Source("peer"), target=Coordinator())
    peer.flush()
    peer.wait(Attached, lambda event: event.link is control)
    declared = peer.send(control, command(0x31))
    assert isinstance(declared, Declared)
    properties = {Symbol("com.microsoft:transfer-destination-address"): "q"} if by_way_of else None
    sender = peer.sender("via" if by_way_of else "q", properties=properties)
    sender.send(text("sent").encode(), tag=b"1", settled=False, state=state_transactional(declared.txn_id, None))
    peer.flush()
    recreate_queue(broker)
    outcome = peer.send(control, command(0x32, declared.txn_id, False))
    assert isinstance(outcome, Rejected), locked
    assert broker.call(lambda server: server.hosts["contoso"].entities.queue("q").counts.active) == 0
    broker.restart()
    assert rows(broker, Table.INDEX) == 0


# --- HTTP -----------------------------------------------------------------------------------------------------------


def test_a_request_that_waits_ends_with_its_entity(broker: Broker, peer: Peer) -> None:
    endpoint = broker.endpoint()
    request = urllib.request.Request(
        f"http://{endpoint.host}:{endpoint.port}/q/messages/head?timeout=60", method="DELETE"
    )

    def ask() -> int:
        try:
            with urllib.request.urlopen(request) as response:
                return response.status
        except urllib.error.HTTPError as error:
            return error.code

    with ThreadPoolExecutor(1) as worker:
        asked = worker.submit(ask)
        while not broker.call(lambda server: any(d._line for d in server.hosts["contoso"]._dispatchers.values())):
            pass
        recreate_queue(broker)
        assert asked.result() == 410


# --- counting and forwarding --------------------------------------------------------------------------------------


def test_operations_on_the_entity_that_is_there_are_counted(broker: Broker) -> None:
    def work(server: Any) -> tuple[Any, Any]:
        host = server.hosts["contoso"]
        settings = host.entities.queue("q").settings
        host.senders(host.entities.queue("q"))
        host.delete_queue("q")
        host.create_queue(settings)
        return host.meter, host.meter.entity("q")

    meter, held = broker.call(work)
    assert broker.call(lambda server: held.leaving) is False
    assert meter.entity("q") is held


def test_messages_are_forwarded_to_the_target_that_is_there(broker: Broker, peer: Peer) -> None:
    broker.create_queue("from", forward_to="q")
    broker.delete_queue("q")
    subscribe(broker)
    broker.create_topic("q")
    broker.create_subscription("q", "s")
    peer.send(peer.sender("from"), text("one"))
    assert body_of(peer.receive(peer.receiver("q/Subscriptions/s", credit=1))) == "one"
