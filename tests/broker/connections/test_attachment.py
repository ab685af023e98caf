"""Attaching: what is refused, with which text, and who may do what."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.broker.peer import Peer, text
from twinbus.amqp.events import Closed, Detached
from twinbus.amqp.states import Accepted
from twinbus.amqp.terminus import Source, Target
from twinbus.amqp.types import Int, Symbol, UInt
from twinbus.auth.connection_string import ConnectionString
from twinbus.auth.policies import Policy, Right
from twinbus.auth.sas import sign
from twinbus.broker.configuration.config import NamespaceConfig
from twinbus.clock import SteppedClock
from twinbus.entities.settings import QueueSettings
from twinbus.testing import Broker

SECRET = "c2VjcmV0LXNlY3JldC1zZWNyZXQ="


@pytest.fixture(scope="module")
def clock() -> SteppedClock:
    return SteppedClock(int(time.time() * 1000))


@pytest.fixture(scope="module")
def broker(clock: SteppedClock) -> Iterator[Broker]:
    policies = [
        Policy("listener", frozenset({Right.LISTEN}), SECRET),
        Policy("sender", frozenset({Right.SEND}), SECRET),
        Policy("only-q", frozenset({Right.SEND, Right.LISTEN}), SECRET, scope="q"),
    ]
    queues = [QueueSettings(path="q"), QueueSettings(path="other"), QueueSettings(path="off", status="Disabled")]
    with Broker(
        [NamespaceConfig("contoso", queues=queues, policies=policies), "fabrikam"], dev=False, clock=clock
    ) as broker:
        yield broker


def token(clock: SteppedClock, name: str, path: str = "", key: str = SECRET, lives_s: int = 3600) -> str:
    return sign(f"sb://localhost/{path}", name, key, clock.now_ms() // 1000 + lives_s)


def root(broker: Broker, namespace: str = "contoso") -> Any:
    return ConnectionString.parse(broker.connection_string(namespace))


def as_root(broker: Broker, clock: SteppedClock) -> Peer:
    peer = Peer(broker, "contoso")
    keys = root(broker)
    assert peer.put_token("sb://localhost/", token(clock, keys.key_name, key=keys.key)) == 202
    return peer


@pytest.mark.parametrize("sasl", [("ANONYMOUS", b""), None])
def test_without_a_token_nothing_attaches(broker: Broker, sasl: tuple[str, bytes] | None) -> None:
    with Peer(broker, "contoso", sasl=sasl) as peer:
        error = peer.refusal(lambda: peer.sender("q"))
        assert error.condition == "amqp:unauthorized-access"
        assert "'Send' claim(s) are required" in error.description


def test_a_missing_entity_is_named_as_the_client_calls_it(broker: Broker, clock: SteppedClock) -> None:
    with as_root(broker, clock) as peer:
        for attach in (peer.sender, peer.receiver):
            error = peer.refusal(lambda attach=attach: attach("none"))
            assert error.condition == "amqp:not-found"
            assert error.description.startswith("The messaging entity 'sb://localhost/none' could not be found.")


def test_temporary_entities_are_refused_with_the_reason(broker: Broker, clock: SteppedClock) -> None:
    """As JMS requests them: the broker chooses the address."""
    dynamic = [None, UInt(0), Symbol("session-end"), UInt(0), True]
    with as_root(broker, clock) as peer:
        attach = peer.session.attach_sender, peer.session.attach_receiver
        for refused in (
            peer.refusal(lambda: attach[0]("out", source=Source("me"), target=Target(fields=[*dynamic, None, None]))),
            peer.refusal(lambda: attach[1]("in", source=Source(fields=[*dynamic, *[None] * 6]), target=Target("me"))),
        ):
            assert refused.condition == "amqp:not-implemented"
            assert refused.description.startswith("Temporary queues and topics are not available: create an entity.")


def test_a_token_for_a_missing_entity(broker: Broker, clock: SteppedClock) -> None:
    """Not found, as the service answers every client."""
    keys = root(broker)
    for product in ("MSJSClient", "azsdk-python-servicebus"):
        with Peer(broker, "contoso", product=product) as peer:
            for path in ("none", "none/$management", "none/Subscriptions/s", "q/Subscriptions/s"):
                assert peer.put_token(f"sb://localhost/{path}", token(clock, keys.key_name, key=keys.key)) == 404
            for path in ("", "q", "q/$management", "q/$DeadLetterQueue", "Q/$DeadLetterQueue/$management"):
                assert peer.put_token(f"sb://localhost/{path}", token(clock, keys.key_name, key=keys.key)) == 202
            # A wrong key is a wrong key, whatever it is for.
            assert peer.put_token("sb://localhost/none", token(clock, keys.key_name, key="wrong")) == 401


def test_rights_decide(broker: Broker, clock: SteppedClock) -> None:
    with Peer(broker, "contoso") as peer:
        assert peer.put_token("sb://localhost/q", token(clock, "listener", "q")) == 202
        assert "'Send' claim" in peer.refusal(lambda: peer.sender("q")).description
        peer.receiver("q")
        assert peer.call("q/$management", "com.microsoft:peek-message", {"message-count": Int(1)})[0] == 204
        assert peer.call("q/$management", "com.microsoft:schedule-message", {"messages": []})[0] == 401
        assert peer.refusal(lambda: peer.sender("$management")).condition == "amqp:unauthorized-access"
    with Peer(broker, "contoso") as peer:
        assert peer.put_token("sb://localhost/q", token(clock, "sender", "q")) == 202
        assert isinstance(peer.send(peer.sender("q"), text()), Accepted)
        assert "'Listen' claim" in peer.refusal(lambda: peer.receiver("q")).description


def test_entity_policy_covers_its_entity_only(broker: Broker, clock: SteppedClock) -> None:
    with Peer(broker, "contoso") as peer:
        assert peer.put_token("sb://localhost/q", token(clock, "only-q", "q")) == 202
        peer.sender("q")
        peer.receiver("q/$DeadLetterQueue")
        assert peer.put_token("sb://localhost/other", token(clock, "only-q", "other")) == 401
        assert peer.refusal(lambda: peer.sender("other")).condition == "amqp:unauthorized-access"


def test_wrong_tokens_are_refused(broker: Broker, clock: SteppedClock) -> None:
    with Peer(broker, "contoso") as peer:
        assert peer.put_token("sb://localhost/q", token(clock, "listener", "q", key="wrong")) == 401
        assert peer.put_token("sb://localhost/q", token(clock, "nobody", "q")) == 401
        assert peer.put_token("sb://localhost/q", token(clock, "listener", "q", lives_s=-120)) == 401
        assert peer.put_token("sb://localhost/q", "rubbish") == 401
        # A key of one namespace is worthless in another.
        keys = root(broker, "fabrikam")
        assert peer.put_token("sb://localhost/q", token(clock, keys.key_name, "q", key=keys.key)) == 401
        assert peer.refusal(lambda: peer.receiver("q")).condition == "amqp:unauthorized-access"


def test_plain_login_authorises_the_connection(broker: Broker) -> None:
    with Peer(broker, "contoso", sasl=("PLAIN", b"\0listener\0" + SECRET.encode())) as peer:
        peer.receiver("q")
        assert "'Send' claim" in peer.refusal(lambda: peer.sender("q")).description
    with pytest.raises(AssertionError, match="no Opened"):
        Peer(broker, "contoso", sasl=("PLAIN", b"\0listener\0wrong"))


def test_token_that_runs_out_detaches_its_links(broker: Broker, clock: SteppedClock) -> None:
    with Peer(broker, "contoso") as peer:
        assert peer.put_token("sb://localhost/q", token(clock, "listener", "q", lives_s=60)) == 202
        kept = peer.receiver("q")
        assert peer.put_token("sb://localhost/q", token(clock, "listener", "q", lives_s=300)) == 202
        clock.step(seconds=200)
        broker.call(lambda server: server.step(), "contoso")
        assert peer.quiet(Detached)
        clock.step(seconds=200)
        broker.call(lambda server: server.step(), "contoso")
        detached = peer.wait(Detached, lambda event: event.link is kept)
        assert detached.error is not None
        assert detached.error.condition == "amqp:unauthorized-access"
        assert detached.error.description.startswith("ExpiredToken")


def test_connection_without_a_token_is_closed_in_time(broker: Broker, clock: SteppedClock) -> None:
    with Peer(broker, "contoso") as peer:
        clock.step(seconds=19)
        broker.call(lambda server: server.step(), "contoso")
        assert peer.quiet(Closed)
        clock.step(seconds=2)
        broker.call(lambda server: server.step(), "contoso")
        error = peer.wait(Closed).error
        assert error is not None
        assert error.condition == "amqp:connection:forced"


def test_refusals_say_what_is_wrong(broker: Broker, clock: SteppedClock) -> None:
    with as_root(broker, clock) as peer:
        error = peer.refusal(lambda: peer.sender("missing"))
        assert error.condition == "amqp:not-found"
        assert re.search(r"The messaging entity .* could not be found", error.description)
        assert "TrackingId:" in error.description
        assert peer.refusal(lambda: peer.receiver("missing/$DeadLetterQueue")).condition == "amqp:not-found"
        assert peer.refusal(lambda: peer.receiver("missing/$management")).condition == "amqp:not-found"
        assert peer.refusal(lambda: peer.sender("q/$DeadLetterQueue")).condition == "amqp:not-allowed"
        assert peer.refusal(lambda: peer.sender("off")).condition == "com.microsoft:entity-disabled"
        assert peer.refusal(lambda: peer.receiver("off")).condition == "com.microsoft:entity-disabled"
        assert peer.refusal(lambda: peer.sender("")).condition == "com.microsoft:argument-error"


def test_management_mistakes(broker: Broker, clock: SteppedClock) -> None:
    with as_root(broker, clock) as peer:
        assert peer.call("q/$management", "com.microsoft:nonsense", {})[:2] == (501, "amqp:not-implemented")
        assert peer.call("q/$management", "nonsense", {})[:2] == (501, "amqp:not-implemented")
        bad: list[tuple[str, dict[str, Any]]] = [
            ("peek-message", {}),
            ("peek-message", {"message-count": "many"}),
            ("peek-message", {"message-count": Int(0)}),
            ("renew-lock", {"lock-tokens": "x"}),
            ("renew-lock", {"lock-tokens": ["x"]}),
            ("schedule-message", {"messages": [{"message": b"rubbish"}]}),
            ("schedule-message", {"messages": [{"message": text().encode()}]}),
            ("cancel-scheduled-message", {"sequence-numbers": []}),
            ("update-disposition", {"disposition-status": "eaten", "lock-tokens": []}),
        ]
        for operation, body in bad:
            status, condition, _ = peer.call("q/$management", f"com.microsoft:{operation}", body)
            assert (status, condition) == (400, "com.microsoft:argument-error"), operation


def test_directory_of_the_namespace(broker: Broker, clock: SteppedClock) -> None:
    with as_root(broker, clock) as peer:
        status, _, body = peer.call("$management", "twinbus:create-queue", {"path": "made", "lock_duration_ms": 5000})
        assert (status, body["queue"]["lock_duration_ms"]) == (200, 5000)
        assert peer.call("$management", "twinbus:create-queue", {"path": "MADE"})[:2] == (
            409,
            "com.microsoft:entity-already-exists",
        )
        link = peer.sender("Made")
        assert isinstance(peer.send(link, text()), Accepted)
        _, _, body = peer.call("$management", "twinbus:list-queues", {})
        assert "made" in [queue["path"] for queue in body["queues"]]
        assert peer.call("$management", "twinbus:delete-queue", {"name": "made"})[0] == 200
        assert peer.wait(Detached, lambda event: event.link is link).error is not None
        assert peer.refusal(lambda: peer.sender("made")).condition == "amqp:not-found"
        assert peer.call("$management", "twinbus:get-queue", {"name": "made"})[0] == 404
        status, condition, _ = peer.call("$management", "twinbus:create-queue", {"path": "x", "lock_duration": 1})
        assert (status, condition) == (400, "com.microsoft:argument-error")
        response = peer.request("$management", "twinbus:create-queue", {"path": "x", "lock_duration": 1})
        assert "Did you mean 'lock_duration_ms'" in str((response.application_properties or {})["statusDescription"])


@pytest.mark.parametrize(("message_bytes", "batch_bytes"), [(256 * 1024, 256 * 1024), (100 * 1024 * 1024, 1024 * 1024)])
def test_a_batch_has_at_most_a_megabyte_although_a_message_may_be_larger(message_bytes: int, batch_bytes: int) -> None:
    with Broker(queues=[QueueSettings(path="q", max_message_bytes=message_bytes)]) as broker, Peer(broker) as peer:
        link = peer.sender("q")
        assert link.max_message_size == message_bytes
        assert (link.properties or {})["com.microsoft:max-message-batch-size"] == batch_bytes
