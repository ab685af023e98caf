"""The end of a client in any state: sends say why they end, and nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from contextlib import nullcontext

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from tests.paired.doorkeeper import doorkeeper
from tests.paired.pairs import FAST, Pair, call
from tests.paired.test_backlog import NOBODY
from tests.paired.test_secondary_away import through
from twinbus.paired import PairingError
from twinbus.paired.registry import OPEN_PAIRS


@pytest.fixture(autouse=True)
def _brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up soon on closes that nobody answers."""
    for colour in ("_sync", "_async"):
        monkeypatch.setattr(f"twinbus.paired.{colour}.channel.CLOSE_S", 0.3)


async def until_gone(before: set[threading.Thread]) -> list[threading.Thread]:
    """Our threads that are still alive when the time is up."""
    for _ in range(12_000):
        left = [each for each in set(threading.enumerate()) - before if each.name.startswith("twinbus")]
        if not left:
            break
        await asyncio.sleep(0.01)
    return left


async def test_closing_during_a_divert(pair: Pair) -> None:
    threads, connections = set(threading.enumerate()), pair.connections()
    client = pair.make(failover_interval=0, backlog_queue_count=1)
    await call(client.wait_until_paired)
    sender = client.get_queue_sender("orders")
    with pair.primary.fault("refusing", "orders"), pair.secondary.fault("silent"):
        sends = [asyncio.create_task(call(sender.send_messages, ServiceBusMessage("x"), timeout=50)) for _ in range(3)]
        await pair.until("failed-over")
        await asyncio.sleep(0.2)
        assert not any(send.done() for send in sends)
        await call(client.close)
        for send in sends:
            with pytest.raises(ValueError, match="already been shutdown"):
                await send
    assert await until_gone(threads) == []
    for _ in range(12_000):
        if pair.connections() <= connections:
            break
        await asyncio.sleep(0.01)
    assert pair.connections() <= connections
    await pair.in_backlog(0, names=1)


async def test_closing_while_pairing(pair: Pair) -> None:
    threads = set(threading.enumerate())
    with doorkeeper(pair.secondary.endpoint().port) as door:
        door.strike(stall=True)
        client = pair.make(secondary=through(pair, door.port))
        waiting = asyncio.create_task(call(client.wait_until_paired))
        await asyncio.sleep(0.2)
        await call(client.close)
        with pytest.raises(PairingError, match=r"still looked for|cannot be paired|No backlog queue"):
            await waiting
        assert await until_gone(threads) == []


@pytest.mark.parametrize("state", ["pairing", "failed over"])
async def test_a_client_that_nobody_holds_ends_by_itself(pair: Pair, state: str) -> None:
    threads = set(threading.enumerate())
    tasks = set(asyncio.all_tasks())
    client = pair.package.PairedServiceBusClient.from_connection_strings(
        pair.primary.connection_string(),
        NOBODY if state == "pairing" else pair.secondary.connection_string(),
        **{**FAST, "failover_interval": 0},
    )
    sender = client.get_queue_sender("orders")
    with pair.primary.fault("refusing") if state == "failed over" else nullcontext():
        await call(sender.send_messages, ServiceBusMessage("x"))
        dead = weakref.ref(client)
        del client, sender
        # A ping under way may still hold it for a moment.
        while gc.collect() >= 0 and dead() is not None:
            await asyncio.sleep(0.05)
        assert await until_gone(threads) == []
        await ours_done(tasks)
    assert not [each for each in OPEN_PAIRS.primaries() if each.port == pair.primary.endpoint().port]


async def ours_done(before: set[asyncio.Task[object]]) -> None:
    """Wait for the client's remaining tasks, at most as long as for threads."""
    for _ in range(12_000):
        if not {each for each in set(asyncio.all_tasks()) - before if "_awaited" in repr(each.get_coro())}:
            return
        await asyncio.sleep(0.01)
    pytest.fail("a task of the client is left")


