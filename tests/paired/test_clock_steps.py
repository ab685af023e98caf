"""The machine's clock is set while a pair works: no timeout and no interval depends on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import OperationTimeoutError

from tests.paired.pairs import Pair, call
from twinbus.paired import EntityState

STEP_S = 600


class SetClock:
    """The machine's clock, which can be set."""

    def __init__(self) -> None:
        self._true = time.time
        self.ahead_s = 0

    def __call__(self) -> float:
        return self._true() + self.ahead_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[SetClock]:
    made = SetClock()
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", made)
        yield made


@pytest.mark.parametrize("side", ["primary", "secondary"])
async def test_a_clock_set_back_lengthens_no_send(pair: Pair, clock: SetClock, side: str) -> None:
    interval_s = 30 if side == "primary" else 0
    async with pair.sender(failover_interval=interval_s, backlog_queue_count=1, ping_primary_interval=60) as sender:
        await call(sender.paired_client.wait_until_paired)
        await call(sender.send_messages, ServiceBusMessage("warm"))
        with pair.primary.fault("silent" if side == "primary" else "refusing", "orders"):
            if side == "secondary":
                await call(sender.send_messages, ServiceBusMessage("warm, too"))
            with pair.secondary.fault("silent"):
                sending = asyncio.create_task(call(sender.send_messages, ServiceBusMessage("x"), timeout=1))
                await asyncio.sleep(0.3)
                clock.ahead_s -= STEP_S
                with pytest.raises(OperationTimeoutError):
                    await asyncio.wait_for(asyncio.shield(sending), 40)


async def test_a_clock_set_forward_fails_nothing_over(pair: Pair, clock: SetClock) -> None:
    async with pair.sender(failover_interval=20) as sender:
        for number in range(3):
            await call(sender.send_messages, ServiceBusMessage(str(number)))
            clock.ahead_s += STEP_S
        with pair.primary.fault("refusing", "orders"):
            held = asyncio.create_task(call(sender.send_messages, ServiceBusMessage("held")))
            await asyncio.sleep(0.3)
            clock.ahead_s += STEP_S
            await asyncio.sleep(0.3)
            assert sender.paired_client.entity_states == {"orders": EntityState.SUSPECT}
        await held
        assert pair.told("failed-over") == []
    await pair.in_primary(4)
