"""The receiver drops a ping that a broker delivers: the application never sees it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from tests.paired.pairs import Pair, call, opened
from twinbus.clock import SteppedClock

FAKE = "text/x-fake-ping"


@pytest.fixture(autouse=True)
def _fake_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our broker drops real pings; these get through."""
    monkeypatch.setattr("twinbus.paired.receiving.PING_CONTENT_TYPE", FAKE)


async def send(client: Any, *bodies: str) -> None:
    async with opened(client.get_queue_sender("orders")) as sender:
        for body in bodies:
            content_type = FAKE if body == "ping" else None
            await call(sender.send_messages, ServiceBusMessage(body, content_type=content_type))


async def test_receive_messages_does_not_show_pings(pair: Pair) -> None:
    async with pair.client() as client:
        await send(client, "ping", "a", "ping", "b")
        async with opened(client.get_queue_receiver("orders", max_wait_time=5)) as receiver:
            found = []
            while len(found) < 2:
                for message in await call(receiver.receive_messages, 1, max_wait_time=5):
                    found.append(str(message))
                    await call(receiver.complete_message, message)
            assert found == ["a", "b"]
            assert await call(receiver.receive_messages, 10, max_wait_time=0.3) == []
    await pair.in_primary(0)


@pytest.mark.parametrize("mode", ["peeklock", "receiveanddelete"])
async def test_iterating_does_not_show_pings(pair: Pair, mode: str) -> None:
    async with pair.client() as client:
        await send(client, "ping", "a", "ping", "b")
        async with opened(client.get_queue_receiver("orders", max_wait_time=0.2, receive_mode=mode)) as receiver:
            found = []
            if hasattr(receiver, "__anext__"):
                found.append(str(await receiver.__anext__()))
                async for message in receiver:
                    found.append(str(message))
            else:
                found.append(str(await asyncio.to_thread(next, receiver)))
                found += await asyncio.to_thread(lambda: [str(message) for message in receiver])
            assert found == ["a", "b"]


async def test_only_pings_are_nothing(pair: Pair) -> None:
    async with pair.client() as client:
        await send(client, "ping")
        async with opened(client.get_queue_receiver("orders")) as receiver:
            assert await call(receiver.receive_messages, 1, max_wait_time=0.3) == []


@pytest.mark.parametrize(("step_ms", "expected"), [(500, [2, 1.5, 1]), (1500, [2, 0.5]), (1000, [2, 1])])
async def test_pings_take_none_of_the_callers_time(
    pair: Pair, step_ms: int, expected: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair.client() as client:
        await send(client, "ping", "ping")
        async with opened(client.get_queue_receiver("orders")) as receiver:
            kind: Any = type(receiver).__mro__[1]
            waits: list[float] = []
            receive = kind.receive_messages
            clock = SteppedClock()

            def noted(self: Any, count: int, wait_s: float) -> Any:
                waits.append(wait_s)
                clock.step(ms=step_ms)
                return receive(self, count, wait_s)

            monkeypatch.setattr(kind, "receive_messages", noted)
            monkeypatch.setattr(f"{type(receiver).__module__}.MonotonicClock", lambda: clock)
            assert await call(receiver.receive_messages, 1, max_wait_time=2) == []
    assert waits == expected, "each has what is left"