async def test_closing_closes_senders_that_nobody_holds(pair: Pair) -> None:
    before = pair.connections()
    client = pair.make()
    sender = client.get_queue_sender("orders")
    await call(sender.send_messages, ServiceBusMessage("x"))
    del sender
    gc.collect()
    await call(client.close)
    for _ in range(12_000):
        if pair.connections() <= before:
            break
        await asyncio.sleep(0.01)
    assert pair.connections() <= before


async def test_a_sender_keeps_its_client_alive(pair: Pair) -> None:
    client = pair.package.PairedServiceBusClient.from_connection_strings(
        pair.primary.connection_string(), pair.secondary.connection_string(), **{**FAST, "failover_interval": 0}
    )
    sender = client.get_queue_sender("orders")
    del client
    gc.collect()
    with pair.primary.fault("refusing", "orders"):
        await call(sender.send_messages, ServiceBusMessage("diverted"))
    await call(sender.close)
    assert await pair.in_backlog(1)


@pytest.mark.parametrize("closed", ["sender", "client"])
@pytest.mark.parametrize("state", ["healthy", "failed over"])
async def test_closing_while_many_send(pair: Pair, closed: str, state: str) -> None:
    """A send that raises that its sender is closed has stored nothing, and the others are done when close returns."""
    client = pair.make(failover_interval=0, backlog_queue_count=1, max_in_flight=4)
    await call(client.wait_until_paired)
    sender = client.get_queue_sender("orders")
    accepted: list[str] = []
    refused: dict[str, BaseException] = {}
    # Sends that were begun before the close and are not done.
    under_way: set[str] = set()

    async def keep_sending(task: int) -> None:
        for number in range(100_000):
            body = f"{task}-{number}"
            under_way.add(body)
            try:
                await call(sender.send_messages, ServiceBusMessage(body), timeout=40)
            except Exception as error:
                refused[body] = error
                return
            finally:
                under_way.discard(body)
            accepted.append(body)

    with pair.primary.fault("refusing", "orders") if state == "failed over" else nullcontext():
        tasks = [asyncio.create_task(keep_sending(number)) for number in range(30)]
        while len(accepted) < 40:
            await asyncio.sleep(0.01)
        # An answer takes a while, so that some are certainly on the wire.
        broker = pair.primary if state == "healthy" else pair.secondary
        with broker.fault("slow", delay_ms=300):
            await asyncio.sleep(0.2)
            await call(sender.close if closed == "sender" else client.close)
            # The calls of the sync client return in other threads.
            await asyncio.sleep(0.1)
            assert not under_way, "close returns when the sends have"
        await asyncio.gather(*tasks)
    await call(client.close)
    assert {type(error) for error in refused.values()} == {ValueError}
    assert all("already been shutdown" in str(error) for error in refused.values())
    if state == "healthy":
        stored = [bytes(each.body).decode() for each in await pair.in_primary(len(accepted))]
    else:
        found = await pair.in_backlog(len(accepted), names=1)
        stored = [bytes(each.body).decode() for batch in found.values() for each in batch]
    assert sorted(stored) == sorted(accepted)


@pytest.mark.parametrize("closed", ["sender", "client"])
async def test_closing_while_a_send_gets_no_answer(pair: Pair, closed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its outcome is not known, so it does not raise that the sender is closed."""
    for colour in ("_sync", "_async"):
        monkeypatch.setattr(f"twinbus.paired.{colour}.links.WIRE_FAREWELL_S", 0.3)
    client = pair.make(try_timeout=30)
    sender = client.get_queue_sender("orders")
    await call(sender.send_messages, ServiceBusMessage("first"))
    with pair.primary.fault("silent", "orders"):
        send = asyncio.create_task(call(sender.send_messages, ServiceBusMessage("second"), timeout=40))
        await asyncio.sleep(0.2)
        await call(sender.close if closed == "sender" else client.close)
        with pytest.raises(ServiceBusError):
            await send
    await call(client.close)
