"""A secondary that is down stops no send to a healthy primary; pairing continues in the background."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from tests.paired.doorkeeper import doorkeeper
from tests.paired.pairs import Pair, call
from tests.paired.test_backlog import NOBODY
from twinbus.paired import PairingError
from twinbus.testing import Broker


def through(pair: Pair, port: int) -> str:
    """The secondary's connection string, through a proxy."""
    return pair.secondary.connection_string().replace(f":{pair.secondary.endpoint().port}", f":{port}")


async def test_a_secondary_that_is_down_delays_no_send(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "twinbus.paired"):
        async with pair.sender(secondary=NOBODY) as sender:
            await call(sender.send_messages, ServiceBusMessage("direct"))
            assert pair.told("diverted") == []
            await pair.until("pairing-failed")
            assert sender.paired_client.backlog_queues == []
            assert "No backlog queue could be found or created in the secondary" in caplog.text
    assert await pair.in_primary(1)


async def test_a_frozen_secondary_delays_no_send(pair: Pair) -> None:
    with doorkeeper(pair.secondary.endpoint().port) as door:
        door.strike(stall=True)
        # A search for the backlog queues takes longer than the send's timeout: a send that waited for it would fail.
        async with pair.sender(secondary=through(pair, door.port), try_timeout=50) as sender:
            await call(sender.send_messages, ServiceBusMessage("direct"), timeout=45)
            assert sender.paired_client.backlog_queues == []
            assert pair.told("pairing-failed") == []
    assert await pair.in_primary(1)


async def test_a_frozen_secondary_is_not_asked_for_every_queue(pair: Pair) -> None:
    with doorkeeper(pair.secondary.endpoint().port) as door:
        door.strike(stall=True)
        soon = {"connection_timeout": 0.3, "read_timeout": 0.3}
        async with pair.client(
            secondary=through(pair, door.port), backlog_queue_count=100, admin_options=soon
        ) as client:
            with pytest.raises(PairingError, match="No backlog queue could be found or created"):
                await call(client.wait_until_paired, timeout=20)


async def test_diversion_is_refused_with_the_reason_until_the_pair_is_made(pair: Pair) -> None:
    async with pair.sender(secondary=NOBODY, failover_interval=0) as sender:
        await call(sender.send_messages, ServiceBusMessage("direct"))
        # A search that has not ended yet has no reason to report.
        await pair.until("pairing-failed")
        with (
            pair.primary.fault("refusing", "orders"),
            pytest.raises(PairingError, match="No backlog queue could be found or created"),
        ):
            await call(sender.send_messages, ServiceBusMessage("refused"), timeout=2)
    assert await pair.in_primary(1)


async def test_a_send_that_waits_for_the_pair_is_diverted_when_it_is_made(pair: Pair) -> None:
    with doorkeeper(pair.secondary.endpoint().port) as door:
        door.strike(stall=True)
        options: dict[str, Any] = {"secondary": through(pair, door.port), "failover_interval": 0}
        async with pair.sender(**options) as sender:
            with pair.primary.fault("refusing", "orders"):
                sending = asyncio.create_task(call(sender.send_messages, ServiceBusMessage("late"), timeout=40))
                await pair.until("failed-over")
                door.heal()
                await sending
                assert pair.told("diverted")
    assert await pair.in_backlog(1)


async def test_who_wants_a_pair_waits_for_it(pair: Pair) -> None:
    async with pair.client() as client:
        await call(client.wait_until_paired)
        assert len(client.backlog_queues) == 3
    client = pair.make(secondary=NOBODY)
    for _ in range(2):
        with pytest.raises(PairingError, match="No backlog queue could be found or created in the secondary"):
            await call(client.wait_until_paired)
    with pytest.raises(PairingError):
        await call(client.wait_until_paired, timeout=0.01)
    await call(client.close)


async def test_the_first_send_after_a_failover_waits_for_a_pairing_under_way(pair: Pair) -> None:
    with pair.primary.fault("down"):
        async with pair.sender(failover_interval=0) as sender:
            await call(sender.send_messages, ServiceBusMessage("x"))
    assert await pair.in_backlog(1)


# --- inside the diverter ---------------------------------------------------------------------------------------------


async def test_a_send_that_waits_for_the_backlog_goes_to_a_primary_that_is_back(pair: Pair) -> None:
    async with pair.sender(failover_interval=0, backlog_queue_count=1) as sender:
        await call(sender.paired_client.wait_until_paired)
        with pair.secondary.fault("refusing"):
            with pair.primary.fault("refusing", "orders"):
                sending = asyncio.create_task(call(sender.send_messages, ServiceBusMessage("home"), timeout=45))
                await pair.until("backlog-queue-out")
            await sending
    assert await pair.in_primary(1)
    await pair.in_backlog(0, names=1)


async def test_a_send_to_a_frozen_backlog_goes_to_a_primary_that_is_back(pair: Pair) -> None:
    with doorkeeper(pair.secondary.endpoint().port) as door:
        options: dict[str, Any] = {"secondary": through(pair, door.port), "failover_interval": 0}
        async with pair.sender(backlog_queue_count=1, try_timeout=30, **options) as sender:
            await call(sender.paired_client.wait_until_paired)
            door.strike(stall=True)
            with pair.primary.fault("refusing", "orders"):
                # One attempt at the backlog gets half of the time, and the primary is back long before it ends.
                sending = asyncio.create_task(call(sender.send_messages, ServiceBusMessage("home"), timeout=20))
                await pair.until("failed-over")
            await sending
    assert await pair.in_primary(1)


async def test_a_secondary_that_refuses_is_no_reason_to_wait(pair: Pair) -> None:
    with Broker(["strict"], dev=False, sync=False) as strict:
        wrong = strict.connection_string().replace("SharedAccessKey=", "SharedAccessKey=x")
        async with pair.sender(secondary=wrong, failover_interval=0) as sender:
            await call(sender.send_messages, ServiceBusMessage("direct"))
            await pair.until("pairing-failed")
            with pair.primary.fault("refusing", "orders"), pytest.raises(PairingError, match="ClientAuthentication"):
                await call(sender.send_messages, ServiceBusMessage("refused"))
    assert {event.cause for event in pair.told("pairing-failed")} == {"ClientAuthenticationError"}
    assert await pair.in_primary(1)
