"""The syphon inside a paired client, and how the two namespaces of such a pair end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from tests.paired.pairs import Pair, call, opened
from twinbus.ledger.files import complete_files
from twinbus.ledger.records import Backlog, decode
from twinbus.ledger.totals import Totals
from twinbus.paired import PairFaultedError, aio
from twinbus.paired.syphon import closing, monitor


async def test_diverted_messages_come_home(pair: Pair, tmp_path: Path) -> None:
    async with pair.sender(enable_syphon=True, failover_interval=0, ledger=tmp_path) as sender:
        with pair.primary.fault("down"):
            for number in range(5):
                await call(sender.send_messages, ServiceBusMessage(b"x", message_id=f"m{number}"))
            assert len(pair.told("diverted")) == 5
        found = await pair.in_primary(5, wait_s=10)
        assert [message.message_id for message in found] == [f"m{number}" for number in range(5)]
        await pair.until("syphoned")
        await pair.until("failed-back")
    assert sum(event.count for event in pair.told("syphoned")) == 5
    totals = Totals()
    totals.read(complete_files(tmp_path))
    counts: dict[tuple[str, str, str], int] = {}
    for group, sums in totals.groups.items():
        if group.outcome == "ok":
            key = (group.source, group.kind, group.stage)
            counts[key] = counts.get(key, 0) + sums.count
    # Three of the four operations; the fourth is the receiver's.
    assert counts["client", "send", "to-backlog"] == 5
    assert counts["syphon", "receive", "from-backlog"] >= 5
    assert counts["syphon", "send", "to-primary"] == 5


async def test_nothing_is_left_behind(pair: Pair) -> None:
    before = pair.connections()
    async with pair.sender(enable_syphon=True) as sender:
        await call(sender.send_messages, ServiceBusMessage(b"x"))
    async with asyncio.timeout(120):
        while pair.connections() > before:
            await asyncio.sleep(0.02)
    assert await pair.in_primary(1)


@pytest.mark.parametrize(
    ("retry", "longest_ms"),
    [
        ({}, [500, 1_000, 2_000, 4_000]),
        ({"retry_backoff_factor": 0.2, "retry_backoff_max": 1}, [400, 800, 1_000, 1_000]),
        ({"retry_backoff_factor": 7.0, "retry_mode": "fixed"}, [7_000, 7_000, 7_000, 7_000]),
        ({"retry_backoff_max": 0.3}, [300, 300, 300, 300]),
        # It never gives up, so it must not be without any pause.
        ({"retry_backoff_factor": 0}, [100, 200, 400, 800]),
    ],
)
async def test_its_pauses_are_those_of_the_retry_options(
    pair: Pair, retry: dict[str, Any], longest_ms: list[int]
) -> None:
    async with pair.client(enable_syphon=True, **retry) as client:
        await call(client.wait_until_paired)
        pauses = client._pair._syphoning._make().pauses
    for most_ms in longest_ms:
        # A syphon draws each from half of it to all of it.
        assert most_ms / 2 <= pauses.fail("orders") <= most_ms


@pytest.mark.parametrize("side", ["primary", "secondary"])
async def test_the_other_one_is_faulted(pair: Pair, side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing, "PAIR_CLOSE_S", 0.3)
    async with pair.client(enable_syphon=True) as client, opened(client.get_queue_sender("orders")) as sender:
        receiver: Any = client.get_queue_receiver("orders")
        await call(sender.send_messages, ServiceBusMessage(b"x"))
        await call(client.close_namespace, side)
        if side == "secondary":
            # It has its time, and is fine until then.
            await call(sender.send_messages, ServiceBusMessage(b"x"))
            await asyncio.sleep(1)
            text = "the secondary was closed, and the primary was not closed within 0.3 seconds"
        else:
            text = "The primary of the pair was closed"
        with pytest.raises(PairFaultedError, match=text):
            await call(sender.send_messages, ServiceBusMessage(b"x"))
        with pytest.raises(PairFaultedError, match=text):
            await call(receiver.receive_messages, 1, 1)
    await pair.in_primary(2 if side == "secondary" else 1)


async def test_a_pair_closed_in_time_faults_nobody(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing, "PAIR_CLOSE_S", 0.3)
    client = pair.make(enable_syphon=True)
    async with opened(client), opened(client.get_queue_sender("orders")) as sender:
        await call(client.close_namespace, "secondary", "its key was withdrawn")
    await asyncio.sleep(0.5)
    with pytest.raises(ValueError, match="shutdown"):
        await call(sender.send_messages, ServiceBusMessage(b"x"))


async def test_without_the_syphon_nobody_is_faulted(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing, "PAIR_CLOSE_S", 0.2)
    async with pair.client() as client, opened(client.get_queue_sender("orders")) as sender:
        await call(client.close_namespace, "secondary")
        await asyncio.sleep(0.5)
        await call(sender.send_messages, ServiceBusMessage(b"x"))
    assert await pair.in_primary(1)


async def test_the_ledger_has_the_backlogs_depth(pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "BACKLOG_LOOK_S", 0.2)
    async with pair.sender(enable_syphon=True, failover_interval=0, ledger=tmp_path) as sender:
        with pair.primary.fault("down"):
            for number in range(5):
                await call(sender.send_messages, ServiceBusMessage(b"x", message_id=f"m{number}"))
            await asyncio.sleep(1)
        await pair.in_primary(5, wait_s=10)
        await asyncio.sleep(1)
    records = [decode(line) for file in complete_files(tmp_path) for line in file.read_bytes().splitlines()]
    looks = [record for record in records if isinstance(record, Backlog)]
    assert max(look.depth for look in looks) == 5
    assert {look.source for look in looks} == {"syphon"}
    # The last record of each queue says that it is empty.
    assert {*{look.entity: look.depth for look in sorted(looks, key=lambda look: look.start_ms)}.values()} == {0}


async def test_the_depths_of_the_backlog_queues(pair: Pair) -> None:
    async with pair.sender(failover_interval=0, enable_syphon=True) as sender:
        client = sender.paired_client
        await call(client.wait_until_paired)
        name = client.backlog_queues[0]
        found = await call(client._pair._syphoning._counts, [name, "missing"])
    assert {each: tuple(count) for each, count in found.items()} == {name: (0, 0, 0)}


async def test_dead_letters_are_counted_apart(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    class Admin:
        async def __aenter__(self) -> Admin:
            return self

        async def __aexit__(self, *error: object) -> None:
            pass

        async def get_queue_runtime_properties(self, name: str) -> Any:
            return SimpleNamespace(total_message_count=5, dead_letter_message_count=2, size_in_bytes=7)

    client = aio.PairedServiceBusClient.from_connection_strings(
        pair.primary.connection_string(), pair.secondary.connection_string(), enable_syphon=True
    )
    syphoning = client._pair._syphoning
    assert syphoning is not None
    monkeypatch.setattr(syphoning._secondary, "admin", lambda **options: Admin())
    assert await syphoning._counts(["q"]) == {"q": monitor.Count(3, 7, 2)}
    await client.close()


async def test_no_syphon_starts_after_the_end(pair: Pair) -> None:
    client = pair.make(enable_syphon=True)
    await call(client.close)
    # The search for the backlog queues was under way and ends only now.
    client._pair._paired()
    assert client._pair._syphoning._syphon is None
