"""A primary that cannot or will not accept messages: they stay, and one bad destination holds up no other."""

from __future__ import annotations

import asyncio

import pytest

from twinbus.auth.policies import Policy, Right
from twinbus.broker.configuration.config import NamespaceConfig
from twinbus.client import BusClient, Message
from twinbus.paired.syphon import Syphon
from twinbus.paired.syphon import intake as intake_module
from twinbus.paired.syphon import syphon as syphon_module
from twinbus.testing import Broker

from .conftest import Pair, until
from .test_syphon import numbered


async def test_primary_down_everything_stays_unlocked(secondary_broker: Broker) -> None:
    with Broker(["first"], sync=False) as primary:
        pair = Pair(primary, secondary_broker)
        path = pair.destination()
        await pair.divert(path, numbered(500))
        await asyncio.to_thread(primary.stop)
        async with pair.running() as syphon:
            await until(lambda: bool(syphon.outage))
            await until(lambda: syphon.in_hand == 0)
            assert syphon.tally.total().syphoned == 0
            # Unlocked: others can receive them.
            async with BusClient.from_connection_string(secondary_broker.connection_string()) as client:
                receiver = await client.receiver(pair.queues[0])
                messages = await receiver.receive_batch(500, 2)
                assert len(messages) == 500
                assert [m.message_id for m in messages] == [f"m{n}" for n in range(500)]
                receiver.release(messages)
            # It does not spin meanwhile.
            received = syphon.tally.total().received
            await asyncio.sleep(0.3)
            assert syphon.tally.total().received == received
            await asyncio.to_thread(primary.start)
            await until(lambda: syphon.tally.total().syphoned == 500)
        assert [m.message_id for m in await pair.taken(path, 500)] == [f"m{n}" for n in range(500)]


async def test_killed_in_the_middle_and_back() -> None:
    with Broker(["first"], sync=False) as primary, Broker(["second"], sync=False) as secondary:
        pair = Pair(primary, secondary)
        path = pair.destination(requires_duplicate_detection=True)
        await pair.divert(path, numbered(3_000))
        async with pair.running() as syphon:
            await until(lambda: syphon.tally.total().syphoned > 200)
            await asyncio.to_thread(primary.stop)
            await asyncio.sleep(0.2)
            await asyncio.to_thread(primary.start)
            await until(lambda: syphon.tally.total().syphoned >= 3_000, 15)
            assert await pair.left() == 0
        found = [m.message_id for m in await pair.taken(path, 3_001, wait_s=0.5)]
        assert len(found) == len(set(found)) == 3_000


@pytest.mark.parametrize("mode", ["refusing", "silent", "down"])
async def test_one_bad_destination_holds_up_no_other(pair: Pair, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syphon_module, "SYPHON_STOP_S", 0.2)
    bad, good = pair.destination(), pair.destination()
    # The bad ones are in front, and more than a syphon holds for one destination.
    await pair.divert(bad, numbered(1_000, "bad"))
    await pair.divert(good, numbered(200, "good"))
    async with pair.running() as syphon:
        with pair.primary.fault(mode, bad):
            assert len(await pair.taken(good, 200, wait_s=8)) == 200
            assert syphon.tally.total().dead_lettered == 0
            if mode == "refusing":
                assert syphon.failing == [bad]
        if mode == "silent":
            # The hanging send times out; a new syphon need not wait for it.
            return
        await until(lambda: syphon.tally.total().syphoned == 1_200, 15)
    assert len(await pair.taken(bad, 1_000)) == 1_000


async def test_a_full_destination(pair: Pair) -> None:
    full, good = pair.destination(max_megabytes=1), pair.destination()
    body = b"x" * 100_000
    await pair.divert(full, [Message(body, message_id=str(number)) for number in range(20)])
    await pair.divert(good, numbered(10))
    async with pair.running() as syphon:
        assert len(await pair.taken(good, 10)) == 10
        await until(lambda: syphon.failing == [full])
        taken = await pair.taken(full, 20, wait_s=4)
        await until(lambda: syphon.tally.total().syphoned == 30)
        assert syphon.tally.total().dead_lettered == 0
    assert {m.message_id for m in taken} == {str(number) for number in range(20)}


async def test_unauthorised_is_left(secondary_broker: Broker) -> None:
    listen = Policy("listen-only", frozenset({Right.LISTEN}), "c2VjcmV0")
    with Broker([NamespaceConfig("first", policies=[listen])], dev=False, sync=False) as primary:
        pair = Pair(primary, secondary_broker)
        path = pair.destination()
        await pair.divert(path, numbered(10))
        port = primary.endpoint().port
        text = f"Endpoint=sb://localhost:{port};SharedAccessKeyName=listen-only;SharedAccessKey=c2VjcmV0;"
        syphon = Syphon.from_connection_strings(
            text + "UseDevelopmentEmulator=true",
            secondary_broker.connection_string(),
            primary_name=pair.name,
            backlog_queue_count=2,
        )
        report = await syphon.run(once=True, patience_s=1)
        assert report.failing == (path,)
        assert report.undrained == (pair.queues[0],)
        assert report.total.dead_lettered == 0
        assert await pair.left() == 10
        # Released when it ended: the next one gets them at once.
        assert (await pair.syphon().run(once=True)).total.syphoned == 10


async def test_more_bad_ones_than_a_link_holds(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake_module, "SYPHON_ASIDE_MESSAGES_MAX", 300)
    bad, good = pair.destination(), pair.destination()
    await pair.divert(bad, numbered(2_000, "bad"))
    await pair.divert(good, numbered(50, "good"))
    async with pair.running() as syphon:
        with pair.primary.fault("refusing", bad):
            assert len(await pair.taken(good, 50, wait_s=10)) == 50
            assert syphon.tally.total().dead_lettered == 0
            assert syphon.in_hand < 1_000
