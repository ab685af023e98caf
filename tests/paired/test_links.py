"""Senders that would open the same links share them: few are opened, in the background, and nobody waits in vain."""

from __future__ import annotations

import asyncio

import pytest
from azure.servicebus import ServiceBusMessage

from tests.paired.pairs import Pair, call, opened
from twinbus.limits import OPENINGS_START
from twinbus.paired._async.links import AsyncLinks
from twinbus.paired.gates import AsyncOpeningGate
from twinbus.paired.synchronization import AsyncTasks, NoLinkYet


class Door:
    """A channel that opens when it is told to."""

    def __init__(self) -> None:
        self.opened = False
        self.go = asyncio.Event()
        self.error: Exception | None = None
        self.began = False

    async def open(self, silent_s: float) -> None:
        assert silent_s == 3
        self.began = True
        await self.go.wait()
        if self.error is not None:
            raise self.error
        self.opened = True

    async def close(self) -> None:
        self.opened = False


class World:
    """Links of scripted channels."""

    def __init__(self, senders: int = 1, max_in_flight: int = 10) -> None:
        self.doors: list[Door] = []
        self.tasks = AsyncTasks()
        self.late: list[Exception] = []
        self.gate = AsyncOpeningGate()
        self.links = AsyncLinks(
            self._make,  # type: ignore[arg-type]
            gate=self.gate,
            tasks=self.tasks,
            max_in_flight=max_in_flight,
            silent_s=3,
            on_failure=self.late.append,
        )
        for _ in range(senders):
            self.links.join()

    def _make(self) -> Door:
        self.doors.append(Door())
        return self.doors[-1]

    async def began(self, count: int) -> list[Door]:
        while sum(door.began for door in self.doors) < count:
            await asyncio.sleep(0.001)
        return self.doors


async def test_many_callers_share_what_one_opens() -> None:
    world = World(senders=100)
    tasks = [asyncio.create_task(world.links.take(60)) for _ in range(100)]
    doors = await world.began(OPENINGS_START)
    await asyncio.sleep(0.1)
    assert len(doors) == OPENINGS_START, "no more at once than the gate says"
    doors[0].go.set()
    for task in tasks:
        # The longest waiter first.
        channel = await task
        assert channel is doors[0]
        world.links.pool.give(channel)
    assert len(doors) < 2 * OPENINGS_START, "the one was fast enough for all"
    await world.tasks.finish()


async def test_callers_that_wait_long_get_more_links() -> None:
    world = World(senders=2, max_in_flight=3)
    first = asyncio.create_task(world.links.take(60))
    (door,) = await world.began(1)
    door.go.set()
    assert await first is door
    # It is in use and does not come back.
    others = [asyncio.create_task(world.links.take(60)) for _ in range(9)]
    doors = await world.began(6)
    for each in doors:
        each.go.set()
    got = [task for task in others if not (await asyncio.wait({task}, timeout=0.2))[1]]
    assert len(got) == 5
    assert len(doors) == 6, "three for each sender"
    for task in others:
        task.cancel()
    await world.tasks.finish()


async def test_an_opening_goes_on_for_the_next_caller() -> None:
    world = World()
    with pytest.raises(NoLinkYet):
        await world.links.take(0.05)
    (door,) = await world.began(1)
    door.go.set()
    assert await world.links.take(60) is door
    assert world.late == []
    await world.tasks.finish()


async def test_all_who_wait_for_a_link_that_cannot_be_opened_get_its_error() -> None:
    world = World()
    tasks = [asyncio.create_task(world.links.take(60)) for _ in range(3)]
    doors = await world.began(3)
    doors[0].error = OSError("away")
    doors[0].go.set()
    assert [str(each) for each in await asyncio.gather(*tasks, return_exceptions=True)] == ["away"] * 3
    assert world.late == []
    doors[1].error = OSError("late")
    doors[1].go.set()
    while not world.late:
        await asyncio.sleep(0.001)
    assert str(world.late[0]) == "late", "nobody waits: it counts for the entity"
    doors[2].go.set()
    assert await world.links.take(60) is doors[2]
    await world.tasks.finish()


async def test_links_are_closed_after_the_last_sender() -> None:
    world = World(senders=2)
    assert world.links.pool.most == 20
    assert not world.links.leave()
    assert world.links.leave(), "somebody must wait to close them"
    world.links.join()
    assert not world.links.leave(), "somebody already does"
    world.links.join()
    assert world.links.is_needed()
    assert world.links.leave()
    assert not world.links.is_needed()


async def test_a_sender_for_each_request_opens_one_link(pair: Pair) -> None:
    before = pair.connections()
    async with pair.client() as client:
        for number in range(10):
            async with opened(client.get_queue_sender("orders")) as sender:
                await call(sender.send_messages, ServiceBusMessage(str(number)))
            with pytest.raises(ValueError, match="shutdown"):
                await call(sender.send_messages, ServiceBusMessage("closed"))
        assert pair.connections() - before <= 2
    await pair.in_primary(10)


async def test_senders_with_an_identifier_have_links_of_their_own(pair: Pair) -> None:
    async with pair.client() as client:
        one, two = client.get_queue_sender("orders"), client.get_queue_sender("orders")
        own = client.get_queue_sender("orders", client_identifier="mine")
        topic = client.get_topic_sender("orders")
        assert one._links is two._links
        assert len({id(sender._links) for sender in (one, own, topic)}) == 3
        assert one.client_identifier != two.client_identifier


@pytest.mark.parametrize("count", [60])
async def test_many_senders_at_once_are_calm_before_in_and_after_an_outage(pair: Pair, count: int) -> None:
    """The short form of `tests/faults/stampede.py`."""
    async with pair.client(failover_interval=2, try_timeout=5) as client:
        await call(client.wait_until_paired)
        before = pair.connections()
        senders = [client.get_queue_sender("orders") for _ in range(count)]

        async def all_send() -> None:
            sends = [call(sender.send_messages, ServiceBusMessage("x")) for sender in senders]
            assert await asyncio.gather(*sends, return_exceptions=True) == [None] * count

        await all_send()
        assert pair.connections() - before < count / 2, "they share links"
        assert pair.told("failed-over") == []
        with pair.primary.fault("silent"):
            await all_send()
        assert len(pair.told("failed-over")) == 1
        assert sum(event.count for event in pair.told("diverted")) == count
        await pair.until("failed-back")
        await all_send()
        assert len(pair.told("failed-over")) == len(pair.told("failed-back")) == 1
    await pair.in_backlog(count)
