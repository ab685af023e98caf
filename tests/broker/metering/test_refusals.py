"""Clients that are refused for their key, token or rights: counted, logged once, kept for the console, no secret."""

from __future__ import annotations

import logging
import time
from http.client import HTTPConnection

import pytest

from tests.broker.http.console.window import Window
from tests.broker.metering.test_metrics import page
from tests.broker.peer import Peer
from twinbus.auth.policies import Policy, Right
from twinbus.auth.sas import sign
from twinbus.broker.configuration.config import NamespaceConfig
from twinbus.broker.metering.refusals import Refusals
from twinbus.clock import SteppedClock
from twinbus.entities.settings import QueueSettings
from twinbus.limits import (
    REFUSAL_LOG_INTERVAL_MS,
    REFUSAL_NAME_CHARS_MAX,
    REFUSALS_KEPT,
    REFUSALS_LOGGED_MAX,
)
from twinbus.testing import Broker

ROOT = Policy("RootManageSharedAccessKey", frozenset(Right), "root-key")
SENDER = Policy("sender", frozenset({Right.SEND}), "secret-of-the-sender")


@pytest.fixture
def refusals() -> tuple[Refusals, SteppedClock]:
    clock = SteppedClock()
    return Refusals("contoso", clock), clock


def test_the_first_is_logged_at_once_and_the_rest_summed(
    refusals: tuple[Refusals, SteppedClock], caplog: pytest.LogCaptureFixture
) -> None:
    found, clock = refusals
    for _ in range(100):
        found.add("InvalidSignature", "10.0.0.1", policy="app", entity="orders", tracking_id="t1")
    assert [record.getMessage() for record in caplog.records] == [
        "contoso refused 10.0.0.1: InvalidSignature (policy app, entity orders, tracking id t1)"
    ]
    clock.step(seconds=REFUSAL_LOG_INTERVAL_MS / 1000)
    found.add("InvalidSignature", "10.0.0.1", policy="app", entity="orders", tracking_id="t2")
    assert caplog.records[-1].getMessage().endswith("tracking id t2, 99 more since the last line)")
    assert caplog.records[-1].fields["left_out"] == 99
    assert found.counts == {"InvalidSignature": 101}


def test_another_address_policy_or_reason_has_its_own_line(
    refusals: tuple[Refusals, SteppedClock], caplog: pytest.LogCaptureFixture
) -> None:
    found, _ = refusals
    for reason, address, policy in [
        ("a", "1", "x"),
        ("b", "1", "x"),
        ("a", "2", "x"),
        ("a", "1", "y"),
        ("a", "1", "x"),
    ]:
        found.add(reason, address, policy=policy)
    assert len(caplog.records) == 4


def test_what_is_remembered_is_bounded(refusals: tuple[Refusals, SteppedClock]) -> None:
    found, _ = refusals
    long = "x" * (REFUSAL_NAME_CHARS_MAX + 1)
    for number in range(REFUSALS_LOGGED_MAX + 10):
        found.add("MissingRight", str(number), policy=long, entity=long)
    assert len(found._logged) == REFUSALS_LOGGED_MAX
    assert len(found.latest) == REFUSALS_KEPT
    assert found.latest[-1].policy == "x" * REFUSAL_NAME_CHARS_MAX + "..."


@pytest.fixture
def broker() -> Broker:
    namespace = NamespaceConfig("contoso", policies=[ROOT, SENDER], queues=[QueueSettings(path="orders")])
    return Broker([namespace], dev=False, sync=False)


def kinds(broker: Broker) -> dict[str, int]:
    return broker.call(lambda server: dict(server.hosts["contoso"].refusals.counts))


def test_every_door_tells_who_was_refused_and_why(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    with broker:
        # A wrong key at login.
        with pytest.raises(AssertionError):
            Peer(broker, sasl=("PLAIN", b"\0sender\0wrong-key-given"))
        assert kinds(broker) == {"InvalidSignature": 1}
        # A right that its policy lacks.
        with Peer(broker, sasl=("PLAIN", b"\0sender\0secret-of-the-sender")) as peer:
            refused = peer.refusal(lambda: peer.receiver("orders", 1))
        assert kinds(broker) == {"InvalidSignature": 1, "MissingRight": 1}
        latest = broker.call(lambda server: server.hosts["contoso"].refusals.latest[-1])
        assert (latest.address, latest.policy, latest.entity) == ("127.0.0.1", "sender", "orders")
        assert latest.tracking_id in str(refused.description)
        # HTTP: no token, an expired one, a wrong one; the administration and the data plane.
        old = sign("sb://contoso/orders", "sender", "secret-of-the-sender", int(time.time()) - 3600)
        wrong = sign("sb://contoso/orders", "sender", "wrong-key-given", int(time.time()) + 3600)
        for headers in ({}, {"Authorization": old}, {"Authorization": wrong}):
            for method, path in (("GET", "/orders?api-version=2021-05"), ("DELETE", "/orders/messages/head")):
                http = HTTPConnection("127.0.0.1", broker.endpoint().port)
                http.request(method, path, headers=headers)
                answer = http.getresponse()
                assert answer.status == 401
                assert answer.headers["Server"] == "Twinbus"
                http.close()
        assert kinds(broker) == {"InvalidSignature": 3, "MissingRight": 1, "MissingToken": 2, "ExpiredToken": 2}
        # The console.
        window = Window(broker)
        assert window.post("login", policy="sender", key="wrong-key-given").status == 401
        assert kinds(broker)["InvalidSignature"] == 4
        found = page(broker)
        assert found['twinbus_refusals_total{namespace="contoso",reason="InvalidSignature"}'] == 4
        window = Window(broker)
        window.login("RootManageSharedAccessKey", "root-key")
        shown = window.get("connections").json["refused"]
        assert [each["reason"] for each in shown[:2]] == ["InvalidSignature", "InvalidSignature"]
        assert shown[0]["entity"] == "console"
        text = caplog.text + str(shown)
        for secret in ("wrong-key-given", "secret-of-the-sender", "SharedAccessSignature", "sig="):
            assert secret not in text
    assert {record.levelno for record in caplog.records if "refused" in record.getMessage()} == {logging.WARNING}
