"""The REST data plane over real HTTP: send, receive, settle, and every error."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from tests.broker.peer import Peer, body_of, decoded, text
from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.types import Symbol
from twinbus.auth.policies import Policy, Right
from twinbus.auth.sas import sign
from twinbus.broker.configuration.config import NamespaceConfig
from twinbus.entities.settings import QueueSettings
from twinbus.limits import REST_VALUE_BYTES_MAX, REST_VALUES_MAX
from twinbus.testing import Broker

KEY = "bm90LWEtcmVhbC1rZXk="


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def properties(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.headers["BrokerProperties"])
        return found


def ask(broker: Broker, method: str, path: str, body: bytes | str = b"", **headers: str) -> Answer:
    endpoint = broker.endpoint()
    connection = HTTPConnection(endpoint.host, endpoint.port, timeout=15)
    try:
        connection.request(method, path, body or None, {name.replace("_", "-"): each for name, each in headers.items()})
        response = connection.getresponse()
        return Answer(response.status, dict(response.getheaders()), response.read())
    finally:
        connection.close()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    queues = [QueueSettings(path=path) for path in ("q", "a/b", "wait", "locks", "batch", "empty")]
    queues += [QueueSettings(path="s", requires_session=True), QueueSettings(path="small", max_megabytes=1)]
    queues.append(QueueSettings(path="large", max_message_bytes=4 * 1024 * 1024))
    with Broker([NamespaceConfig("contoso", queues=queues)]) as broker:
        yield broker


def test_sent_over_http_received_over_amqp(broker: Broker) -> None:
    properties = json.dumps({"MessageId": "m1", "Label": "l", "TimeToLive": 90, "SessionId": "s", "PartitionKey": "s"})
    answer = ask(
        broker,
        "POST",
        "/q/messages",
        b"hello",
        BrokerProperties=properties,
        Content_Type="text/plain",
        Priority='"High"',
        Count="5",
        Plain="as it is",
    )
    assert answer.status == 201
    with Peer(broker) as peer:
        message = decoded(peer.receive(peer.receiver("q", 1, settled=True)))
    assert (message.message_id, message.subject, message.group_id, message.ttl) == ("m1", "l", "s", 90_000)
    assert message.data == [b"hello"]
    assert message.content_type == "text/plain"
    own = message.application_properties or {}
    assert (own["Priority"], own["Count"], own["Plain"]) == ("High", 5, "as it is")


def test_sent_over_amqp_received_over_http(broker: Broker) -> None:
    with Peer(broker) as peer:
        sent = text("body", message_id="m2", subject="l", content_type=Symbol("text/x"))
        sent.application_properties = {"kind": "order", "n": 7}
        peer.send(peer.sender("q"), sent)
    answer = ask(broker, "DELETE", "/q/messages/head?timeout=5")
    assert (answer.status, answer.body) == (200, b"body")
    assert answer.headers["Content-Type"] == "text/x"
    assert (answer.headers["kind"], answer.headers["n"]) == ('"order"', "7")
    shown = answer.properties
    assert (shown["MessageId"], shown["Label"], shown["DeliveryCount"], shown["State"]) == ("m2", "l", 1, "Active")
    assert shown["EnqueuedTimeUtc"].endswith("GMT")
    assert "LockToken" not in shown


def test_lock_renew_unlock_complete(broker: Broker) -> None:
    assert ask(broker, "POST", "/locks/messages", "x").status == 201
    locked = ask(broker, "POST", "/locks/messages/head?timeout=5")
    assert (locked.status, locked.body) == (201, b"x")
    place = urlsplit(locked.headers["Location"]).path
    assert place.endswith(locked.properties["LockToken"])
    assert ask(broker, "POST", "/locks/messages/head?timeout=0").status == 204
    assert ask(broker, "POST", place).status == 200
    assert ask(broker, "PUT", place).status == 200
    assert ask(broker, "DELETE", place).status == 404
    again = ask(broker, "POST", "/locks/messages/head?timeout=5")
    assert again.properties["DeliveryCount"] == 2
    assert ask(broker, "DELETE", urlsplit(again.headers["Location"]).path).status == 200
    assert ask(broker, "DELETE", "/locks/messages/head?timeout=0").status == 204


def test_waiting_request_gets_the_message(broker: Broker) -> None:
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(ask(broker, "DELETE", "/wait/messages/head?timeout=10")))
    thread.start()
    with Peer(broker) as peer:
        link = peer.sender("wait")
        while not broker.call(lambda server: len(server.hosts["contoso"].dispatcher(_queue(server, "wait"))._line)):
            time.sleep(0.005)
        peer.send(link, text("late"))
    thread.join()
    assert answers[0].body == b"late"


def _queue(server: Any, path: str) -> Any:
    return server.hosts["contoso"].entities.queue(path)


def test_request_that_gave_up_takes_nothing(broker: Broker) -> None:
    assert ask(broker, "POST", "/empty/messages/head?timeout=0.05").status == 204
    with Peer(broker) as peer:
        peer.send(peer.sender("empty"), text("for another"))
        assert body_of(peer.receive(peer.receiver("empty", 1))) == "for another"


def test_batch(broker: Broker) -> None:
    batch = [
        {"Body": "one", "BrokerProperties": {"Label": "a"}, "UserProperties": {"n": 1}},
        {"Body": "dHdv", "IsBodyBase64Encoded": True},
    ]
    content = "application/vnd.microsoft.servicebus.json"
    assert ask(broker, "POST", "/batch/messages", json.dumps(batch), Content_Type=content).status == 201
    first = ask(broker, "DELETE", "/batch/messages/head")
    assert (first.body, first.properties["Label"], first.headers["n"]) == (b"one", "a", "1")
    assert ask(broker, "DELETE", "/batch/messages/head").body == b"two"
    huge = '[{"Body": "x", "UserProperties": {"n": 1180591620717411303424}}]'
    for bad in (
        "[" * 500_000,
        huge,
        "rubbish",
        "[]",
        "{}",
        "[5]",
        '[{"Body": 5}]',
        '[{"Body": "?", "IsBodyBase64Encoded": true}]',
    ):
        assert ask(broker, "POST", "/batch/messages", bad, Content_Type=content).status == 400, bad


def test_headers_that_amqp_has_no_number_for_are_texts(broker: Broker) -> None:
    broker.create_queue("numbers")
    assert ask(broker, "POST", "/numbers/messages", "x", n=str(2**70), deep="[" * 5_000, nan="NaN").status == 201
    with Peer(broker) as peer:
        found = decoded(peer.receive(peer.receiver("numbers", 1, settled=True))).application_properties or {}
    assert (found["n"], found["deep"]) == (str(2**70), "[" * 5_000)


def test_entity_with_slashes(broker: Broker) -> None:
    assert ask(broker, "POST", "/a/b/messages", "x").status == 201
    assert ask(broker, "DELETE", "/a%2Fb/messages/head").body == b"x"


def _scheduled(at: str) -> str:
    return json.dumps({"ScheduledEnqueueTimeUtc": at})


def test_scheduled(broker: Broker) -> None:
    due = _scheduled("Sat, 01 Jan 2050 00:00:00 GMT")
    assert ask(broker, "POST", "/q/messages", "later", BrokerProperties=due).status == 201
    assert broker.call(lambda server: _queue(server, "q").counts.scheduled) == 1


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("POST", "/missing/messages", {}, 410),
        ("DELETE", "/missing/messages/head", {}, 410),
        ("POST", "/q/messages", {"BrokerProperties": "rubbish"}, 400),
        ("POST", "/q/messages", {"BrokerProperties": '{"Lable": "x"}'}, 400),
        ("POST", "/q/messages", {"BrokerProperties": '{"TimeToLive": "x"}'}, 400),
        ("POST", "/q/messages", {"BrokerProperties": '{"ScheduledEnqueueTimeUtc": "x"}'}, 400),
        ("POST", "/q/messages", {"BrokerProperties": _scheduled("Tue, 15 Nov 99999999999999999999 08:12:31 GMT")}, 400),
        ("POST", "/q/messages", {"BrokerProperties": _scheduled("Tue, 15 Nov 1994 08:12:31 +999999999999999")}, 400),
        ("POST", "/q/messages", {"BrokerProperties": "[" * 5_000}, 400),
        ("POST", "/s/messages", {}, 400),
        ("POST", "/s/messages/head?timeout=0", {}, 400),
        ("POST", "/q/messages/head?timeout=x", {}, 400),
        ("POST", "/q/messages/head?timeout=121", {}, 400),
        ("DELETE", "/q/messages/5/00000000-0000-0000-0000-000000000001", {}, 404),
    ],
)
def test_refusals(broker: Broker, method: str, path: str, headers: dict[str, str], status: int) -> None:
    answer = ask(broker, method, path, **headers)
    assert answer.status == status
    assert b"TrackingId:" in answer.body


def test_sizes(broker: Broker) -> None:
    assert ask(broker, "POST", "/q/messages", b"x" * 300_000).status == 403
    statuses = [ask(broker, "POST", "/small/messages", b"x" * 250_000).status for _ in range(5)]
    assert statuses[0] == 201
    assert statuses[-1] == 403


def test_rights() -> None:
    policies = [
        Policy("sender", frozenset({Right.SEND}), KEY),
        Policy("listener", frozenset({Right.LISTEN}), KEY),
    ]
    config = NamespaceConfig("contoso", queues=[QueueSettings(path="q")], policies=policies)
    with Broker([config], dev=False) as broker:
        expiry = int(time.time()) + 300

        def token(name: str, key: str = KEY) -> str:
            return sign("http://localhost/q", name, key, expiry)

        assert ask(broker, "POST", "/q/messages", "x").status == 401
        assert ask(broker, "POST", "/q/messages", "x", Authorization=token("sender", "wrong")).status == 401
        assert ask(broker, "POST", "/q/messages", "x", Authorization=token("listener")).status == 401
        assert ask(broker, "POST", "/q/messages", "x", Authorization=token("sender")).status == 201
        assert ask(broker, "DELETE", "/q/messages/head?timeout=0", Authorization=token("sender")).status == 401
        assert ask(broker, "DELETE", "/q/messages/head", Authorization=token("listener")).status == 200


def test_a_value_too_large_for_json_is_answered_encoded(broker: Broker) -> None:
    small = AmqpMessage.of_value([[1]] * 100)
    many = AmqpMessage.of_value([[]] * (REST_VALUES_MAX + 1))
    long = AmqpMessage.of_value(["\0" * REST_VALUE_BYTES_MAX])
    text_value = AmqpMessage.of_value("x" * (REST_VALUE_BYTES_MAX + 1))
    with Peer(broker) as peer:
        sender = peer.sender("large")
        for message in (small, many, long, text_value):
            peer.send(sender, message)
    found = [ask(broker, "DELETE", "/large/messages/head?timeout=5") for _ in range(4)]
    assert [answer.status for answer in found] == [200] * 4
    assert json.loads(found[0].body) == [[1]] * 100
    assert [found[1].body, found[2].body] == [many.encode(), long.encode()]
    assert found[3].body == text_value.value.encode()
    encoded = ["Twinbus-Unreadable" in answer.headers for answer in found]
    assert encoded == [False, True, True, False]
