"""Topics over real sockets: senders, subscriptions, rules by management, forwarding, and errors."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.peer import Peer, body_of, decoded, text
from twinbus.amqp.codec import decode, encode
from twinbus.amqp.events import Detached, Disposed
from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.states import Accepted, Rejected, state_transactional
from twinbus.amqp.terminus import Coordinator
from twinbus.amqp.types import Described, Float32, Int, Short, Symbol, Timestamp, UInt, ULong
from twinbus.broker.configuration.file import load_config
from twinbus.broker.server import Server
from twinbus.clock import SteppedClock
from twinbus.entities.filters import CorrelationFilter
from twinbus.entities.settings import QueueSettings
from twinbus.store.facts import Table
from twinbus.testing import Broker


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def broker(clock: SteppedClock) -> Iterator[Broker]:
    with Broker(queues=["q"], clock=clock) as broker:
        broker.create_topic("t")
        yield broker


@pytest.fixture
def peer(broker: Broker) -> Iterator[Peer]:
    with Peer(broker) as peer:
        yield peer


def step(broker: Broker, clock: SteppedClock, seconds: float) -> None:
    clock.step(seconds=seconds)
    broker.call(lambda server: server.step())


def rows(broker: Broker, table: Table) -> int:
    return broker.call(lambda server: len(list(server.hosts["contoso"].store.scan(table))))


def received(peer: Peer, address: str, count: int = 1) -> list[AmqpMessage]:
    """Receive and complete messages of an entity."""
    link = peer.receiver(address, credit=count)
    found = []
    for _ in range(count):
        delivery = peer.receive(link)
        found.append(decoded(delivery))
        assert isinstance(peer.settle(delivery), Accepted)
    link.detach()
    peer.flush()
    return found


def annotation(message: AmqpMessage, name: str) -> Any:
    return (message.message_annotations or {}).get(Symbol(name))


def test_every_subscription_gets_a_copy(broker: Broker, peer: Peer) -> None:
    broker.create_subscription("t", "all")
    broker.create_subscription("t", "red", filter="color = 'red'")
    sender = peer.sender("t")
    assert isinstance(peer.send(sender, text("one", application_properties={"color": "blue"})), Accepted)
    assert isinstance(peer.send(sender, text("two", application_properties={"color": "red"})), Accepted)
    assert rows(broker, Table.BODIES) == 2
    first, second = received(peer, "t/Subscriptions/all", 2)
    assert [annotation(each, "x-opt-sequence-number") for each in (first, second)] == [1, 2]
    (red,) = received(peer, "amqps://localhost/T/subscriptions/RED")
    assert annotation(red, "x-opt-sequence-number") == 1
    assert annotation(red, "x-opt-enqueue-sequence-number") == 2
    assert red.application_properties == {"color": "red"}
    assert rows(broker, Table.BODIES) == 0
    assert rows(broker, Table.INDEX) == 0


def test_a_queues_message_has_no_number_of_a_topic(peer: Peer) -> None:
    peer.send(peer.sender("q"), text())
    (message,) = received(peer, "q")
    assert annotation(message, "x-opt-enqueue-sequence-number") is None


def test_copies_survive_a_restart(broker: Broker) -> None:
    for name in ("one", "two"):
        broker.create_subscription("t", name, filter=CorrelationFilter(label="x"))
    with Peer(broker) as peer:
        sender = peer.sender("t")
        peer.send(sender, text("a", subject="x"))
        received(peer, "t/Subscriptions/one")
    broker.restart()
    with Peer(broker) as peer:
        (copy,) = received(peer, "t/Subscriptions/two")
        assert b"".join(copy.data or []) == b"a"
        assert peer.call("t/Subscriptions/two/$management", "com.microsoft:enumerate-rules", {"top": 10})[0] == 200
    assert rows(broker, Table.BODIES) == 0


@pytest.mark.parametrize(
    ("attach", "words"),
    [
        (lambda peer: peer.receiver("t"), "subscription"),
        (lambda peer: peer.sender("t/Subscriptions/s"), "topic"),
        (lambda peer: peer.sender("t/Subscriptions/s/$DeadLetterQueue"), "dead-letter"),
        (lambda peer: peer.sender("q/$Transfer/$DeadLetterQueue"), "dead-letter"),
        (lambda peer: peer.receiver("forwards"), "forwarded"),
    ],
)
def test_wrong_directions_are_not_allowed(broker: Broker, peer: Peer, attach: Any, words: str) -> None:
    broker.create_subscription("t", "s")
    broker.create_queue("forwards", forward_to="q")
    error = peer.refusal(lambda: attach(peer))
    assert error.condition == "amqp:not-allowed"
    assert words in error.description


def test_what_does_not_exist_is_not_found(broker: Broker, peer: Peer) -> None:
    for address in ("t/Subscriptions/nobody", "nobody/Subscriptions/s", "q/Subscriptions/s", "t/$DeadLetterQueue"):
        assert peer.refusal(lambda address=address: peer.receiver(address)).condition == "amqp:not-found"


def test_a_deleted_topic_takes_its_links_along(broker: Broker, peer: Peer) -> None:
    broker.create_subscription("t", "s")
    sender, receiver = peer.sender("t"), peer.receiver("t/Subscriptions/s", credit=1)
    peer.send(sender, text())
    broker.delete_topic("t")
    gone = {peer.wait(Detached).link, peer.wait(Detached).link}
    assert gone == {sender, receiver}
    assert rows(broker, Table.BODIES) == 0
    assert peer.refusal(lambda: peer.sender("t")).condition == "amqp:not-found"


def test_a_disabled_topic_rejects(broker: Broker, peer: Peer) -> None:
    broker.create_topic("off", status="SendDisabled")
    state = peer.send(peer.sender("off"), text())
    assert isinstance(state, Rejected)
    assert state.error is not None
    assert state.error.condition == "com.microsoft:entity-disabled"


def test_sessions_of_a_subscription(broker: Broker, peer: Peer) -> None:
    broker.create_subscription("t", "s", requires_session=True)
    sender = peer.sender("t")
    peer.send(sender, text("a", group_id="red"))
    peer.send(sender, text("lost"))
    link = peer.receiver("t/Subscriptions/s", credit=2, session_filter=None)
    assert body_of(peer.receive(link)) == "a"
    (lost,) = received(peer, "t/Subscriptions/s/$DeadLetterQueue")
    assert (lost.application_properties or {})["DeadLetterReason"] == "Session ID is null."


# --- actions ----------------------------------------------------------------------------------------------------------


def test_an_action_changes_the_copy_and_keeps_types(broker: Broker, peer: Peer) -> None:
    broker.create_subscription("t", "plain")
    broker.create_subscription("t", "s")
    broker.create_rule(
        "t",
        "s",
        "act",
        "n = 5",
        "SET n = n + 1; SET fresh = 2; SET sys.Label = 'hot'; SET sys.ReplyTo = 'me'; REMOVE junk; SET when = when; "
        "SET sys.TimeToLive = '00:00:10'; SET sys.PartitionKey = 'p'; REMOVE sys.To; SET text = 'x' + n",
    )
    properties = {"n": Int(5), "junk": True, "when": Timestamp(5), "kept": UInt(7)}
    sent = text("a", application_properties=properties, subject="cold", to="there", content_type="text/plain")
    peer.send(peer.sender("t"), sent)
    as_it_was, changed = received(peer, "t/Subscriptions/s", 2)
    (plain,) = received(peer, "t/Subscriptions/plain")
    for message in (as_it_was, plain):
        assert message.application_properties == properties
        assert message.subject == "cold"
    found = changed.application_properties or {}
    assert found == {"n": 6, "fresh": 2, "when": 5, "kept": 7, "text": "x6"}
    assert {name: type(value).__name__ for name, value in found.items()} == {
        "n": "Int",
        "fresh": "int",
        "when": "Timestamp",
        "kept": "UInt",
        "text": "str",
    }
    assert (changed.subject, changed.reply_to, changed.to, changed.content_type) == ("hot", "me", None, "text/plain")
    assert changed.message_id == sent.message_id
    assert annotation(changed, "x-opt-partition-key") == "p"
    assert changed.ttl == 10_000
    assert changed.data == [b"a"]


def test_a_failing_filter_is_told_on_the_dead_letter(broker: Broker, peer: Peer) -> None:
    broker.create_subscription("t", "s", filter="10 / n > 1")
    peer.send(peer.sender("t"), text("a", application_properties={"n": Int(0)}))
    (letter,) = received(peer, "t/Subscriptions/s/$DeadLetterQueue")
    found = letter.application_properties or {}
    assert found["DeadLetterReason"] == "FilterEvaluationException"
    assert "divided by zero" in found["DeadLetterErrorDescription"]


def test_application_properties_that_do_not_read_fail_the_filters(broker: Broker, peer: Peer) -> None:
    broker.create_subscription("t", "s", filter="n = 1")
    broker.create_subscription("t", "all")
    properties = b"\x00\x53\x74\xc1\x05\x02\xa1\x01n\xff"
    state = peer.send(peer.sender("t"), properties + b"\x00\x53\x75\xa0\x01x")
    assert isinstance(state, Accepted)
    (letter,) = received(peer, "t/Subscriptions/s/$DeadLetterQueue")
    assert "DeadLetterReason" in (letter.application_properties or {})
    assert rows(broker, Table.INDEX) == 1


# --- scheduling -------------------------------------------------------------------------------------------------------


def test_scheduling_on_a_topic(broker: Broker, peer: Peer, clock: SteppedClock) -> None:
    broker.create_subscription("t", "s", filter="color = 'red'")
    at = {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(clock.now_ms() + 5_000)}
    entries = [
        {
            "message-id": "m",
            "message": text(name, message_annotations=at, application_properties={"color": "red"}).encode(),
        }
        for name in ("a", "b")
    ]
    node = "t/$management"
    status, _, body = peer.call(node, "com.microsoft:schedule-message", {"messages": entries})
    assert status == 200
    first, second = body["sequence-numbers"]
    status, _, body = peer.call(node, "com.microsoft:peek-message", {"from-sequence-number": 0, "message-count": 5})
    assert (status, len(body["messages"])) == (200, 2)
    assert peer.call(node, "com.microsoft:cancel-scheduled-message", {"sequence-numbers": [first]})[0] == 200
    assert peer.call(node, "com.microsoft:cancel-scheduled-message", {"sequence-numbers": [first]})[0] == 404
    assert second > first
    broker.restart()
    step(broker, clock, 6)
    with Peer(broker) as other:
        (copy,) = received(other, "t/Subscriptions/s")
    assert copy.data == [b"b"]
    assert rows(broker, Table.BODIES) == 0


@pytest.mark.parametrize("operation", ["renew-lock", "get-message-sessions", "add-rule", "update-disposition"])
def test_a_topic_has_nothing_to_receive(peer: Peer, operation: str) -> None:
    status, condition, _ = peer.call("t/$management", f"com.microsoft:{operation}", {})
    assert (status, condition) == (501, "amqp:not-implemented")


# --- rules by management ----------------------------------------------------------------------------------------------


def rules(peer: Peer, skip: int = 0, top: int = 100) -> list[Described]:
    body = {"skip": Int(skip), "top": Int(top)}
    status, _, found = peer.call("t/Subscriptions/s/$management", "com.microsoft:enumerate-rules", body)
    return [] if status == 204 else [each["rule-description"] for each in found["rules"]]


def test_rules_come_as_the_service_describes_them(broker: Broker, peer: Peer, clock: SteppedClock) -> None:
    broker.create_subscription("t", "s")
    node, add = "t/Subscriptions/s/$management", "com.microsoft:add-rule"
    correlation = {
        "correlation-id": "c",
        "message-id": None,
        "to": None,
        "reply-to": None,
        "label": "l",
        "session-id": None,
        "reply-to-session-id": None,
        "content-type": "text/plain",
        "properties": {"n": Int(5), "text": "x"},
    }
    wanted: dict[str, dict[str, Any]] = {
        "1sql": {"sql-filter": {"expression": "n > 1"}, "sql-rule-action": {"expression": "SET n = 2"}},
        "2correlation": {"correlation-filter": correlation, "sql-rule-action": None},
        "3true": {"sql-filter": {"expression": "1=1"}, "sql-rule-action": {}},
        "4false": {"sql-filter": {"expression": "1=0"}},
    }
    for name, description in wanted.items():
        status, _, _ = peer.call(node, add, {"rule-name": name, "rule-description": description})
        assert status == 200
    found = rules(peer)
    assert all(each.descriptor == ULong(0x13700000004) for each in found)
    assert [each.value[2] for each in found] == ["$Default", *wanted]
    assert all(each.value[3] == clock.now_ms() and isinstance(each.value[3], Timestamp) for each in found)
    filters = {each.value[2]: each.value[0] for each in found}
    actions = {each.value[2]: each.value[1] for each in found}
    assert filters["$Default"] == filters["3true"] == Described(ULong(0x1370000007), [])
    assert filters["4false"] == Described(ULong(0x1370000008), [])
    assert filters["1sql"] == Described(ULong(0x1370000006), ["n > 1", Int(20)])
    assert actions["1sql"] == Described(ULong(0x13700000006), ["SET n = 2", Int(20)])
    assert actions["2correlation"] == Described(ULong(0x13700000005), [])
    assert filters["2correlation"] == Described(
        ULong(0x1370000009), ["c", None, None, None, "l", None, None, "text/plain", {"n": 5, "text": "x"}]
    )
    assert isinstance(filters["1sql"].descriptor, ULong)
    # The descriptors are full-width ulongs on the wire.
    assert bytes.fromhex("80000001370000000 4".replace(" ", "")) in encode(found[0])
    assert decode(encode(found[0]), 0)[0] == found[0]


def test_rules_come_in_pages_that_end(broker: Broker, peer: Peer) -> None:
    broker.create_subscription("t", "s")
    for number in range(5):
        broker.create_rule("t", "s", f"r{number}", "n = 1")
    assert [each.value[2] for each in rules(peer, 0, 4)] == ["$Default", "r0", "r1", "r2"]
    assert [each.value[2] for each in rules(peer, 4, 4)] == ["r3", "r4"]
    assert rules(peer, 6, 4) == []


def test_values_of_a_rule_keep_their_types(broker: Broker, peer: Peer) -> None:
    broker.create_subscription("t", "s")
    values = {
        "int": Int(5),
        "long": 5,
        "short": Short(5),
        "ulong": ULong(2**64 - 1),
        "float": Float32(0.5),
        "double": 2.0,
        "time": Timestamp(1_700_000_000_123),
        "text": "x",
        "yes": True,
    }
    described = {"rule-name": "r", "rule-description": {"correlation-filter": {"properties": values}}}
    assert peer.call("t/Subscriptions/s/$management", "com.microsoft:add-rule", described)[0] == 200
    for life in (1, 2):
        with Peer(broker) as other:
            found = rules(other)[1].value[0].value[-1]
        assert found == values, life
        assert {name: type(value) for name, value in found.items()} == {
            name: type(value) for name, value in values.items()
        }, life
        broker.restart()


def test_rules_take_effect_and_go(broker: Broker, peer: Peer) -> None:
    broker.create_subscription("t", "s")
    node = "t/Subscriptions/s/$management"
    assert peer.call(node, "com.microsoft:remove-rule", {"rule-name": "$Default"})[0] == 200
    sender = peer.sender("t")
    peer.send(sender, text("nobody"))
    description = {"sql-filter": {"expression": "sys.Label = 'x'"}}
    body = {"rule-name": "x", "rule-description": description}
    assert peer.call(node, "com.microsoft:add-rule", body)[0] == 200
    peer.send(sender, text("x", subject="x"))
    (found,) = received(peer, "t/Subscriptions/s")
    assert found.subject == "x"
    status, condition, _ = peer.call(node, "com.microsoft:add-rule", body)
    assert (status, condition) == (409, "com.microsoft:entity-already-exists")
    status, condition, _ = peer.call(node, "com.microsoft:remove-rule", {"rule-name": "nobody"})
    assert (status, condition) == (404, "amqp:not-found")


@pytest.mark.parametrize(
    "description",
    [
        None,
        {},
        {"sql-filter": {"expression": "n ="}},
        {"sql-filter": {}},
        {"sql-filter": "n = 1"},
        {"correlation-filter": {}},
        {"correlation-filter": {"label": Int(5)}},
        {"correlation-filter": {"label": "a", "properties": "x"}},
        {"sql-filter": {"expression": "n = 1"}, "correlation-filter": {"label": "a"}},
        {"sql-filter": {"expression": "n = 1"}, "sql-rule-action": {"expression": "SET"}},
    ],
)
def test_wrong_rules_are_argument_errors(broker: Broker, peer: Peer, description: Any) -> None:
    broker.create_subscription("t", "s")
    body = {"rule-name": "x", "rule-description": description}
    status, condition, _ = peer.call("t/Subscriptions/s/$management", "com.microsoft:add-rule", body)
    assert (status, condition) == (400, "com.microsoft:argument-error")
    assert len(rules(peer)) == 1


def test_only_subscriptions_have_rules(peer: Peer) -> None:
    status, condition, _ = peer.call("q/$management", "com.microsoft:enumerate-rules", {"top": Int(1)})
    assert (status, condition) == (400, "amqp:not-allowed")


# --- forwarding -------------------------------------------------------------------------------------------------------


def test_a_chain_of_forwards(broker: Broker, peer: Peer) -> None:
    broker.create_subscription("t", "s", forward_to="q")
    broker.create_queue("source", forward_to="t")
    peer.send(peer.sender("source"), text("a"))
    (message,) = received(peer, "q")
    assert annotation(message, "x-opt-enqueue-sequence-number") == 1
    assert annotation(message, "x-opt-deadletter-source") is None
    assert rows(broker, Table.BODIES) == 0


def test_forwarded_dead_letters_name_their_source(broker: Broker, peer: Peer, clock: SteppedClock) -> None:
    broker.create_subscription("t", "s", forward_dead_letters_to="q", default_ttl_ms=5_000, dead_letter_on_expiry=True)
    peer.send(peer.sender("t"), text("a"))
    step(broker, clock, 7)
    (message,) = received(peer, "q")
    assert annotation(message, "x-opt-deadletter-source") == "t/Subscriptions/s"
    assert (message.application_properties or {})["DeadLetterReason"] == "TTLExpiredException"


def test_what_cannot_be_forwarded_waits_in_the_transfer_dead_letter_queue(broker: Broker, peer: Peer) -> None:
    broker.create_queue("full", status="SendDisabled")
    broker.create_queue("source", forward_to="full")
    peer.send(peer.sender("source"), text("a"))
    address = "source/$Transfer/$DeadLetterQueue"
    node = f"{address}/$management"
    link = peer.receiver(address, credit=1)
    delivery = peer.receive(link)
    assert (decoded(delivery).application_properties or {})["DeadLetterReason"] == "MessagingEntityDisabled"
    body = {"from-sequence-number": 0, "message-count": 5}
    assert peer.call(node, "com.microsoft:peek-message", body)[0] == 200
    peer.settle(delivery)
    assert rows(broker, Table.BODIES) == 0


def test_a_copy_shows_the_time_its_subscription_gives_it(broker: Broker, peer: Peer) -> None:
    broker.create_subscription("t", "short", default_ttl_ms=5_000)
    broker.create_subscription("t", "own")
    peer.send(peer.sender("t"), text("a", ttl=UInt(60_000)))
    (short,) = received(peer, "t/Subscriptions/short")
    (own,) = received(peer, "t/Subscriptions/own")
    assert (short.ttl, own.ttl) == (5_000, 60_000)
    enqueued_ms = annotation(short, "x-opt-enqueued-time")
    assert short.absolute_expiry_time == enqueued_ms + 5_000
    assert own.absolute_expiry_time == enqueued_ms + 60_000


# --- transactions -----------------------------------------------------------------------------------------------------


def test_a_transaction_over_a_queue_and_a_topic(broker: Broker, peer: Peer) -> None:
    broker.create_subscription("t", "s")
    control = peer.session.attach_sender(str(uuid.uuid4()), source=None, target=Coordinator([]))
    peer._answered(control)

    def command(code: int, fields: list[object]) -> Any:
        message = AmqpMessage()
        message.value, message.has_value = Described(ULong(code), fields), True
        return peer.send(control, message)

    for fail in (True, False):
        txn_id = command(0x31, [None]).txn_id
        for address in ("q", "t"):
            link = peer.sender(address)
            state = state_transactional(txn_id, None)
            link.send(text(address).encode(), tag=uuid.uuid4().bytes, settled=False, state=state)
            peer.wait(Disposed)
        assert rows(broker, Table.BODIES) == 0
        assert isinstance(command(0x32, [txn_id, fail]), Accepted)
    assert rows(broker, Table.BODIES) == 2
    assert received(peer, "t/Subscriptions/s")
    assert received(peer, "q")


# --- the namespace's own node and the configuration -------------------------------------------------------------------


def test_topics_by_the_namespaces_own_node(broker: Broker, peer: Peer) -> None:
    def ask(operation: str, **body: Any) -> Any:
        status, _, answer = peer.call("$management", f"twinbus:{operation}", body)
        return answer if status == 200 else status

    assert ask("create-topic", path="new", max_megabytes=5)["topic"]["max_megabytes"] == 5
    assert ask("create-topic", path="new") == 409
    assert ask("update-topic", path="new", user_metadata="x")["topic"]["user_metadata"] == "x"
    assert ask("create-subscription", topic="new", name="s")["subscription"]["name"] == "s"
    rule = {"sql-filter": {"expression": "n = 1"}}
    assert ask("create-rule", topic="new", subscription="s", name="r", **{"rule-description": rule}) == {}
    assert len(ask("list-rules", topic="new", subscription="s")["rules"]) == 2
    assert ask("delete-rule", topic="new", subscription="s", name="$Default") == {}
    peer.send(peer.sender("new"), text(application_properties={"n": 1}))
    assert ask("get-subscription", topic="new", name="s")["subscription"]["active_messages"] == 1
    assert ask("update-subscription", topic="new", name="s", max_delivery_count=3)["subscription"]["topic"] == "new"
    assert [each["path"] for each in ask("list-topics")["topics"]] == ["new", "t"]
    assert ask("get-topic", name="new")["topic"]["subscriptions"] == 1
    assert [each["name"] for each in ask("list-subscriptions", topic="new")["subscriptions"]] == ["s"]
    assert ask("delete-subscription", topic="new", name="s") == {}
    assert ask("delete-topic", name="new") == {}
    assert ask("get-topic", name="new") == 404
    assert ask("create-topic", path="new", wrong=1) == 400
    assert ask("create-subscription", topic="t") == 400
    assert ask("get-topic") == 400


EMULATOR = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "contoso",
                "Queues": [{"Name": "q", "Properties": {"ForwardTo": "t"}}],
                "Topics": [
                    {
                        "Name": "t",
                        "Properties": {"RequiresDuplicateDetection": True},
                        "Subscriptions": [
                            {"Name": "all", "Properties": {"ForwardDeadLetteredMessagesTo": "q"}},
                            {
                                "Name": "some",
                                "Properties": {"MaxDeliveryCount": 3},
                                "Rules": [
                                    {
                                        "Name": "label",
                                        "Properties": {
                                            "FilterType": "Correlation",
                                            "CorrelationFilter": {"Label": "x", "Properties": {"n": 5}},
                                        },
                                    },
                                    {
                                        "Name": "sql",
                                        "Properties": {
                                            "FilterType": "Sql",
                                            "SqlFilter": {"SqlExpression": "n > 7"},
                                            "Action": {"SqlExpression": "SET big = TRUE"},
                                        },
                                    },
                                ],
                            },
                        ],
                    }
                ],
            }
        ]
    }
}


def test_configured_topics_are_made_at_start_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(EMULATOR))
    config = load_config(file)
    with Broker(config.namespaces, data=tmp_path / "data") as broker:
        for _ in range(2):
            with Peer(broker) as peer:
                sender = peer.sender("q")
                for number, properties in enumerate([{"n": Int(5)}, {"n": Int(8)}, {}]):
                    message = text(str(number), subject="x", application_properties=properties)
                    assert isinstance(peer.send(sender, message), Accepted)
                assert len(received(peer, "t/Subscriptions/all", 3)) == 3
                label, sql = received(peer, "t/Subscriptions/some", 2)
                assert (label.data, sql.data) == ([b"0"], [b"1"])
                assert (sql.application_properties or {})["big"] is True
            # Nothing is created twice, and a rule that somebody added stays.
            if "more" not in rule_names(broker):
                broker.create_rule("t", "some", "more", "1 = 2")
            broker.restart()
        assert rule_names(broker) == ["label", "more", "sql"]
        settings = broker.call(lambda server: server.hosts["contoso"].entities.subscription("t", "all").settings)
        assert settings.forward_dead_letters_to == "q"


def rule_names(broker: Broker) -> list[str]:
    def names(server: Server) -> list[str]:
        return [each.name for each in server.hosts["contoso"].entities.subscription("t", "some").rules]

    return broker.call(names)


def test_faults_can_be_set_on_topics(clock: SteppedClock) -> None:
    with Broker(queues=[QueueSettings(path="q")], clock=clock, allow_faults=True) as broker:
        broker.create_topic("t")
        with Peer(broker) as peer:
            sender = peer.sender("t")
            with broker.fault("down", "t"):
                assert peer.wait(Detached).link is sender
            assert isinstance(peer.send(peer.sender("t"), text()), Accepted)
