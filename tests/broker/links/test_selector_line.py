"""Receivers with a message selector over raw AMQP, on a Premium namespace."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.broker.links.test_browser import browsed
from tests.broker.peer import Peer, body_of, decoded, text
from twinbus.amqp.events import Transfer
from twinbus.amqp.link import Link
from twinbus.amqp.states import state_modified
from twinbus.amqp.terminus import Source, Target
from twinbus.amqp.types import Described, Symbol, UInt, ULong
from twinbus.broker.configuration.config import NamespaceConfig
from twinbus.broker.links import dispatcher
from twinbus.entities.settings import QueueSettings
from twinbus.testing import Broker

SELECTOR = Symbol("jms-selector")
DESCRIPTOR = ULong(77567109365764)


@pytest.fixture
def broker() -> Iterator[Broker]:
    namespaces = [NamespaceConfig("contoso", sku="Premium")]
    queues = ["q", "other", QueueSettings(path="s", requires_session=True)]
    with Broker(namespaces, queues={"contoso": queues}) as running:
        running.create_topic("t")
        running.create_subscription("t", "sub")
        yield running


def filters(selector: Any) -> dict[Any, Any]:
    return {SELECTOR: Described(DESCRIPTOR, selector)}


def attach(
    peer: Peer, address: str, selector: Any, credit: int = 0, *, snd: int = 0, mode: str | None = None, **more: Any
) -> Link:
    symbol = None if mode is None else Symbol(mode)
    asked = {**filters(selector), **more}
    fields = [address, UInt(0), Symbol("link-detach"), UInt(0), False, None, symbol, asked, None, None, None]
    link = peer.session.attach_receiver(
        str(uuid.uuid4()),
        source=Source(address, asked, fields=fields),
        target=Target("peer"),
        snd_settle_mode=snd,
        rcv_settle_mode=0 if snd else 1,
    )
    peer._answered(link)
    if credit:
        link.flow(credit)
        peer.flush()
    return link


def put(peer: Peer, path: str, *bodies: str, **fields: Any) -> None:
    link = peer.sender(path)
    for body in bodies:
        peer.send(link, text(body, application_properties={"body": body, "length": len(body)}, **fields))
    link.detach()
    peer.flush()


def bodies(peer: Peer, link: Link, count: int) -> list[str]:
    found = []
    for _ in range(count):
        delivery = peer.receive(link)
        found.append(body_of(delivery))
        if not delivery.settled:
            peer.settle(delivery)
    return found


def test_only_what_matches_and_the_answer_says_so(broker: Broker) -> None:
    with Peer(broker) as peer:
        put(peer, "q", "a", "bb", "c", "dd")
        link = attach(peer, "q", "length = 2", 10)
        assert link.source is not None
        assert link.source.filter == filters("length = 2")
        assert bodies(peer, link, 2) == ["bb", "dd"]
        put(peer, "q", "e", "ff")
        assert bodies(peer, link, 1) == ["ff"]
        plain = peer.receiver("q", 10)
        assert bodies(peer, plain, 3) == ["a", "c", "e"]
        assert peer.quiet(Transfer)


def test_receivers_with_different_selectors_do_not_wait_for_each_other(broker: Broker) -> None:
    with Peer(broker) as peer:
        none = attach(peer, "q", "length = 100", 10)
        long = attach(peer, "q", "length > 1", 10)
        plain = peer.receiver("other", 10)
        put(peer, "q", "a", "bb")
        put(peer, "other", "o")
        assert bodies(peer, long, 1) == ["bb"]
        assert bodies(peer, plain, 1) == ["o"]
        late = peer.receiver("q", 10)
        assert bodies(peer, late, 1) == ["a"]
        none.detach()
        peer.flush()
        again = attach(peer, "q", "body LIKE 'z%'", 10)
        put(peer, "q", "zz")
        assert sorted([*bodies(peer, again, 0), body_of(peer.wait(Transfer))]) == ["zz"]


def test_receivers_with_the_same_selector_share_the_messages(broker: Broker) -> None:
    with Peer(broker) as peer:
        links = [attach(peer, "q", "length = 2", 2) for _ in range(2)]
        put(peer, "q", "aa", "b", "cc", "dd", "ee")
        got = [peer.receive(link) for link in links for _ in range(2)]
        assert sorted(map(body_of, got)) == ["aa", "cc", "dd", "ee"]
        lines = broker.call(lambda server: _lines(server))
        assert lines == 1
        for link in links:
            link.detach()
        peer.flush()
        put(peer, "other", "wait")
        assert broker.call(lambda server: _lines(server)) == 0


def _lines(server: Any) -> int:
    host = server.hosts["contoso"]
    return len(host.dispatcher(host.entities.queue("q"))._selector_lines or ())


def test_abandoned_messages_come_again_and_locks_hold(broker: Broker) -> None:
    with Peer(broker) as peer:
        put(peer, "q", "a", "bb", "cc")
        link = attach(peer, "q", "length = 2", 1)
        first = peer.receive(link)
        peer.settle(first, state_modified(True, False, None))
        link.flow(1)
        again = peer.receive(link)
        assert body_of(again) == "bb"
        assert decoded(again).delivery_count == 1
        link.detach()
        peer.flush()
        other = attach(peer, "q", "length = 2", 5)
        assert bodies(peer, other, 1) == ["cc"], "the lock of bb holds after an orderly detach"
        assert peer.quiet(Transfer)
    with Peer(broker) as peer:
        # The connection above broke, so its messages returned.
        assert bodies(peer, attach(peer, "q", "length = 2", 5), 0) == []
        put(peer, "q", "dd")


def test_a_broken_connection_returns_what_it_held(broker: Broker) -> None:
    with Peer(broker) as peer:
        put(peer, "q", "a", "bb")
        assert body_of(peer.receive(attach(peer, "q", "length = 2", 5))) == "bb"
    with Peer(broker) as peer:
        delivery = peer.receive(attach(peer, "q", "length = 2", 5))
        assert (body_of(delivery), decoded(delivery).delivery_count) == ("bb", 1)


def test_drain_ends_after_every_message_was_looked_at(broker: Broker) -> None:
    with Peer(broker) as peer:
        put(peer, "q", *(f"{number:02}" for number in range(60)), "end")
        link = attach(peer, "q", "length = 3")
        link.flow(10, drain=True)
        while link.credit:
            assert peer.read(10)
        assert body_of(peer.receive(link)) == "end"
        link.flow(10, drain=True)
        while link.credit:
            assert peer.read(10)
        assert peer.quiet(Transfer, 0.05)


def test_receive_and_delete(broker: Broker) -> None:
    with Peer(broker) as peer:
        put(peer, "q", "a", "bb", "c")
        assert bodies(peer, attach(peer, "q", "length = 2", 5, snd=1), 1) == ["bb"]
        assert bodies(peer, peer.receiver("q", 5), 2) == ["a", "c"]


def test_browsers_subscriptions_and_dead_letters(broker: Broker) -> None:
    with Peer(broker) as peer:
        put(peer, "q", "a", "bb", "c", "dd")
        assert browsed(peer, attach(peer, "q", "length = 2", snd=1, mode="copy")) == ["bb", "dd"]
        put(peer, "t", "x", "yy")
        assert bodies(peer, attach(peer, "t/Subscriptions/sub", "length = 2", 5), 1) == ["yy"]
        for _ in range(4):
            broker.call(_dead_letter_all)
        dead = attach(peer, "q/$DeadLetterQueue", "body = 'c'", 5)
        assert bodies(peer, dead, 1) == ["c"]


def _dead_letter_all(server: Any) -> None:
    host = server.hosts["contoso"]
    queue = host.entities.queue("q")
    for message in queue.acquire(10, host.clock.now_ms(), host.commits.facts):
        queue.dead_letter(message.token, host.clock.now_ms(), host.commits.facts, "r", None)
    host.commits.request()


def test_headers_as_clients_show_them(broker: Broker) -> None:
    an_id = uuid.uuid4()
    wanted: dict[str, tuple[dict[str, Any], str]] = {
        "a": ({"message_id": "ID:1"}, "JMSMessageID = 'ID:1'"),
        "b": ({"message_id": "plain"}, "JMSMessageID = 'ID:AMQP_NO_PREFIX:plain'"),
        "c": ({"message_id": an_id}, f"JMSMessageID = 'ID:AMQP_UUID:{an_id}'"),
        "d": ({"correlation_id": "order 7"}, "JMSCorrelationID = 'order 7'"),
        "e": ({"subject": "kind"}, "JMSType = 'kind'"),
        "f": ({"reply_to": "answers"}, "JMSReplyTo = 'answers'"),
        "g": ({"priority": 9}, "JMSPriority > 4"),
        "h": ({"durable": True}, "JMSDeliveryMode = 'PERSISTENT'"),
        "i": ({"group_id": "g1", "group_sequence": UInt(3)}, "JMSXGroupID = 'g1' AND JMSXGroupSeq = 3"),
        "j": ({"creation_time": 1_000}, "JMSTimestamp BETWEEN 999 AND 1001"),
    }
    with Peer(broker) as peer:
        for body, (fields, _) in wanted.items():
            put(peer, "q", body, **fields)
        for body, (_, selector) in wanted.items():
            assert bodies(peer, attach(peer, "q", selector, 5), 1) == [body], selector
        assert peer.quiet(Transfer, 0.05)


@pytest.mark.parametrize(
    ("selector", "words"),
    [
        ("length >", "not valid at its end"),
        ("JMSExpiration = 1", "cannot use JMSExpiration"),
        (7, "not a string"),
        ("", "is empty"),
    ],
)
def test_a_bad_selector_refuses_the_link_with_the_reason(broker: Broker, selector: Any, words: str) -> None:
    with Peer(broker) as peer:
        error = peer.refusal(lambda: attach(peer, "q", selector))
        assert error.condition == "com.microsoft:argument-error"
        assert words in (error.description or "")


def test_a_session_receiver_has_no_selector(broker: Broker) -> None:
    with Peer(broker) as peer:
        session = {Symbol("com.microsoft:session-filter"): "one"}
        error = peer.refusal(lambda: attach(peer, "s", "a = 1", **session))
        assert "cannot have a message selector" in (error.description or "")
        error = peer.refusal(lambda: attach(peer, "s", "a = 1"))
        assert "requires sessions" in (error.description or "")


def test_the_number_of_selectors_is_bounded(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "SELECTORS_PER_ENTITY_MAX", 2)
    with Peer(broker) as peer:
        for number in range(2):
            attach(peer, "q", f"a = {number}")
        attach(peer, "q", "a = 1")
        error = peer.refusal(lambda: attach(peer, "q", "a = 2"))
        assert error.condition == "amqp:resource-limit-exceeded"
        assert "2 different" in (error.description or "")
        attach(peer, "other", "a = 2")


def test_a_deleted_queue_ends_its_receivers(broker: Broker) -> None:
    with Peer(broker) as peer:
        link = attach(peer, "q", "a = 1", 5)
        broker.delete_queue("q")
        assert _gone(peer, link) == "amqp:not-found"
        broker.create_queue("q")
        put(peer, "q", "a")
        assert bodies(peer, attach(peer, "q", "length = 1", 5), 1) == ["a"]


def _gone(peer: Peer, link: Link) -> str:
    from twinbus.amqp.events import Detached

    error = peer.wait(Detached, lambda event: event.link is link).error
    assert error is not None
    return str(error.condition)


def test_a_deep_queue_is_looked_through_once_and_in_slices(broker: Broker) -> None:
    """The work of a selector is counted in messages looked at: it does not grow with those that do not match."""
    looked: list[int] = []

    def watch(server: Any) -> None:
        views = server.hosts["contoso"].views
        real: Callable[..., Any] = type(views).of_stored
        server.hosts["contoso"].views = _Watched(views, looked, real)

    with Peer(broker) as peer:
        put(peer, "q", *("b" * 3 for _ in range(200)))
        broker.call(watch)
        link = attach(peer, "q", "length = 1", 5)
        for _ in range(5):
            put(peer, "q", "x")
            assert bodies(peer, link, 1) == ["x"]
            link.flow(5)
        assert len(looked) == 205


class _Watched:
    def __init__(self, views: Any, looked: list[int], real: Callable[..., Any]) -> None:
        self._views, self._looked, self._real = views, looked, real

    def of_stored(self, message: Any) -> Any:
        self._looked.append(message.seq)
        return self._real(self._views, message)
