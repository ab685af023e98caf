"""The port on our own client: how it handles a service's times."""

from __future__ import annotations

import pytest

from tests.paired.pairs import SkewedClock
from twinbus.client import BusClient, Message
from twinbus.limits import LOCK_DURATION_MS_DEFAULT, LOCK_DURATION_MS_MIN
from twinbus.paired.syphon.bus_port import BusPort

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
