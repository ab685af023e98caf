"""Requests that name several lock tokens: all take effect, or none."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.broker.links.test_transactions import control, declare, discharge, status_in
from tests.broker.peer import Peer, text
from twinbus.amqp.states import Accepted
from twinbus.amqp.types import ARRAY_OF_UUID, Array
from twinbus.clock import SteppedClock
from twinbus.entities.settings import QueueSettings
from twinbus.testing import Broker

STATUSES = ["completed", "abandoned", "defered", "suspended"]
LOCK_MS = 60_000
UNKNOWN = uuid.UUID(int=7)

# Active, deferred, dead-lettered, locked.
UNTOUCHED = (3, 0, 0, 3)
DONE = {"completed": (0, 0, 0, 0), "abandoned": (3, 0, 0, 0), "defered": (0, 3, 0, 0), "suspended": (0, 0, 3, 0)}


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def broker(clock: SteppedClock) -> Iterator[Broker]:
    queues = [
        QueueSettings(path="a", lock_duration_ms=LOCK_MS),
        QueueSettings(path="s", lock_duration_ms=LOCK_MS, requires_session=True),
    ]
    with Broker(queues=queues, clock=clock) as running:
        yield running


def state_of(broker: Broker, path: str = "a") -> tuple[int, int, int, int]:
    def look(server: Any) -> tuple[int, int, int, int]:
        queue = server.hosts["contoso"].entities.queue(path)
        return (queue.counts.active, queue.counts.deferred, queue.counts.dead_letter, len(queue.messages.locks))

    return broker.call(look)


def locked(peer: Peer, path: str = "a", session: str | None = None) -> list[uuid.UUID]:
    """Send three messages and lock them."""
    sender = peer.sender(path)
    for number in range(3):
        peer.send(sender, text(str(number), group_id=session))
    options = {} if session is None else {"session_filter": session}
    receiver = peer.receiver(path, 3, **options)
    return [uuid.UUID(bytes_le=peer.receive(receiver).tag) for _ in range(3)]


def body(status: str, tokens: list[uuid.UUID], **more: Any) -> dict[str, Any]:
    return {"disposition-status": status, "lock-tokens": Array(tokens, ARRAY_OF_UUID), **more}


def update(peer: Peer, path: str, status: str, tokens: list[uuid.UUID], **more: Any) -> tuple[int, str | None]:
    return peer.call(f"{path}/$management", "com.microsoft:update-disposition", body(status, tokens, **more))[:2]


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("place", [0, 1, 3])
def test_one_unknown_token_settles_none(broker: Broker, status: str, place: int) -> None:
    with Peer(broker) as peer:
        tokens = locked(peer)
        wrong = [*tokens[:place], UNKNOWN, *tokens[place:]]
        assert update(peer, "a", status, wrong) == (410, "com.microsoft:message-lock-lost")
        assert state_of(broker) == UNTOUCHED
        assert update(peer, "a", status, tokens) == (200, None)
        assert state_of(broker) == DONE[status]


@pytest.mark.parametrize("status", STATUSES)
def test_a_token_named_twice_counts_once(broker: Broker, status: str) -> None:
    with Peer(broker) as peer:
        tokens = locked(peer)
        assert update(peer, "a", status, [tokens[0], tokens[1], tokens[0], tokens[2]]) == (200, None)
        assert state_of(broker) == DONE[status]


@pytest.mark.parametrize("status", STATUSES)
def test_messages_of_a_session(broker: Broker, clock: SteppedClock, status: str) -> None:
    with Peer(broker) as peer:
        tokens = locked(peer, "s", "one")
        assert update(peer, "s", status, [tokens[0], UNKNOWN, tokens[1]]) == (410, "com.microsoft:session-lock-lost")
        assert state_of(broker, "s") == UNTOUCHED
        assert update(peer, "s", status, tokens) == (200, None)
        assert state_of(broker, "s") == DONE[status]


@pytest.mark.parametrize("status", STATUSES)
def test_a_lapsed_session_beside_a_held_one(broker: Broker, clock: SteppedClock, status: str) -> None:
    with Peer(broker) as peer:
        first = locked(peer, "s", "one")
        clock.step(ms=LOCK_MS // 2)
        second = locked(peer, "s", "two")
        clock.step(ms=LOCK_MS // 2)
        # The clock is checked when a request arrives: no timer has run since.
        assert update(peer, "s", status, [second[0], first[0]])[0] == 410
        assert update(peer, "s", status, second) == (200, None)


@pytest.mark.parametrize(
    ("status", "more", "answer"),
    [
        ("abandoned", {"properties-to-modify": {"big": "x" * 70_000}}, 400),
        ("suspended", {"deadletter-reason": "x" * 5_000}, 400),
        ("suspended", {"properties-to-modify": {"\0MessageId": "other"}}, 400),
    ],
)
def test_a_refused_argument_settles_none(broker: Broker, status: str, more: dict[str, Any], answer: int) -> None:
    with Peer(broker) as peer:
        tokens = locked(peer)
        assert update(peer, "a", status, tokens, **more)[0] == answer
        assert state_of(broker) == UNTOUCHED


def test_properties_that_grow_too_large_on_the_last_message_change_none(broker: Broker) -> None:
    with Peer(broker) as peer:
        tokens = locked(peer)
        half = {"half": "x" * 40_000}
        assert update(peer, "a", "abandoned", tokens[2:], **{"properties-to-modify": half}) == (200, None)
        again = uuid.UUID(bytes_le=peer.receive(peer.receiver("a", 1)).tag)
        other = {"other": "x" * 40_000}
        found = update(peer, "a", "abandoned", [*tokens[:2], again], **{"properties-to-modify": other})
        assert found[0] == 400
        assert state_of(broker) == UNTOUCHED


@pytest.mark.parametrize("status", STATUSES)
def test_inside_a_transaction(broker: Broker, status: str) -> None:
    with Peer(broker) as peer:
        tokens = locked(peer)
        coordinator = control(peer)
        txn_id = declare(peer, coordinator)
        # A rejected request is not part of the transaction, not even its valid tokens.
        assert status_in(peer, txn_id, "a", "update-disposition", body(status, [tokens[0], UNKNOWN, tokens[1]])) == 410
        assert isinstance(discharge(peer, coordinator, txn_id), Accepted)
        assert state_of(broker) == UNTOUCHED

        txn_id = declare(peer, coordinator)
        assert status_in(peer, txn_id, "a", "update-disposition", body(status, [*tokens, tokens[0]])) == 200
        assert status_in(peer, txn_id, "a", "update-disposition", body(status, tokens[:1])) == 410
        assert state_of(broker) == UNTOUCHED
        assert isinstance(discharge(peer, coordinator, txn_id), Accepted)
        assert state_of(broker) == DONE[status]


def test_a_reason_among_the_properties_to_modify_is_kept(broker: Broker) -> None:
    with Peer(broker) as peer:
        tokens = locked(peer)
        changes = {"properties-to-modify": {"DeadLetterReason": "mine"}}
        assert update(peer, "a", "suspended", tokens[:1], **changes) == (200, None)
        dead = peer.receiver("a/$DeadLetterQueue", 1, settled=True)
        payload = peer.receive(dead).payload
        assert payload is not None
        assert b"DeadLetterReason" in payload
        assert b"mine" in payload


def test_locks_are_renewed_all_or_none(broker: Broker, clock: SteppedClock) -> None:
    node = "a/$management"
    with Peer(broker) as peer:
        tokens = locked(peer)
        clock.step(ms=LOCK_MS // 2)
        wrong = {"lock-tokens": Array([*tokens, UNKNOWN], ARRAY_OF_UUID)}
        assert peer.call(node, "com.microsoft:renew-lock", wrong)[0] == 410
        clock.step(ms=LOCK_MS // 2)
        broker.call(lambda server: server.step())
        assert state_of(broker) == (3, 0, 0, 0)
