"""The port on our own client: how it handles a service's times."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.paired.pairs import SkewedClock
from twinbus.client import BusClient, Message
from twinbus.errors import ServiceError
from twinbus.limits import LOCK_DURATION_MS_DEFAULT, LOCK_DURATION_MS_MIN, SYPHON_WINDOW
from twinbus.paired.syphon.bus_port import BusDestination, BusPort

from .conftest import Pair


@pytest.mark.parametrize(
    ("ahead_s", "least_ms", "most_ms"),
    [
        (0, LOCK_DURATION_MS_DEFAULT - 20_000, LOCK_DURATION_MS_DEFAULT),
        # Renewing too early costs a request; too late, the lock is lost.
        (-600, LOCK_DURATION_MS_DEFAULT, LOCK_DURATION_MS_DEFAULT),
        (600, LOCK_DURATION_MS_MIN, LOCK_DURATION_MS_MIN),
    ],
)
async def test_a_wrong_clock_makes_no_lock_longer(pair: Pair, ahead_s: int, least_ms: int, most_ms: int) -> None:
    await pair.divert(pair.destination(), [Message(b"x")])
    client = BusClient.from_connection_string(pair.secondary.connection_string())
    port = BusPort(client, wall=SkewedClock(ahead_s * 1000))
    try:
        source = await port.source(pair.queues[0])
        (held,) = await source.receive(1, 5)
        assert least_ms <= held.lock_ms <= most_ms
        assert await source.complete([held]) == [None]
        await source.close()
    finally:
        await port.close()


async def test_a_queue_and_a_destination(pair: Pair) -> None:
    path = pair.destination()
    first, second = (
        BusPort(BusClient.from_connection_string(each.connection_string())) for each in (pair.primary, pair.secondary)
    )
    try:
        await first.connect()
        assert await second.oldest_ms(pair.queues[0]) is None
        source = await second.source(pair.queues[0])
        assert await source.is_empty()
        assert await source.receive(5, 0.01) == []
        await pair.divert(path, [Message(b"x", message_id="a"), Message(b"x", message_id="b")])
        assert not await source.is_empty()
        assert await second.oldest_ms(pair.queues[0]) is not None
        held = await source.receive(5, 5)
        assert len(held) == 2
        assert all(one.enqueued_ms for one in held)
        await source.renew(held)
        await source.release(held[1:])
        assert await source.complete(held[:1]) == [None]
        (again,) = await source.receive(5, 5)
        await source.dead_letter(again, "Broken", "in two")
        destination = await first.destination(path)
        assert destination.usable
        accepted: list[int] = []
        assert await destination.send([], accepted.append) == []
        parcels = [(Message(str(number).encode()).encode(),) for number in range(SYPHON_WINDOW + 5)]
        outcomes = await destination.send([*parcels, (parcels[0][0], parcels[1][0])], accepted.append)
        assert outcomes == [None] * (SYPHON_WINDOW + 6)
        assert accepted == list(range(SYPHON_WINDOW + 6))
        assert len(await pair.taken(path, SYPHON_WINDOW + 7)) == SYPHON_WINDOW + 7, "the last one was two"
        await destination.close()
        await source.close()
        await source.release([again])
    finally:
        await first.close()
        await second.close()
    assert len(await pair.dead(1)) == 1


class SlowSender:
    """A sender that accepts when it is told to, and has no room for a payload of b"refused"."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[ServiceError | None], None]] = []

    def room(self) -> int:
        return 1

    def submit(self, payload: bytes, settle: Callable[..., None], index: int, **options: Any) -> None:
        if payload == b"refused":
            raise ServiceError("refused")
        self.waiting.append(lambda error: settle(error, index))


async def test_a_send_ends_with_the_last_outcome() -> None:
    sender = SlowSender()
    accepted: list[int] = []
    sending = asyncio.create_task(
        BusDestination(sender).send([[b"a"], [b"refused"], [b"b"]], accepted.append)  # type: ignore[arg-type]
    )
    await asyncio.sleep(0)
    first, second = sender.waiting
    first(None)
    await asyncio.sleep(0)
    assert not sending.done()
    error = ServiceError("late")
    second(error)
    outcomes = await sending
    assert outcomes[0] is None
    assert str(outcomes[1]) == "refused"
    assert outcomes[2] is error
    assert accepted == [0]
