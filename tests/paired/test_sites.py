"""Two sites that call their primaries by the same address and name, and share a secondary: nothing goes to the wrong
home."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from tests.paired.pairs import call, opened
from twinbus import paired
from twinbus.broker.configuration.config import NamespaceConfig
from twinbus.client import BusClient, Message
from twinbus.client.envelope import wrap
from twinbus.paired import PairedEvent, aio
from twinbus.paired.syphon import Syphon
from twinbus.testing import Broker

OPTIONS: dict[str, Any] = {
    "backlog_queue_count": 2,
    "failover_interval": 0,
    "ping_primary_interval": 1,
    # A loaded machine is slow to answer; a primary that is away refuses at once.
    "try_timeout": 10,
    "retry_total": 0,
}


class Sites:
    """Two primaries at one address, of which one is up, and their secondary."""

    def __init__(self, folder: Path, colour: str) -> None:
        self._folder = folder
        self._package: Any = paired if colour == "sync" else aio
        self.secondary = Broker(["fabrikam"], sync=False)
        self.secondary.start()
        first = self._primary("a", 0)
        first.start()
        port = first.endpoint().port
        first.stop()
        self._primaries = {"a": first, "b": self._primary("b", port)}
        self.events: list[PairedEvent] = []
        self.text = first.connection_string()

    def _primary(self, name: str, port: int) -> Broker:
        folder = self._folder / f"data-{name}"
        return Broker([NamespaceConfig("contoso", port=port)], ["orders"], sync=False, data=folder)

    def close(self) -> None:
        for broker in (*self._primaries.values(), self.secondary):
            broker.close()

    def arrive(self, site: str) -> Broker:
        """The primary of this site is up now, at the address of both."""
        broker = self._primaries[site]
        broker.start()
        return broker

    @asynccontextmanager
    async def sender(self, **options: Any) -> AsyncIterator[Any]:
        client = self._package.PairedServiceBusClient.from_connection_strings(
            self.text,
            self.secondary.connection_string(),
            **{**OPTIONS, "on_event": self.events.append, **options},
        )
        async with opened(client), opened(client.get_queue_sender("orders")) as sender:
            sender.paired_client = client
            yield sender

    async def divert(self, sender: Any, *names: str) -> None:
        for name in names:
            await call(sender.send_messages, ServiceBusMessage(name, message_id=name), timeout=20)

    async def syphoned(self, **options: Any) -> Any:
        syphon = Syphon.from_connection_strings(
            self.text, self.secondary.connection_string(), **{"backlog_queue_count": 2, **options}
        )
        return await syphon.run(once=True, patience_s=10)

    async def home(self, site: str, up: bool = True) -> list[str]:
        """The orders of one site."""
        broker = self._primaries[site]
        if not up:
            broker.start()
        try:
            async with BusClient.from_connection_string(self.text) as client:
                found = await (await client.management("orders")).peek(100)
                return sorted(str(message.message_id) for message in found)
        finally:
            if not up:
                broker.stop()

    def waiting(self) -> dict[str, int]:
        def counted(server: Any) -> dict[str, int]:
            queues = server.hosts["fabrikam"].entities.queues()
            return {queue.path: queue.counts.active for queue in queues if queue.counts.active}

        return self.secondary.call(counted)


@pytest.fixture(params=["sync", "aio"])
def sites(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sites]:
    monkeypatch.setenv("TWINBUS_STATE_DIR", "")
    made = Sites(tmp_path, request.param)
    try:
        yield made
    finally:
        made.close()


def prefixes(queues: list[str]) -> set[str]:
    return {queue.partition("/")[0] for queue in queues}


def ran(sites: Sites, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Run `twinbus ... --json` as an operator of the site that is up."""
    environment = {
        **os.environ,
        "TWINBUS_PRIMARY": sites.text,
        "TWINBUS_SECONDARY": sites.secondary.connection_string(),
    }
    program = "from twinbus.cli.main import run; run()"
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments, "--json"], env=environment, capture_output=True, text=True
    )
    return done.returncode, json.loads(done.stdout)


def status(sites: Sites) -> tuple[int, dict[str, Any]]:
    return ran(sites, "pair", "status")


