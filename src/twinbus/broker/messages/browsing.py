"""Browses messages in sequence order without locking them, for every kind of peek."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinbus.entities import records
from twinbus.errors import StoreCorruptError
from twinbus.store.facts import Table, index_key, index_numbers

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost
    from twinbus.entities.message import QueuedMessage
    from twinbus.entities.queue import Queue
    from twinbus.entities.topic import Topic


def browse(
    host: NamespaceHost, queue: Queue | Topic, first: int, count: int, *, damaged: bool = False
) -> list[QueuedMessage]:
    """Up to `count` messages from a sequence number on, read from the store's index, whose keys are in that order.

    Damaged messages that were set aside are included only on request. A caller that also reads bodies does both in one
    `store.snapshot()`, because a commit between the two could delete a body.
    """
    stop = index_key(queue.entity_id + 1, 0)
    now_ms = host.clock.now_ms()
    found: list[QueuedMessage] = []
    while len(found) < count:
        rows = host.store.page(Table.INDEX, index_key(queue.entity_id, first), stop, count - len(found))
        if not rows:
            break
        for key, value in rows:
            _, seq = index_numbers(key)
            first = seq + 1
            if queue.messages.removed(seq):
                continue
            try:
                record = records.unpack(value)
            except StoreCorruptError:
                continue  # set aside when the namespace was opened
            if record.damaged and not damaged:
                continue
            if record.expires_ms is None or record.expires_ms > now_ms or not queue.messages.expires:
                found.append(records.message_of(seq, record))
    return found
