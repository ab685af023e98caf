"""The client's ledger: every operation of a failover with its stage, and its events, each once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from azure.servicebus import ServiceBusMessage

from tests.paired.pairs import Pair, call
from twinbus.ledger import files
from twinbus.ledger.records import FailoverEvent, Operations, decode
from twinbus.limits import LEDGER_LINE_BYTES_MAX


async def test_a_failover_in_the_ledger(pair: Pair, tmp_path: Path) -> None:
    async with pair.sender(failover_interval=0, ledger=tmp_path) as sender:
        await call(sender.send_messages, [ServiceBusMessage("abc"), ServiceBusMessage("de")])
        with pair.primary.fault("refusing", "orders"):
            await call(sender.send_messages, ServiceBusMessage("x"))
        await pair.until("failed-back")
    await pair.in_backlog(1)
    records = [
        decode(line) for path in sorted(tmp_path.glob("*.jsonl")) for line in files.lines(path, LEDGER_LINE_BYTES_MAX)
    ]
    operations: Counter[tuple[str, ...]] = Counter()
    for record in records:
        if isinstance(record, Operations):
            operations[record.namespace, record.entity, record.kind, record.stage, record.outcome] += record.count
    queue = pair.told("diverted")[0].queue
    assert operations == {
        ("contoso", "orders", "send", "direct", "ok"): 2,
        ("contoso", "orders", "send", "direct", "com.microsoft:server-busy"): 1,
        ("fabrikam", queue, "send", "to-backlog", "ok"): 1,
        ("contoso", "orders", "ping", "ping", "ok"): 1,
    }
    events = [(record.event, record.target, record.count) for record in records if isinstance(record, FailoverEvent)]
    assert sorted(events) == [
        ("diverted", "fabrikam", 1),
        ("failed-back", "fabrikam", 0),
        ("failed-over", "fabrikam", 0),
    ]