async def test_each_backlog_goes_to_its_own_home(sites: Sites) -> None:
    for site, names in (("a", ("a1", "a2", "a3")), ("b", ("b1", "b2"))):
        broker = sites.arrive(site)
        async with sites.sender() as sender:
            await call(sender.paired_client.wait_until_paired)
            queues = sender.paired_client.backlog_queues
            broker.stop()
            await sites.divert(sender, *names)
        assert all(name.startswith("contoso") for name in prefixes(queues))
    assert len(prefixes(list(sites.waiting()))) == 2, "the second site found the first one's name taken"
    broker = sites.arrive("b")
    code, found = await asyncio.to_thread(status, sites)
    assert (code, found["diverted"], found["homeless"], found["state"]) == (4, 2, 3, "homeless")
    report = await sites.syphoned()
    assert (report.total.syphoned, report.undrained) == (2, ())
    assert await sites.home("b") == ["b1", "b2"]
    broker.stop()
    broker = sites.arrive("a")
    report = await sites.syphoned()
    assert report.total.syphoned == 3
    assert await sites.home("a") == ["a1", "a2", "a3"]
    code, found = await asyncio.to_thread(status, sites)
    assert (code, found["diverted"], found["homeless"], found["state"]) == (0, 0, 0, "home")
    broker.stop()
    assert await sites.home("b", up=False) == ["b1", "b2"]


async def test_what_was_sent_to_nobody_known_waits_until_somebody_says_whose_it_is(sites: Sites) -> None:
    async with sites.sender() as sender:
        await sites.divert(sender, "x1", "x2")
        assert [event.cause for event in sites.events if event.kind == "name-unconfirmed"] == ["guess"]
        (prefix,) = prefixes(sender.paired_client.backlog_queues)
        assert prefix.startswith("localhost-")
    sites.arrive("b")
    report = await sites.syphoned()
    assert (report.total.syphoned, set(report.homeless)) == (0, set(sites.waiting()))
    assert not report.complete
    code, found = await asyncio.to_thread(status, sites)
    assert (code, found["primary"], found["diverted"], found["homeless"]) == (4, "contoso", 0, 2)
    adopt = ("backlog", "adopt", prefix, "--backlog-queue-count", "2")
    code, found = await asyncio.to_thread(ran, sites, *adopt, "--dry-run")
    assert (code, found["dry_run"], sum(each["messages"] for each in found["queues"])) == (0, True, 2)
    assert sum(sites.waiting().values()) == 2
    code, found = await asyncio.to_thread(ran, sites, *adopt, "--yes")
    assert (code, found["primary"], sum(each["moved"] for each in found["queues"])) == (0, "contoso", 2)
    code, found = await asyncio.to_thread(status, sites)
    assert (code, found["diverted"], found["homeless"], found["state"]) == (6, 2, 0, "no-syphon")
    report = await sites.syphoned()
    assert (report.total.syphoned, report.complete) == (2, True)
    assert await sites.home("b") == ["x1", "x2"]
    assert (await asyncio.to_thread(status, sites))[0] == 0


async def test_a_client_that_started_too_early_finds_its_own_name_later(sites: Sites) -> None:
    async with sites.sender() as sender:
        client = sender.paired_client
        await call(client.wait_until_paired)
        assert prefixes(client.backlog_queues) != {"contoso"}
        broker = sites.arrive("a")
        while prefixes(client.backlog_queues) != {"contoso"}:
            await asyncio.sleep(0.05)
        await sites.divert(sender, "home")
        broker.stop()
        await sites.divert(sender, "diverted")
    assert prefixes(list(sites.waiting())) == {"contoso"}
    sites.arrive("a")
    assert (await sites.syphoned()).total.syphoned == 1


async def test_a_name_that_was_confirmed_once_is_remembered(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWINBUS_STATE_DIR", str(tmp_path / "state"))
    broker = sites.arrive("a")
    async with sites.sender() as sender:
        await call(sender.paired_client.wait_until_paired)
    broker.stop()
    async with sites.sender() as sender:
        await sites.divert(sender, "late")
        assert prefixes(sender.paired_client.backlog_queues) == {"contoso"}
        assert [event.cause for event in sites.events if event.kind == "name-unconfirmed"] == ["remembered"]
    sites.arrive("a")
    assert (await sites.syphoned()).total.syphoned == 1


async def test_another_primary_at_the_address_gets_nothing_of_a_running_syphon(sites: Sites) -> None:
    broker = sites.arrive("a")
    async with sites.sender() as sender:
        await call(sender.paired_client.wait_until_paired)
        queue = sender.paired_client.backlog_queues[0]
    syphon = Syphon.from_connection_strings(sites.text, sites.secondary.connection_string(), backlog_queue_count=2)
    running = asyncio.create_task(syphon.run())
    while not syphon.queues:
        await asyncio.sleep(0.02)
    broker.stop()
    broker = sites.arrive("b")
    async with BusClient.from_connection_string(sites.secondary.connection_string()) as client:
        payload = wrap(Message(b"x", message_id="a1").encode(), "orders")
        await (await client.sender(queue)).send_many([payload])
    while not syphon.outage:
        await asyncio.sleep(0.02)
    assert await sites.home("b") == []
    broker.stop()
    sites.arrive("a")
    while syphon.tally.total().syphoned < 1:
        await asyncio.sleep(0.02)
    syphon.stop()
    await running
    assert await sites.home("a") == ["a1"]
