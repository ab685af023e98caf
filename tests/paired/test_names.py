"""The name of a namespace whose host has none: it is asked for it, and has one name in the ledger whatever fails first."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from pathlib import Path
from typing import Any, ClassVar

import pytest
from azure.servicebus import ServiceBusMessage

from tests.faults.outages_proxy import Proxy
from tests.paired.doorkeeper import doorkeeper
from tests.paired.pairs import Pair, call
from twinbus.ledger import files
from twinbus.ledger.records import decode
from twinbus.limits import LEDGER_LINE_BYTES_MAX


class Forgetful(Proxy):
    """Cuts the first requests for the namespace's name, and forwards later ones when it may."""

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


def through(pair: Pair, side: str, port: int) -> dict[str, Any]:
    broker = getattr(pair, side)
    return {side: broker.connection_string().replace(f":{broker.endpoint().port}", f":{port}")}


@pytest.mark.parametrize("side", ["primary", "secondary"])
async def test_failed_requests_do_not_rename_a_namespace(pair: Pair, side: str, tmp_path: Path) -> None:
    Forgetful.cuts, Forgetful.holding = 2, True
    with doorkeeper(getattr(pair, side).endpoint().port, Forgetful) as door:
        async with pair.sender(
            **through(pair, side, door.port),
            primary_name=None,
            backlog_queue_count=1,
            failover_interval=0,
            ledger=tmp_path,
        ) as sender:
            # Counted before anybody knows the name.
            await call(sender.send_messages, ServiceBusMessage("direct"))
            await asyncio.sleep(1.2)
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
