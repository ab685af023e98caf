"""Browses messages in sequence order without locking them, for every kind of peek."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinbus.entities import records
from twinbus.errors import StoreCorruptError
from twinbus.limits import BROWSE_EXPIRED_MAX
from twinbus.store.facts import GONE_ROW, Table, index_key, index_numbers

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost
    from twinbus.entities.message import QueuedMessage
    from twinbus.entities.queue import Queue
    from twinbus.entities.topic import Topic


def browse(
    host: NamespaceHost, queue: Queue | Topic, first: int, count: int, *, damaged: bool = False
) -> list[QueuedMessage]:
    """Up to `count` messages from a sequence number on, read from the store's index, whose keys are in that order.

    A message that left or changed a moment ago is shown that way, although the disk may not have been told yet: its
    receiver may ask right afterwards. A scheduled message stays until that is durable, because it may be becoming
    active under a new number, which nobody sees before. New messages are not shown before they are durable.

    Expired messages are skipped, but only a bounded number: a million may have expired at once, and then the next ones
    are returned as they are, as the service does too. Damaged messages that were set aside are included only on
    request. A caller that also reads bodies does both in one `store.snapshot()`, because a commit between the two could
    delete a body.
    """
    current = host.commits.index_row
    now_ms = host.clock.now_ms()
    skips = BROWSE_EXPIRED_MAX if queue.messages.expires else 0
    found: list[QueuedMessage] = []
    stop = index_key(queue.entity_id + 1, 0)
    for key, stored in host.store.scan(Table.INDEX, index_key(queue.entity_id, first), stop):
        value = current(key, stored)
        if value == GONE_ROW:
            if not records.scheduled(stored):
                continue
            value = stored
        if skips and records.expired(value, now_ms):
            skips -= 1
            continue
        _, seq = index_numbers(key)
        try:
            record = records.unpack(value)
        except StoreCorruptError:
            continue  # set aside when the namespace was opened
        if record.damaged and not damaged:
            continue
        found.append(records.message_of(seq, record))
        if len(found) == count:
            break
    return found
