"""Rows that cannot be sent, and where `onError` puts them.

- A refusal names the row by its message id, says why, and includes the body but nothing else of the row.
- `deadletter`: the task sends them to the queue `deadLetterQueueName` before it ends, with the reason as in a dead
  letter. A body that does not fit is truncated.
- `table`: tasks return them to the driver, which appends them to the Delta table at `errorTablePath` when it commits
  the batch. The commit carries query and batch, so committing a batch again adds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from twinbus.client import encode_message
from twinbus.client.blocking import BlockingBus
from twinbus.clock import SystemClock
from twinbus.errors import ConfigError
from twinbus.limits import MESSAGE_ID_CHARS_MAX

# Room for everything but the body in a message of maximum size.
_HEAD_BYTES: Final = 8 * 1024
_REASON: Final = "TwinbusRefused"
_ENTITY: Final = "x-twinbus-entity"
_SCHEMA: Final = pa.schema(
    [
        ("at", pa.timestamp("us", "UTC")),
        ("namespace", pa.string()),
        ("entity", pa.string()),
        ("messageId", pa.string()),
        ("reason", pa.string()),
        ("body", pa.binary()),
    ]
)


class Refusal(NamedTuple):
    """A row that cannot be sent."""

    entity: str | None
    message_id: str | None
    reason: str
    body: bytes | None


def send(bus: BlockingBus, queue: str, refusals: Sequence[Refusal]) -> None:
    """Send refusals to a queue; raises the error of the first that is not accepted."""
    room = max(bus.largest_message_bytes(queue) - _HEAD_BYTES, 0)
    parcels = [
        [
            encode_message(
                (each.body or b"")[:room],
                each.message_id and each.message_id[:MESSAGE_ID_CHARS_MAX],
                application_properties={
                    "DeadLetterReason": _REASON,
                    "DeadLetterErrorDescription": each.reason[:1024],
                    _ENTITY: each.entity or "",
                },
            )
        ]
        for each in refusals
    ]
    for error in bus.start_send(queue, parcels).result():
        if error is not None:
            raise type(error)(f"A refused row could not be sent to {queue!r} (deadLetterQueueName): {error}")


def append(path: str, namespace: str, refusals: Sequence[Refusal], write_id: str, number: int) -> None:
    """Append refusals to a Delta table, once per write and number."""
    try:
        from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
        from deltalake.exceptions import TableNotFoundError
    except ImportError:
        raise ConfigError("onError 'table' needs `deltalake`: run `pip install 'twinbus[spark]'`.") from None
    try:
        last = DeltaTable(path).transaction_version(write_id)
    except TableNotFoundError:
        last = None
    if last is not None and last >= number:
        return
    at_us = SystemClock().now_ms() * 1000
    columns = [
        [at_us] * len(refusals),
        [namespace] * len(refusals),
        *(list(values) for values in zip(*refusals, strict=True)),
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)]
    rows = pa.Table.from_arrays(arrays, schema=_SCHEMA)
    properties = CommitProperties(app_transactions=[Transaction(write_id, number)])
    write_deltalake(path, rows, mode="append", commit_properties=properties)
