"""Order inside a session across a failover, whatever the clocks of the two namespaces say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage

from tests.paired.pairs import Pair, SkewedClock, call
from twinbus.client import BusClient
from twinbus.testing import Broker

MINUTE_MS = 60_000


@pytest.fixture(scope="module", params=[10, -10], ids=["ahead", "behind"])
def brokers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Broker, Broker, Path]]:
    """The secondary's clock is ten minutes wrong."""
    with (
        Broker(["contoso"], sync=False, allow_faults=True) as primary,
        Broker(["fabrikam"], sync=False, clock=SkewedClock(request.param * MINUTE_MS)) as secondary,
    ):
        yield primary, secondary, Path(tmp_path_factory.mktemp("ca"))


@pytest.fixture(autouse=True)
def _eager(monkeypatch: pytest.MonkeyPatch) -> None:
    for colour in ("_sync", "_async"):
        monkeypatch.setattr(f"twinbus.paired.{colour}.pair.SESSION_CHECK_S_MIN", 0)


async def take(pair: Pair, count: int) -> list[bytes]:
    """The messages in the order in which the syphon would receive them from the backlog queue."""
    async with BusClient.from_connection_string(pair.secondary.connection_string()) as client:
        receiver = await client.receiver("contoso/x-servicebus-transfer/0", delete=True)
        return [(await receiver.receive_batch(1, wait_s=5))[0].body for _ in range(count)]


async def test_a_session_follows_its_messages_until_they_are_gone(pair: Pair) -> None:
    async with pair.sender(session_order=True, backlog_queue_count=1, failover_interval=0) as sender:
        with pair.primary.fault("refusing", "orders"):
            for number in range(5):
                await call(sender.send_messages, ServiceBusMessage(f"s{number}", session_id="s"))
            for number in range(8):
                await call(sender.send_messages, ServiceBusMessage(f"t{number}", session_id="t"))
        await pair.until("failed-back")
        await call(sender.send_messages, ServiceBusMessage("s5", session_id="s"))
        assert await take(pair, 5) == [b"s0", b"s1", b"s2", b"s3", b"s4"]
        await call(sender.send_messages, ServiceBusMessage("s6", session_id="s"))
        assert await take(pair, 9) == [*(f"t{number}".encode() for number in range(8)), b"s5"]
        # Its own last message is still there; the other session's is not, and what is left is newer.
        await call(sender.send_messages, ServiceBusMessage("s7", session_id="s"))
        await call(sender.send_messages, ServiceBusMessage("t8", session_id="t"))
        assert await take(pair, 2) == [b"s6", b"s7"]
        await call(sender.send_messages, ServiceBusMessage("s8", session_id="s"))
    assert [message.body for message in await pair.in_primary(2)] == [b"t8", b"s8"]
