"""What JMS clients ask of a Premium namespace, over raw AMQP: subscriptions, temporary nodes, delay and relay."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.broker.links.test_selector_line import filters
from tests.broker.peer import Peer, body_of, text
from twinbus.amqp.connection import RemoteOpen
from twinbus.amqp.events import Detached, Transfer
from twinbus.amqp.link import Link
from twinbus.amqp.states import Accepted, Rejected
from twinbus.amqp.terminus import Source, Target
from twinbus.amqp.types import Array, Described, Symbol, Timestamp, UInt, ULong
from twinbus.auth.policies import Policy
from twinbus.broker.configuration.config import NamespaceConfig
from twinbus.broker.connections import jms_attachment
from twinbus.broker.http.admin.rule_xml import rule_content
from twinbus.broker.http.console.entities import _rule as console_rule
from twinbus.testing import Broker

LIFETIME = {Symbol("lifetime-policy"): Described(ULong(43), [])}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker([NamespaceConfig("contoso", sku="Premium")], queues={"contoso": ["q", "other"]}) as running:
        running.create_topic("t")
        running.create_topic("u")
        yield running


def topic_source(address: str | None, durable: bool, wanted: tuple[str, ...], asked: Any) -> Source:
    symbols = Array([Symbol(each) for each in ("topic", *wanted)], 0xB3)
    expiry = Symbol("never" if durable else "link-detach")
    mode = Symbol("copy") if durable else None
    fields = [address, UInt(2 if durable else 0), expiry, UInt(0), False, None, mode, asked, None, None, symbols]
    return Source(address, asked, fields=fields)


def subscribe(
    peer: Peer,
    name: str,
    *wanted: str,
    durable: bool = True,
    topic: str = "t",
    selector: str | None = None,
    **more: Any,
) -> Link:
    asked = {**(filters(selector) if selector else {}), **more} or None
    link = peer.session.attach_receiver(
        name,
        source=topic_source(topic, durable, wanted, asked),
        target=Target("peer"),
        snd_settle_mode=0,
        rcv_settle_mode=0,
    )
    peer._answered(link)
    link.flow(10)
    peer.flush()
    return link


def unsubscribe(peer: Peer, name: str) -> Link:
    link = peer.session.attach_receiver(name, source=Source(raw=b"\x40"), target=Target("peer"))
    peer._answered(link)
    return link


def dynamic(peer: Peer, kind: str, lifetime: Any = LIFETIME) -> Link:
    wanted = Symbol(f"temporary-{kind}")
    fields = [None, UInt(0), Symbol("link-detach"), UInt(0), True, lifetime, wanted]
    link = peer.session.attach_sender(str(uuid.uuid4()), source=Source("peer"), target=Target(None, fields=fields))
    peer._answered(link)
    return link


def address(link: Link) -> str:
    assert link.target is not None
    assert link.target.address is not None
    return link.target.address


def send(peer: Peer, path: str, *bodies: str, **fields: Any) -> None:
    link = peer.sender(path)
    for body in bodies:
        peer.send(link, text(body, application_properties={"body": body, "length": len(body)}, **fields))
    link.detach()
    peer.flush()


def taken(peer: Peer, link: Link, count: int) -> list[str]:
    found = [peer.receive(link) for _ in range(count)]
    for delivery in found:
        link.session.dispose(delivery.delivery_id, delivery.delivery_id, b"\x00\x53\x24\x45", True)
    peer.flush()
    return [body_of(delivery) for delivery in found]


def leave(peer: Peer, link: Link, closed: bool = False) -> None:
    link.detach(closed=closed)
    peer.flush()
    peer.wait(Detached, lambda event: event.link is link)


def names(broker: Broker, topic: str = "t") -> list[str]:
    return broker.call(
        lambda server: [each.name for each in server.hosts["contoso"].entities.topic(topic).subscriptions]
    )


def paths(broker: Broker) -> list[str]:
    def look(server: Any) -> list[str]:
        entities = server.hosts["contoso"].entities
        return [each.path for each in (*entities.queues(), *entities.topics())]

    return broker.call(look)


# --- what is offered ------------------------------------------------------------------------------------------------


def test_capabilities_are_offered_on_premium_only(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    offered: list[Any] = []
    real = RemoteOpen.__init__

    def record(self: RemoteOpen, fields: list[Any]) -> None:
        offered.append(fields[7])
        real(self, fields)

    monkeypatch.setattr(RemoteOpen, "__init__", record)
    with Peer(broker):
        assert [str(each) for each in offered[-1]] == ["DELAYED_DELIVERY", "ANONYMOUS-RELAY", "SHARED-SUBS"]
    with Broker() as standard, Peer(standard):
        assert offered[-1] is None


def test_on_a_standard_namespace_the_refusals_stay() -> None:
    with Broker(queues=["q"]) as broker:
        broker.create_topic("t")
        with Peer(broker) as peer:
            said = [
                peer.refusal(lambda: subscribe(peer, "d")),
                peer.refusal(lambda: dynamic(peer, "queue")),
                peer.refusal(lambda: unsubscribe(peer, "d")),
                peer.refusal(lambda: relay(peer)),
            ]
        words = [error.description or "" for error in said]
        assert "receive from a subscription" in words[0]
        assert "Temporary queues and topics are not available" in words[1]
        assert all("names no address" in each for each in words[2:])


# --- subscriptions --------------------------------------------------------------------------------------------------


def test_a_durable_subscription_keeps_messages_until_it_is_unsubscribed(broker: Broker) -> None:
    with Peer(broker, container="client 1") as peer:
        link = subscribe(peer, "daily")
        assert names(broker) == ["daily$client_1~" + _sum("client 1") + "$D"]
        send(peer, "t", "a")
        assert taken(peer, link, 1) == ["a"]
        leave(peer, link)
        send(peer, "t", "b")
    with Peer(broker, container="client 1") as peer:
        link = subscribe(peer, "daily")
        assert taken(peer, link, 1) == ["b"]
        error = peer.refusal(lambda: unsubscribe(peer, "daily"))
        assert "active consumer" in (error.description or "")
        leave(peer, link)
        gone = unsubscribe(peer, "daily")
        assert gone.source is not None
        assert gone.source.address == "t"
        leave(peer, gone, closed=True)
        assert names(broker) == []
        error = peer.refusal(lambda: unsubscribe(peer, "daily"))
        assert error.condition == "amqp:not-found"


def _sum(whole: str) -> str:
    import hashlib

    return hashlib.sha256(whole.encode()).hexdigest()[:8]


def test_a_durable_subscription_has_one_receiver(broker: Broker) -> None:
    with Peer(broker, container="c1") as first, Peer(broker, container="c1") as second:
        subscribe(first, "one")
        error = second.refusal(lambda: subscribe(second, "one"))
        assert "already a subscriber using the same name" in (error.description or "")
        with Peer(broker, container="c2") as other:
            subscribe(other, "one")
        assert names(broker) == ["one$c1$D", "one$c2$D"]


def test_another_topic_or_selector_makes_the_subscription_anew(broker: Broker) -> None:
    with Peer(broker, container="c1") as peer:
        link = subscribe(peer, "s")
        send(peer, "t", "old")
        leave(peer, link)
        link = subscribe(peer, "s", selector="length = 2")
        send(peer, "t", "no", "not", "ok")
        assert taken(peer, link, 2) == ["no", "ok"]
        leave(peer, link)
        send(peer, "t", "me", "not")
        same = subscribe(peer, "s", selector="length = 2")
        assert taken(peer, same, 1) == ["me"]
        leave(peer, same)
        subscribe(peer, "s", topic="u")
        assert (names(broker), names(broker, "u")) == ([], ["s$c1$D"])


def test_shared_subscriptions_of_one_client_and_of_all(broker: Broker) -> None:
    with Peer(broker, container="c1") as one, Peer(broker, container="c2") as two:
        first, second = (
            subscribe(one, "work|global", "shared", "global"),
            subscribe(two, "work|global", "shared", "global"),
        )
        own = subscribe(one, "work", "shared"), subscribe(one, "work|2", "shared")
        assert names(broker) == ["work$$D", "work$c1$D"]
        send(one, "t", *(f"{number:02}" for number in range(20)))
        got = taken(one, first, 10) + taken(two, second, 10)
        assert sorted(got) == [f"{number:02}" for number in range(20)]
        assert sorted(taken(one, own[0], 10) + taken(one, own[1], 10)) == sorted(got)
        error = two.refusal(lambda: subscribe(two, "work|global", "shared", "global", selector="a = 1"))
        assert "already a subscriber" in (error.description or "")
        leave(one, first)
        error = two.refusal(lambda: unsubscribe(two, "work|global"))
        assert "active consumer" in (error.description or "")
        leave(two, second)
        unsubscribe(two, "work|global")
        assert names(broker) == ["work$c1$D"]


def test_volatile_subscriptions_end_with_their_last_link(broker: Broker) -> None:
    with Peer(broker, container="c1") as one, Peer(broker, container="c2") as two:
        plain = subscribe(one, "qpid-jms:receiver:ID:1:t", durable=False)
        shared = subscribe(one, "v|global-volatile1", "shared", "global", durable=False)
        again = subscribe(two, "v|global-volatile1", "shared", "global", durable=False)
        assert len(names(broker)) == 2
        assert "v$$ND" in names(broker)
        send(one, "t", "a", "b")
        assert taken(one, plain, 2) == ["a", "b"]
        leave(one, plain, closed=True)
        leave(one, shared, closed=True)
        assert names(broker) == ["v$$ND"]
        assert again.attached
    _until(lambda: names(broker) == [])


def _until(true: Any) -> None:
    for _ in range(2_000):
        if true():
            return
    raise AssertionError("it did not come true")


def test_a_crash_ends_what_is_volatile_and_keeps_what_is_durable(broker: Broker) -> None:
    peer = Peer(broker, container="c1")
    subscribe(peer, "keep", selector="length = 2")
    subscribe(peer, "drop", durable=False)
    queue, topic = dynamic(peer, "queue"), dynamic(peer, "topic")
    subscribe(peer, "inner", durable=False, topic=address(topic))
    send(peer, "t", "aa", "b")
    send(peer, address(queue), "x")
    kept = broker.call(_frozen)
    assert len(kept) == 5
    broker.restart()
    peer.socket.close()
    assert names(broker) == ["keep$c1$D"]
    assert sorted(paths(broker)) == ["other", "q", "t", "u"]
    with Peer(broker, container="c1") as peer:
        assert taken(peer, subscribe(peer, "keep", selector="length = 2"), 1) == ["aa"]


def _frozen(server: Any) -> list[str]:
    """Keep the connections from cleaning up, as if the process were killed."""
    host = server.hosts["contoso"]
    for connection in host.connections():
        connection._attachment._jms._nodes.clear()
        connection._attachment._jms._volatile.clear()
    return [*host.entities.temporary, *(each.path for each in host.entities.affine.values())]


def test_what_a_subscriber_cannot_have(broker: Broker) -> None:
    with Peer(broker) as peer:
        no_local = {Symbol("no-local"): Described(ULong(0x0000468C00000003), [])}
        error = peer.refusal(lambda: subscribe(peer, "n", **no_local))  # type: ignore[arg-type]
        assert "own connection" in (error.description or "")
        error = peer.refusal(lambda: subscribe(peer, "n", selector="a ="))
        assert "message selector is not valid" in (error.description or "")
        session = {Symbol("com.microsoft:session-filter"): None}
        error = peer.refusal(lambda: subscribe(peer, "n", **session))  # type: ignore[arg-type]
        assert "Sessions cannot be received" in (error.description or "")
        error = peer.refusal(lambda: subscribe(peer, "n" * 129))
        assert "128" in (error.description or "")
        subscribe(peer, "n" * 128)
        error = peer.refusal(lambda: subscribe(peer, "n", topic="none"))
        assert error.condition == "amqp:not-found"


def test_a_durable_consumer_of_a_named_subscription_receives(broker: Broker) -> None:
    broker.create_subscription("t", "named")
    with Peer(broker) as peer:
        link = subscribe(peer, "named", topic="t/Subscriptions/named")
        send(peer, "t", "a")
        delivery = peer.receive(link)
        assert not delivery.settled, "it is a receiver, not a browser, although JMS asks for copies"
        assert names(broker) == ["named"]


def test_the_administration_shows_them(broker: Broker) -> None:
    with Peer(broker, container="c1") as peer:
        subscribe(peer, "s", selector="n = 1")
        queue = dynamic(peer, "queue")
        status, _, found = peer.call("$management", "twinbus:get-subscription", {"topic": "t", "name": "s$c1$D"})
        assert status == 200
        wanted = {"client_id": "c1", "name": "s", "durable": True, "shared": False}
        assert found["subscription"]["affinity"] == wanted
        body = {"topic": "t", "name": "s$c1$D", "max_delivery_count": 7}
        assert peer.call("$management", "twinbus:update-subscription", body)[0] == 200
        _, _, found = peer.call("$management", "twinbus:get-subscription", {"topic": "t", "name": "s$c1$D"})
        assert found["subscription"]["affinity"] == wanted
        assert found["subscription"]["max_delivery_count"] == 7
        body = {"topic": "t", "name": "mine$c1$D"}
        assert peer.call("$management", "twinbus:create-subscription", body)[0] == 400
        _, _, rules = peer.call("$management", "twinbus:list-rules", {"topic": "t", "subscription": "s$c1$D"})
        assert "n = 1" in str(rules)
        shown = broker.call(_shown_rule)
        assert 'i:type="SqlFilter"' in shown[0]
        assert "<SqlExpression>n = 1<" in shown[0]
        assert shown[1] == "n = 1"
        _, _, listed = peer.call("$management", "twinbus:list-queues", {})
        assert address(queue) in [each["path"] for each in listed["queues"]]
        _, _, exported = peer.call("$management", "twinbus:export", {})
        assert "s$c1$D" not in str(exported)
        assert address(queue) not in str(exported)


def _shown_rule(server: Any) -> tuple[str, str]:
    """The rule of a subscription with a selector, in the administration API and in the console."""
    (rule,) = server.hosts["contoso"].entities.subscription("t", "s$c1$D").rules
    return rule_content(rule.name, rule.filter, rule.action, rule.created_ms), console_rule(rule)["condition"]


# --- temporary queues and topics ------------------------------------------------------------------------------------


def test_a_temporary_queue_lives_as_long_as_its_link(broker: Broker) -> None:
    with Peer(broker) as peer:
        made = dynamic(peer, "queue")
        assert address(made).startswith("temporary-queue-")
        receiver = peer.receiver(address(made), 5)
        send(peer, address(made), "reply")
        peer.send(made, text("own"))
        assert taken(peer, receiver, 2) == ["reply", "own"]
        leave(peer, made, closed=True)
        peer.wait(Detached, lambda event: event.link is receiver)
        assert sorted(paths(broker)) == ["other", "q", "t", "u"]


def test_temporary_nodes_end_with_their_connection(broker: Broker) -> None:
    with Peer(broker) as peer:
        topic = dynamic(peer, "topic")
        receiver = subscribe(peer, "x", durable=False, topic=address(topic))
        send(peer, address(topic), "a")
        assert taken(peer, receiver, 1) == ["a"]
        source = Source(None, fields=[None, UInt(0), Symbol("link-detach"), UInt(0), True, LIFETIME, *[None] * 5])
        own = peer.session.attach_receiver("own", source=source, target=Target("peer"))
        peer._answered(own)
        own.flow(5)
        assert own.source is not None
        send(peer, str(own.source.address), "mine")
        assert body_of(peer.receive(own)) == "mine"
        assert len(paths(broker)) == 6
    _until(lambda: len(paths(broker)) == 4)


def test_another_lifetime_is_refused(broker: Broker) -> None:
    with Peer(broker) as peer:
        no_links = {Symbol("lifetime-policy"): Described(ULong(44), [])}
        error = peer.refusal(lambda: dynamic(peer, "queue", no_links))
        assert "no other lifetime policy" in (error.description or "")
        assert dynamic(peer, "queue", None).attached


def test_temporary_nodes_and_volatile_subscriptions_are_bounded(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jms_attachment, "TEMPORARY_NODES_PER_CONNECTION_MAX", 2)
    monkeypatch.setattr(jms_attachment, "VOLATILE_SUBSCRIPTIONS_PER_CONNECTION_MAX", 2)
    with Peer(broker) as peer:
        made = [dynamic(peer, "queue"), dynamic(peer, "topic")]
        error = peer.refusal(lambda: dynamic(peer, "queue"))
        assert error.condition == "amqp:resource-limit-exceeded"
        leave(peer, made[0], closed=True)
        dynamic(peer, "queue")
        for name in "ab":
            subscribe(peer, name, durable=False)
        error = peer.refusal(lambda: subscribe(peer, "c", durable=False))
        assert error.condition == "amqp:resource-limit-exceeded"
        subscribe(peer, "c")


# --- delay and relay ------------------------------------------------------------------------------------------------


def relay(peer: Peer) -> Link:
    link = peer.session.attach_sender("relay", source=Source("peer"), target=Target(None))
    peer._answered(link)
    return link


def test_a_delivery_delay_schedules_the_message(broker: Broker) -> None:
    far = Timestamp(4_000_000_000_000)
    with Peer(broker) as peer:
        send(peer, "q", "later", message_annotations={Symbol("x-opt-delivery-time"): far})
        send(peer, "q", "now", message_annotations={Symbol("x-opt-delivery-time"): Timestamp(1)})
        assert taken(peer, peer.receiver("q", 5), 1) == ["now"]
        assert peer.quiet(Transfer, 0.05)

    def scheduled(server: Any) -> int:
        return int(server.hosts["contoso"].entities.queue("q").counts.scheduled)

    assert broker.call(scheduled) == 1
    with Broker(queues=["q"]) as standard, Peer(standard) as peer:
        send(peer, "q", "now", message_annotations={Symbol("x-opt-delivery-time"): far})
        assert taken(peer, peer.receiver("q", 5), 1) == ["now"]


# --- rights ---------------------------------------------------------------------------------------------------------


def test_rights() -> None:
    policies = [
        Policy("listen", ("Listen",), "l" * 44, "m" * 44),
        Policy("send", ("Send",), "s" * 44, "t" * 44),
    ]
    namespace = NamespaceConfig("contoso", sku="Premium", policies=policies)
    with Broker([namespace], queues={"contoso": ["q"]}, dev=False) as broker:
        broker.create_topic("t")
        root = broker.connection_string()
        key = dict(part.split("=", 1) for part in root.split(";") if "=" in part)
        manage = (key["SharedAccessKeyName"], key["SharedAccessKey"])

        def plain(user: str, password: str) -> Peer:
            return Peer(broker, sasl=("PLAIN", f"\0{user}\0{password}".encode()), container="c1")

        with plain(*manage) as peer:
            leave(peer, subscribe(peer, "known"))
            dynamic(peer, "queue")
        with plain("listen", "l" * 44) as peer:
            leave(peer, subscribe(peer, "known"))
            for attempt in (
                lambda: subscribe(peer, "new"),
                lambda: subscribe(peer, "new", durable=False),
                lambda: dynamic(peer, "queue"),
                lambda: unsubscribe(peer, "known"),
            ):
                assert peer.refusal(attempt).condition == "amqp:unauthorized-access"
            state = peer.send(relay(peer), text("x", to="q"))
            assert isinstance(state, Rejected)
            assert state.error is not None
            assert state.error.condition == "amqp:unauthorized-access"
        with plain("send", "s" * 44) as peer:
            assert isinstance(peer.send(relay(peer), text("x", to="q")), Accepted)
            assert peer.refusal(lambda: subscribe(peer, "known")).condition == "amqp:unauthorized-access"
