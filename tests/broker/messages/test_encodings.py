"""Every legal encoding of a message gives the same message in everything that reads one."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.amqp.encodings import Writer, writers
from tests.broker.http.console.window import Window
from tests.broker.peer import Peer, decoded
from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.reader import read_fields
from twinbus.amqp.states import Accepted, AmqpError, state_rejected
from twinbus.amqp.types import Int, Symbol, UByte, UInt
from twinbus.broker.messages.intake import Intake
from twinbus.broker.messages.message_view import TopicMessageView
from twinbus.broker.messages.stored import render
from twinbus.entities.filters import CorrelationFilter
from twinbus.entities.message import QueuedMessage
from twinbus.testing import Broker

SUBSCRIPTIONS: dict[str, tuple[Any, str | None]] = {
    "sql": ("color = 'red' AND sys.Label = 'x'", "SET changed = 'yes'; SET sys.To = 'there'"),
    "correlation": (CorrelationFilter(label="x", properties={"color": "red"}), None),
    "all": ("1 = 1", None),
}


class Case(NamedTuple):
    """A message, and one way to encode it."""

    subject: str
    properties: dict[str, Any]
    body: bytes
    payload: bytes


@st.composite
def cases(draw: st.DrawFn) -> Case:
    write: Writer = draw(writers())
    subject = draw(st.sampled_from(["x", "y", "x" * 300]))
    properties: dict[str, Any] = {"color": draw(st.sampled_from(["red", "blue"])), "n": draw(st.integers(-200, 200))}
    properties |= {f"p{number}": "v" * draw(st.integers(0, 40)) for number in range(draw(st.integers(0, 8)))}
    body = draw(st.binary(max_size=300))
    fields = ["id", None, None, subject, None, "corr", Symbol("text/plain")]
    fields += [None] * draw(st.integers(0, 6))
    parts = [
        write.section(0x70, write.value([True, UByte(3), None, None, UInt(0)][: draw(st.integers(0, 5))])),
        write.section(0x71, write.value({Symbol("x-d"): 1})),
        write.section(0x72, write.value({Symbol("x-own"): "kept"})),
        write.section(0x73, write.value(fields)),
        write.section(0x74, write.value(properties)),
        write.section(0x75, write.value(body)),
        write.section(0x78, write.value({Symbol("x-f"): True})),
    ]
    wanted = draw(st.sets(st.sampled_from([0, 1, 2, 6])))
    payload = b"".join(part for number, part in enumerate(parts) if number in (3, 4, 5) or number in wanted)
    return Case(subject, properties, body, payload)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(queues=["q", "forwarded"], sync=False) as running:
        running.create_topic("t")
        for name, (filter, action) in SUBSCRIPTIONS.items():
            running.create_subscription("t", name, filter="1 = 0")
            running.create_rule("t", name, "own", filter, action)
        running.create_subscription("t", "forward", forward_to="forwarded")
        yield running


@pytest.fixture(scope="module")
def peer(broker: Broker) -> Iterator[Peer]:
    with Peer(broker) as opened:
        yield opened


@pytest.fixture(scope="module")
def links(peer: Peer) -> dict[str, Any]:
    found = {f"t/subscriptions/{name}": peer.receiver(f"t/subscriptions/{name}", 0) for name in SUBSCRIPTIONS}
    found |= {name: peer.receiver(name, 0) for name in ("q", "q/$DeadLetterQueue", "forwarded")}
    found["to q"], found["to t"] = peer.sender("q"), peer.sender("t")
    return found


def clean(broker: Broker) -> None:
    """Remove what a failed example has left."""

    def work(server: Any) -> None:
        host = server.hosts["contoso"]
        now_ms = host.clock.now_ms()
        paths = ["q", "q/$DeadLetterQueue", "forwarded", *(f"t/subscriptions/{name}" for name in SUBSCRIPTIONS)]
        for path in paths:
            host.entities.queue(path).delete_batch(500, now_ms + 1, now_ms, host.commits.facts)

    broker.call(work)


def same(message: AmqpMessage, case: Case, **changed: Any) -> None:
    assert (message.message_id, message.subject, message.correlation_id) == ("id", case.subject, "corr")
    assert message.content_type == "text/plain"
    assert message.application_properties == {**case.properties, **changed}
    assert message.data == [case.body]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases())
def test_every_reader_sees_the_same_message(broker: Broker, peer: Peer, links: dict[str, Any], case: Case) -> None:
    def take(name: str, state: bytes | None = None) -> AmqpMessage:
        links[name].flow(1)
        delivery = peer.receive(links[name])
        assert (peer.settle(delivery, state) if state is not None else peer.settle(delivery)) is not None
        return decoded(delivery)

    clean(broker)

    # Filters, an action and forwarding.
    assert isinstance(peer.send(links["to t"], case.payload), Accepted)
    matches = case.subject == "x" and case.properties["color"] == "red"
    same(take("t/subscriptions/all"), case)
    if matches:
        acted = take("t/subscriptions/sql")
        same(acted, case, changed="yes")
        assert acted.to == "there"
        same(take("t/subscriptions/correlation"), case)
    same(take("forwarded"), case)

    # Peek, our client and Spark's reader, the console.
    assert isinstance(peer.send(links["to q"], case.payload), Accepted)
    arguments = {"from-sequence-number": 0, "message-count": Int(1)}
    found = peer.call("q/$management", "com.microsoft:peek-message", arguments)[2]["messages"][0]["message"]
    same(AmqpMessage.decode(found), case)
    for payload in (found, case.payload):
        fields = read_fields(payload)
        assert (fields.message_id, fields.subject, fields.body) == ("id", case.subject, case.body)
        assert fields.properties == case.properties
        as_json = read_fields(payload, as_json=True).properties or {}
        assert {name: json.loads(value) for name, value in as_json.items()} == case.properties
    window = Window(broker)
    window.greet()
    look = {"namespace": "contoso", "entity": "q"}
    [row] = window.get("messages", **look).json["rows"]
    shown = window.get("message", **look, seq=row["seq"]).json
    assert {name: text for name, _, text in shown["application"]} == {
        name: str(value) for name, value in case.properties.items()
    }
    assert base64.b64decode(shown["body"]["base64"]) == case.body
    assert row["subject"] == case.subject

    # Dead-lettering with a reason, and REST from there.
    error = AmqpError("com.microsoft:dead-letter", "", {"DeadLetterReason": "bad", "extra": 1})
    take("q", state_rejected(error))
    dead = take("q/$DeadLetterQueue", b"\x00\x53\x26\x45")
    same(dead, case, DeadLetterReason="bad", extra=1)
    endpoint = broker.endpoint()
    http = HTTPConnection(endpoint.host, endpoint.port, timeout=15)
    http.request("DELETE", "/q/$DeadLetterQueue/messages/head?timeout=5")
    answer = http.getresponse()
    assert answer.status == 200
    assert answer.read() == case.body
    assert json.loads(answer.headers["color"]) == case.properties["color"]
    assert json.loads(answer.headers["BrokerProperties"])["Label"] == case.subject
    http.close()


@given(case=cases(), changes=st.dictionaries(st.sampled_from(["color", "new"]), st.text(max_size=5), min_size=1))
def test_what_lies_in_an_old_store_is_read(case: Case, changes: dict[str, str | bytes]) -> None:
    """Stored messages keep the sender's bytes, so readers of the store meet every encoding, too."""
    new = Intake(lambda: "made").message(case.payload, 0, 2**40)
    message = QueuedMessage(1, 1, len(case.payload), 0, None, 0, 0, None, dict(changes))
    same(AmqpMessage.decode(render(new.body, message)), case, **changes)
    view = TopicMessageView(lambda _: new.body, None, new.size, message)
    assert view.system("Label") == case.subject
    assert view.properties.folded["n"] == case.properties["n"]
