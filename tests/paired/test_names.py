"""The name of a namespace whose host has none and whose broker, of the last version, has no identity: the
administration API has it, and it stays one name whichever request fails first."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from azure.servicebus import ServiceBusMessage

from tests.faults.outages_proxy import Proxy
from tests.paired.doorkeeper import doorkeeper
from tests.paired.pairs import Pair, call
from twinbus import paired
from twinbus.ledger import files
from twinbus.ledger.records import decode
from twinbus.limits import LEDGER_LINE_BYTES_MAX
from twinbus.paired import aio
from twinbus.paired._async.namespaces import AsyncPairedNamespace
from twinbus.paired._async.provision import async_name_of
from twinbus.testing import Broker


class Forgetful(Proxy):
    """Cuts the first requests for the namespace's name, and forwards later ones when allowed."""

    # Shared with the test, which runs on another loop.
    cuts: ClassVar[int]
    holding: ClassVar[bool]

    async def _accept(self, reader: StreamReader, writer: StreamWriter, head: bytes = b"") -> None:
        head = await reader.readexactly(4)
        if head == b"GET ":
            head += await reader.readuntil(b"\r\n")
        if b"namespaceinfo" in head:
            while Forgetful.holding:
                await asyncio.sleep(0.005)
            if Forgetful.cuts:
                Forgetful.cuts -= 1
                writer.transport.abort()
                return
        await super()._accept(reader, writer, head)


@pytest.fixture
def _last_version(pair: Pair) -> Iterator[None]:
    """Neither broker says who it is when a connection is opened."""
    kept: dict[Broker, dict[Any, Any]] = {}
    for broker in (pair.primary, pair.secondary):

        def silence(server: Any, broker: Broker = broker) -> None:
            (host,) = server.hosts.values()
            kept[broker] = dict(host.open_properties)
            for name in ("namespace", "identity"):
                del host.open_properties[name]

        broker.call(silence)
    yield
    for broker, properties in kept.items():
        broker.call(
            lambda server, properties=properties: next(iter(server.hosts.values())).open_properties.update(properties)
        )


def through(pair: Pair, side: str, port: int) -> dict[str, Any]:
    broker = getattr(pair, side)
    return {side: broker.connection_string().replace(f":{broker.endpoint().port}", f":{port}")}


@pytest.mark.usefixtures("_last_version")
@pytest.mark.parametrize("side", ["primary", "secondary"])
async def test_failed_requests_do_not_rename_a_namespace(
    pair: Pair, side: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinbus.paired.journal.METER_INTERVAL_MS", 20)
    Forgetful.cuts, Forgetful.holding = 2, True
    with doorkeeper(getattr(pair, side).endpoint().port, Forgetful) as door:
        async with pair.sender(
            **through(pair, side, door.port),
            primary_name=None,
            backlog_queue_count=1,
            failover_interval=0,
            # All tries must fit into it on a loaded machine.
            try_timeout=20,
            ledger=tmp_path,
        ) as sender:
            # Counted before the name is known.
            await call(sender.send_messages, ServiceBusMessage("direct"))
            await asyncio.sleep(0.1)
            Forgetful.holding = False
            await call(sender.paired_client.wait_until_paired)
            assert sender.paired_client.backlog_queues == ["contoso/x-servicebus-transfer/0"]
            with pair.primary.fault("refusing", "orders"):
                await call(sender.send_messages, ServiceBusMessage("diverted"))
    assert Forgetful.cuts == 0
    records = [decode(line) for path in tmp_path.glob("*.jsonl") for line in files.lines(path, LEDGER_LINE_BYTES_MAX)]
    assert {record.namespace for record in records} == {"contoso", "fabrikam"}
    targets = {target for record in records if (target := getattr(record, "target", None))}
    assert targets <= {"fabrikam"}


@pytest.mark.usefixtures("_last_version")
@pytest.mark.parametrize("pair", ["aio"], indirect=True)
async def test_a_namespace_that_is_away_keeps_the_name_it_told(pair: Pair) -> None:
    Forgetful.cuts, Forgetful.holding = 0, False
    with doorkeeper(pair.primary.endpoint().port, Forgetful) as door:
        text = through(pair, "primary", door.port)["primary"]
        told, untold = AsyncPairedNamespace.of_string(text), AsyncPairedNamespace.of_string(text)
        assert await async_name_of(told) == "contoso"
        Forgetful.cuts = 1000
        assert await async_name_of(told) == "contoso"
        assert await async_name_of(untold) == f"localhost-{door.port}"
        asked, Forgetful.cuts = 1000 - Forgetful.cuts, 1000
        # A silent namespace is asked less often: the time for one answer is the time for all of them.
        Forgetful.holding = True
        untold.admin_options = {"connection_timeout": 0.3, "read_timeout": 0.3}
        assert await async_name_of(untold, timeout_s=0.3) == f"localhost-{door.port}"
        Forgetful.holding = False
        while Forgetful.cuts == 1000:
            await asyncio.sleep(0.01)
        assert 1000 - Forgetful.cuts < asked


@pytest.mark.parametrize(
    ("hosts", "name", "waits"),
    [
        (("a.example.net", "b.example.net"), None, False),
        (("a.example.net", "localhost:1"), None, True),
        (("localhost:1", "b.example.net"), None, True),
        (("localhost:1", "b.example.net"), "a", False),
    ],
)
async def test_the_ledger_waits_only_for_names_that_nobody_knows(
    hosts: tuple[str, str], name: str | None, waits: bool, tmp_path: Path
) -> None:
    first, second = (f"Endpoint=sb://{host}/;SharedAccessKeyName=n;SharedAccessKey=k" for host in hosts)
    for kind in (paired.PairedServiceBusClient, aio.PairedServiceBusClient):
        client: Any = kind.from_connection_strings(first, second, primary_name=name, ledger=tmp_path)
        assert client._pair.events.journal.waits_for_names is waits
        await call(client.close)
