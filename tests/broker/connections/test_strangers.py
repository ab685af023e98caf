"""A client without a key gets little: bytes, links, time, and never the place of one that has a key."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest

from tests.broker.peer import Peer, connected, text
from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.events import Attached, Closed, Detached
from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.states import Accepted, Declared, Rejected
from twinbus.amqp.terminus import Coordinator, Source, Target
from twinbus.amqp.types import Described, ULong
from twinbus.auth.connection_string import ConnectionString
from twinbus.auth.policies import Policies, Policy, Right
from twinbus.auth.sas import sign
from twinbus.broker.configuration.config import NamespaceConfig
from twinbus.broker.connections.strangers import Strangers, WrongKeys
from twinbus.clock import SteppedClock
from twinbus.entities.settings import QueueSettings
from twinbus.limits import (
    INPUT_STEP_FRAMES,
    STRANGER_FRAME_BYTES_MAX,
    STRANGER_FRAMES_MAX,
    STRANGER_INPUT_BYTES_MAX,
    STRANGER_LINKS_MAX,
    STRANGER_SESSIONS_MAX,
    STRANGER_TRANSACTIONS_MAX,
    TOKEN_MESSAGE_BYTES_MAX,
    TOKEN_PROPERTIES_BYTES_MAX,
    WRONG_KEY_PAUSE_MS,
    WRONG_KEY_PAUSE_MS_MAX,
)
from twinbus.testing import Broker

KEY = "c2VjcmV0LXNlY3JldC1zZWNyZXQ="


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    queues = [QueueSettings(path="q"), QueueSettings(path="through")]
    policies = [
        Policy("q-sender", frozenset({Right.SEND}), KEY, scope="q"),
        Policy("sender", frozenset({Right.SEND}), KEY, scope="through"),
    ]
    with Broker([NamespaceConfig("contoso", queues=queues, policies=policies)], dev=False) as broker:
        yield broker


def as_root(broker: Broker) -> Peer:
    keys = ConnectionString.parse(broker.connection_string())
    peer = Peer(broker)
    expiry_s = int(time.time()) + 3600
    assert peer.put_token("sb://localhost/", sign("sb://localhost/", keys.key_name, keys.key, expiry_s)) == 202
    return peer


def ended(peer: Peer) -> bool:
    """Whether the broker ends the connection."""
    while not peer.lost and peer.read(10):
        pass
    return peer.lost


def test_a_token_request_is_bounded_and_is_text(broker: Broker) -> None:
    with Peer(broker) as peer:
        link = peer.sender("$cbs")
        assert link.max_message_size == TOKEN_MESSAGE_BYTES_MAX
        for value in ([[]] * 30_000, {"a": 1}, 5, None):
            request = AmqpMessage.of_value(value)
            request.application_properties = {"operation": "put-token"}
            assert isinstance(peer.send(link, request), Rejected)
        fat = AmqpMessage.of_value("token")
        fat.application_properties = {"operation": "put-token", "name": "n" * TOKEN_PROPERTIES_BYTES_MAX}
        assert isinstance(peer.send(link, fat), Rejected)


@pytest.mark.parametrize("finished", [True, False])
def test_a_stranger_sends_little(broker: Broker, finished: bool) -> None:
    """Complete messages that are too large, and pieces of one that never ends."""
    with Peer(broker) as peer:
        link = peer.sender("$cbs")
        payload = bytes(STRANGER_INPUT_BYTES_MAX + 1)
        if finished:
            link.send(payload, tag=b"1", settled=False)
            peer.flush()
        else:
            output = b""
            link.send(payload, tag=b"1", settled=False)
            output = peer.engine.take_output()
            peer.socket.sendall(output[: STRANGER_INPUT_BYTES_MAX + 1])
        assert ended(peer)


def test_a_stranger_sends_few_frames(broker: Broker) -> None:
    """Empty ones are no way to stay either."""
    with Peer(broker) as peer, contextlib.suppress(OSError):
        peer.socket.sendall(bytes.fromhex("0000000802000000") * (STRANGER_FRAMES_MAX + INPUT_STEP_FRAMES))
        error = peer.wait(Closed).error
        assert error is not None
        assert f"{STRANGER_FRAMES_MAX} frames" in (error.description or "")


def test_a_stranger_has_few_links(broker: Broker) -> None:
    with Peer(broker) as peer:
        for number in range(STRANGER_LINKS_MAX + 1):
            peer.session.attach_sender(str(number), source=Source("s"), target=Target("$cbs"))
        peer.flush()
        assert ended(peer)


def test_a_stranger_has_few_sessions(broker: Broker) -> None:
    with Peer(broker) as peer:
        for _ in range(STRANGER_SESSIONS_MAX):
            peer.engine.begin()
        peer.flush()
        assert ended(peer)


def test_a_stranger_writes_small_attaches(broker: Broker) -> None:
    with Peer(broker) as peer:
        properties = {"x": "x" * STRANGER_FRAME_BYTES_MAX}
        peer.session.attach_sender("fat", source=Source("s"), target=Target("$cbs"), properties=properties)
        peer.flush()
        assert ended(peer)


def test_whoever_has_a_token_is_free(broker: Broker) -> None:
    with as_root(broker) as peer:
        for _ in range(STRANGER_SESSIONS_MAX):
            peer.begin()
        for _ in range(STRANGER_LINKS_MAX + 1):
            peer.sender("q")
        link = peer.session.attach_sender(
            "fat", source=Source("s"), target=Target("q"), properties={"x": "x" * STRANGER_FRAME_BYTES_MAX}
        )
        peer.flush()
        peer.wait(Attached, lambda event: event.link is link)
        for _ in range(3):
            assert isinstance(peer.send(link, text("x" * 200_000)), Accepted)


def test_strangers_do_not_keep_out_whoever_has_a_key(broker: Broker) -> None:
    hello = Connection(Role.CLIENT, container_id="stranger")
    hello.start(sasl=("ANONYMOUS", b""), pipelined=True)
    greeting = hello.take_output()
    crowd = []
    try:
        for _ in range(600):
            stream = connected(broker)
            stream.sendall(greeting)
            crowd.append(stream)
        with as_root(broker) as peer:
            assert isinstance(peer.send(peer.sender("q"), text("through")), Accepted)
        known = broker.call(lambda server: len(server.hosts["contoso"].strangers))
        assert known <= 250
    finally:
        for stream in crowd:
            stream.close()


def test_without_a_key_nobody_learns_what_exists(broker: Broker) -> None:
    with Peer(broker) as peer:
        errors = [peer.refusal(lambda node=node: peer.sender(node)) for node in ("q/$management", "none/$management")]
        assert {error.condition for error in errors} == {"amqp:unauthorized-access"}
        assert len({error.description.partition(" Resource")[0] for error in errors}) == 1


def test_transactions_may_be_declared_before_the_token_and_do_nothing(broker: Broker) -> None:
    # Java's createTransaction() is the first thing on its connection, as are .NET's scopes, any number of them at once:
    # the token comes with the first sender.
    with Peer(broker) as peer:
        link = peer.session.attach_sender("c", source=Source("s"), target=Coordinator())
        peer._answered(link)
        declare = AmqpMessage()
        declare.value, declare.has_value = Described(ULong(0x31), [None]), True
        for _ in range(STRANGER_TRANSACTIONS_MAX):
            assert isinstance(peer.send(link, declare), Declared)
        assert isinstance(peer.send(link, declare), Rejected)
        assert peer.refusal(lambda: peer.sender("q")).condition == "amqp:unauthorized-access"


def test_send_via_ends_with_the_token_of_its_destination() -> None:
    clock = SteppedClock(int(time.time() * 1000))
    policies = [Policy(path, frozenset({Right.SEND}), KEY, scope=path) for path in ("q", "through")]
    queues = [QueueSettings(path="q"), QueueSettings(path="through")]
    config = NamespaceConfig("contoso", queues=queues, policies=policies)
    with Broker([config], dev=False, clock=clock) as broker, Peer(broker) as peer:
        for path, lives_s in (("through", 3600), ("q", 60)):
            token = sign(f"sb://localhost/{path}", path, KEY, clock.now_ms() // 1000 + lives_s)
            assert peer.put_token(f"sb://localhost/{path}", token) == 202
        link = peer.sender("through", properties={"com.microsoft:transfer-destination-address": "q"})
        assert isinstance(peer.send(link, text("in time")), Accepted)
        clock.step(seconds=300)
        broker.call(lambda server: server.step(), "contoso")
        assert peer.wait(Detached, lambda event: event.link is link).error is not None


# --- the lists ------------------------------------------------------------------------------------------------------


class Somebody:
    def __init__(self, address: str) -> None:
        self.address = address
        self.evicted = False

    def evict(self) -> None:
        self.evicted = True


def test_the_oldest_stranger_goes_of_its_own_address_first() -> None:
    strangers = Strangers(all_max=4, address_max=2)
    first, second, third = Somebody("a"), Somebody("b"), Somebody("b")
    for each in (first, second, third):
        strangers.add(each)
    strangers.add(Somebody("b"))
    assert [each.evicted for each in (first, second, third)] == [False, True, False]
    strangers.add(Somebody("c"))
    strangers.add(Somebody("d"))
    assert [each.evicted for each in (first, second, third)] == [True, True, False]
    assert len(strangers) == 4
    strangers.remove(first)
    strangers.remove(third)
    assert len(strangers) == 3


def test_wrong_keys_cost_more_and_more_and_are_forgotten() -> None:
    clock = SteppedClock(0)
    wrong = WrongKeys(clock)
    assert [wrong.pause_ms("a") for _ in range(3)] == [WRONG_KEY_PAUSE_MS * each for each in (1, 2, 3)]
    assert wrong.pause_ms("b") == WRONG_KEY_PAUSE_MS
    for _ in range(1_000):
        wrong.pause_ms("a")
    assert wrong.pause_ms("a") == WRONG_KEY_PAUSE_MS_MAX
    clock.step(seconds=86_400)
    assert wrong.pause_ms("a") == WRONG_KEY_PAUSE_MS
    for number in range(5_000):
        wrong.pause_ms(str(number))
    assert len(wrong._seen) <= 1_024


def test_a_key_is_found_among_thousands_in_one_step() -> None:
    policies = Policies(Policy("same", frozenset({Right.SEND}), f"key-{n}", scope=f"q{n}") for n in range(2_000))
    found = policies.with_key("SAME", "key-1999")
    assert found is not None
    assert found.scope == "q1999"
    assert policies.with_key("same", "key") is None
    policies.remove_scope("q1999")
    assert policies.with_key("same", "key-1999") is None
