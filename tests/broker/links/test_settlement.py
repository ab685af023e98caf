"""Outcomes at an entity: `check` raises what `settle` would raise, and `settle_all` changes nothing if it raises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.broker.peer import Peer, text
from twinbus.amqp.states import ACCEPTED, RELEASED, AmqpError, Modified, Received, Rejected, State, TransactionalState
from twinbus.broker.links.settlement import check, settle, settle_all
from twinbus.errors import ArgumentError, MessageLockLostError, NotAllowedError, ServiceError
from twinbus.limits import APPLICATION_PROPERTIES_BYTES_MAX, DEAD_LETTER_TEXT_CHARS_MAX
from twinbus.testing import Broker

UNKNOWN = b"?" * 16
LONG = "x" * (DEAD_LETTER_TEXT_CHARS_MAX + 1)
LARGE = {"large": "x" * APPLICATION_PROPERTIES_BYTES_MAX}

OUTCOMES: dict[str, State | None] = {
    "accepted": ACCEPTED,
    "released": RELEASED,
    "abandoned": Modified(None, False, {"a": 1}),
    "deferred": Modified(None, True, {"a": 1}),
    "rejected": Rejected(AmqpError("com.microsoft:dead-letter", "", {"DeadLetterReason": "r"})),
}
REFUSED: dict[str, State | None] = {
    "no outcome": None,
    "no outcome but a place": Received(0, 0),
    "a transaction": TransactionalState(b"1", ACCEPTED),
    "properties too large": Modified(None, False, LARGE),
    "reason too long": Rejected(AmqpError("com.microsoft:dead-letter", "", {"DeadLetterReason": LONG})),
    "a system property": Modified(None, True, {"\0MessageId": "other"}),
}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(queues=["a"]) as running:
        yield running


def sent(broker: Broker, count: int) -> None:
    with Peer(broker) as peer:
        sender = peer.sender("a")
        for number in range(count):
            peer.send(sender, text(str(number)))


def attempt(work: Callable[..., object], *given: Any) -> type[ServiceError] | None:
    try:
        work(*given)
    except ServiceError as error:
        return type(error)
    return None


def test_check_raises_what_settle_raises_and_changes_nothing(broker: Broker) -> None:
    def look(server: Any) -> None:
        host = server.hosts["contoso"]
        queue, facts = host.entities.queue("a"), host.commits.facts
        now_ms = host.clock.now_ms()
        tokens = [message.token for message in queue.acquire(len(OUTCOMES), now_ms, facts)]
        assert len(tokens) == len(OUTCOMES)
        for state in REFUSED.values():
            found = attempt(check, queue, tokens[0], state, now_ms)
            assert found is ArgumentError
            assert attempt(settle, queue, tokens[0], state, now_ms, facts) is found
        for state, token in zip(OUTCOMES.values(), tokens, strict=True):
            assert attempt(check, queue, UNKNOWN, state, now_ms) is MessageLockLostError
            assert attempt(settle, queue, UNKNOWN, state, now_ms, facts) is MessageLockLostError
            # Twice, because the first call changes nothing.
            assert attempt(check, queue, token, state, now_ms) is None
            assert attempt(check, queue, token, state, now_ms) is None
            assert attempt(settle, queue, token, state, now_ms, facts) is None
            assert attempt(check, queue, token, state, now_ms) is MessageLockLostError
        host.commits.request_if_needed()

    sent(broker, len(OUTCOMES))
    broker.call(look)


def test_a_dead_letter_cannot_be_dead_lettered_again(broker: Broker) -> None:
    def look(server: Any) -> None:
        host = server.hosts["contoso"]
        queue, facts = host.entities.queue("a"), host.commits.facts
        now_ms = host.clock.now_ms()
        token = queue.acquire(1, now_ms, facts)[0].token
        settle(queue, token, OUTCOMES["rejected"], now_ms, facts)
        host.commits.request()

    def look_again(server: Any) -> None:
        host = server.hosts["contoso"]
        queue, facts = host.entities.queue("a/$DeadLetterQueue"), host.commits.facts
        now_ms = host.clock.now_ms()
        token = queue.acquire(1, now_ms, facts)[0].token
        for work, more in ((check, ()), (settle, (facts,))):
            assert attempt(work, queue, UNKNOWN, OUTCOMES["rejected"], now_ms, *more) is MessageLockLostError
            assert attempt(work, queue, token, OUTCOMES["rejected"], now_ms, *more) is NotAllowedError

    sent(broker, 1)
    broker.call(look)
    broker.call(look_again)


@pytest.mark.parametrize("refused", REFUSED)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_settle_all_changes_nothing_when_one_is_refused(broker: Broker, refused: str, place: int) -> None:
    def look(server: Any) -> None:
        host = server.hosts["contoso"]
        queue, facts = host.entities.queue("a"), host.commits.facts
        now_ms = host.clock.now_ms()
        tokens = [message.token for message in queue.acquire(3, now_ms, facts)]
        states = list(OUTCOMES.values())[:3]
        good = {token: (queue, state) for token, state in zip(tokens, states, strict=True)}
        wrong = good | {tokens[place]: (queue, REFUSED[refused])}
        unknown = {UNKNOWN if token == tokens[place] else token: each for token, each in good.items()}
        assert attempt(settle_all, wrong, now_ms, facts) is ArgumentError
        assert attempt(settle_all, unknown, now_ms, facts) is MessageLockLostError
        assert attempt(settle_all, good, now_ms, facts) is None
        assert attempt(settle_all, good, now_ms, facts) is MessageLockLostError
        host.commits.request_if_needed()

    sent(broker, 3)
    broker.call(look)
