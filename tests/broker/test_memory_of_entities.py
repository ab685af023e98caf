"""What entities hold in memory besides messages is limited: states, changed properties, remembered ids, rules."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.broker.peer import Peer, text
from tests.broker.test_memory import bound, declared, held
from twinbus.amqp.states import Accepted, AmqpError, Modified, Rejected, State, encode_state, state_transactional
from twinbus.amqp.types import Symbol
from twinbus.broker.memory import MemoryKind
from twinbus.clock import SteppedClock
from twinbus.entities.filters import CorrelationFilter
from twinbus.entities.rule import Rule
from twinbus.entities.settings import QueueSettings
from twinbus.errors import QuotaExceededError
from twinbus.testing import Broker

KIB = 1024
SET_STATE = "com.microsoft:set-session-state"
LIMIT = "amqp:resource-limit-exceeded"


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock(1_700_000_000_000)


@pytest.fixture
def broker(clock: SteppedClock) -> Iterator[Broker]:
    queues = [
        QueueSettings(path="q"),
        QueueSettings(path="s", requires_session=True),
        QueueSettings(path="d", requires_duplicate_detection=True, duplicate_window_ms=20_000),
    ]
    with Broker(queues=queues, clock=clock) as broker:
        yield broker


def condition(outcome: State | None) -> str | None:
    assert isinstance(outcome, Rejected)
    assert outcome.error is not None
    return outcome.error.condition


def abandoned(size: int) -> bytes:
    return encode_state(Modified(True, False, {Symbol("p"): "x" * size}))


def dead_lettered(size: int) -> bytes:
    info = {Symbol("DeadLetterReason"): "x" * size, Symbol("DeadLetterErrorDescription"): "y" * size}
    return encode_state(Rejected(AmqpError("com.microsoft:dead-letter", "", info)))


def test_session_states_of_all_are_bounded(broker: Broker) -> None:
    bound(broker, MemoryKind.SESSION_STATES, 100 * KIB)
    with Peer(broker) as peer:
        for name in ("one", "two"):
            peer.receiver("s", session_filter=name)

        def put(session: str, state: bytes | None) -> tuple[int, str | None]:
            body = {"session-id": session, "session-state": state}
            return peer.call("s/$management", SET_STATE, body)[:2]

        assert put("one", bytes(60 * KIB)) == (200, None)
        assert put("two", bytes(60 * KIB)) == (403, LIMIT)
        assert put("one", bytes(70 * KIB)) == (200, None)
        assert put("two", b"small") == (200, None)
        assert put("one", None) == (200, None)
        assert put("two", bytes(60 * KIB)) == (200, None)
        assert held(broker, MemoryKind.SESSION_STATES) >= 60 * KIB
        broker.call(lambda server: server.hosts["contoso"].delete_queue("s"))
    assert held(broker, MemoryKind.SESSION_STATES) == 0


@pytest.mark.parametrize(("outcome", "size"), [(abandoned, 60 * KIB), (dead_lettered, 4_000)])
def test_properties_that_receivers_change_are_bounded(
    broker: Broker, outcome: Callable[[int], bytes], size: int
) -> None:
    with Peer(broker) as peer:
        link = peer.sender("q")
        for _ in range(3):
            peer.send(link, text())
        receiver = peer.receiver("q", 3)
        first, second, third = (peer.receive(receiver) for _ in range(3))
        receiver.flow(0)
        assert peer.settle(first, outcome(size)) is not None
        bound(broker, MemoryKind.CHANGES, held(broker, MemoryKind.CHANGES) + 1)
        assert held(broker, MemoryKind.CHANGES) > size - KIB
        assert condition(peer.settle(second, outcome(size))) == LIMIT
        # Settlements that store little still work.
        assert not isinstance(peer.settle(third, abandoned(10)), Rejected)
        broker.call(lambda server: server.hosts["contoso"].delete_queue("q"))
    assert held(broker, MemoryKind.CHANGES) == 0


def test_changes_go_with_their_message(broker: Broker) -> None:
    with Peer(broker) as peer:
        peer.send(peer.sender("q"), text())
        receiver = peer.receiver("q", 2)
        peer.settle(peer.receive(receiver), abandoned(60 * KIB))
        assert held(broker, MemoryKind.CHANGES) > 59 * KIB
        assert isinstance(peer.settle(peer.receive(receiver)), Accepted)
        assert held(broker, MemoryKind.CHANGES) == 0


def test_one_call_cannot_change_thousands_of_messages_by_much(broker: Broker) -> None:
    with Peer(broker) as peer:
        link = peer.sender("q")
        for _ in range(200):
            link.send(text().encode(), tag=b"1", settled=True)
        receiver = peer.receiver("q", 200)
        tokens = [peer.receive(receiver).tag for _ in range(200)]
        body = {
            "disposition-status": "abandoned",
            "lock-tokens": [_guid(token) for token in tokens],
            "properties-to-modify": {"p": "x" * 60 * KIB},
        }
        assert peer.call("q/$management", "com.microsoft:update-disposition", body)[:2] == (403, LIMIT)
        assert held(broker, MemoryKind.CHANGES) == 0


def test_settlements_of_open_transactions_are_counted(broker: Broker) -> None:
    bound(broker, MemoryKind.TRANSACTIONS, 100 * KIB)
    with Peer(broker) as peer:
        link = peer.sender("q")
        for _ in range(2):
            peer.send(link, text())
        receiver = peer.receiver("q", 2)
        first, second = (peer.receive(receiver) for _ in range(2))
        _, txn_id = declared(peer)
        assert not isinstance(peer.settle(first, state_transactional(txn_id, abandoned(60 * KIB))), Rejected)
        refused = peer.settle(second, state_transactional(txn_id, abandoned(60 * KIB)))
        assert condition(refused) == "com.microsoft:server-busy"
    assert held(broker, MemoryKind.TRANSACTIONS, until=0) == 0


def test_remembered_message_ids_are_bounded(broker: Broker, clock: SteppedClock) -> None:
    bound(broker, MemoryKind.DUPLICATE_IDS, 1_000)
    with Peer(broker) as peer:
        link = peer.sender("d")
        outcomes = (peer.send(link, text(message_id=str(number))) for number in itertools.count())
        refused = next(outcome for outcome in outcomes if not isinstance(outcome, Accepted))
        assert condition(refused) == "com.microsoft:server-busy"
        clock.step(seconds=22)
        broker.call(lambda server: server.hosts["contoso"].check_time())
        assert isinstance(peer.send(link, text(message_id="later")), Accepted)
        broker.call(lambda server: server.hosts["contoso"].delete_queue("d"))
    assert held(broker, MemoryKind.DUPLICATE_IDS) == 0


def _guid(token: bytes) -> uuid.UUID:
    return uuid.UUID(bytes_le=token)


def test_rules_are_bounded_in_bytes(broker: Broker) -> None:
    broker.create_topic("t")
    broker.create_subscription("t", "s")
    wide = CorrelationFilter(properties={f"name{number}": "x" * 20 * KIB for number in range(2)})
    small = CorrelationFilter(properties={"name": "x"})
    base = held(broker, MemoryKind.RULES)
    broker.create_rule("t", "s", "one", wide)
    taken = held(broker, MemoryKind.RULES)
    assert taken - base > 40 * KIB
    bound(broker, MemoryKind.RULES, taken + 10 * KIB)
    with pytest.raises(QuotaExceededError):
        broker.create_rule("t", "s", "two", wide)
    with pytest.raises(QuotaExceededError):
        broker.create_subscription("t", "other", filter=wide)
    assert held(broker, MemoryKind.RULES) == taken
    broker.create_rule("t", "s", "two", small)
    with pytest.raises(QuotaExceededError):
        _replace(broker, "two", wide)
    _replace(broker, "one", small)
    _replace(broker, "two", wide)
    broker.create_subscription("t", "other")
    broker.call(lambda server: server.hosts["contoso"].remove_rule("t", "s", "one"))
    broker.delete_subscription("t", "other")
    broker.call(lambda server: server.hosts["contoso"].delete_topic("t"))
    assert held(broker, MemoryKind.RULES) == 0


def test_rules_count_after_a_restart(tmp_path: Path) -> None:
    wide = CorrelationFilter(properties={"name": "x" * 20 * KIB})
    with Broker(data=tmp_path) as broker:
        broker.create_topic("t")
        broker.create_subscription("t", "s", filter=wide)
        before = held(broker, MemoryKind.RULES)
    with Broker(data=tmp_path) as broker:
        assert held(broker, MemoryKind.RULES) == before > 20 * KIB


def _replace(broker: Broker, name: str, filter: CorrelationFilter) -> None:
    broker.call(lambda server: server.hosts["contoso"].update_rule("t", "s", Rule(name, filter, None, 0)))
