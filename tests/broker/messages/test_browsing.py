"""Browsing reads a bounded number of rows, and shows what waits for the disk as it will be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.broker.bad_folders import NOW_MS, opened
from tests.broker.commit_disk import Disk
from tests.entities.rules_house import tag
from twinbus.broker.host import NamespaceHost
from twinbus.broker.messages.browsing import browse
from twinbus.clock import SteppedClock
from twinbus.entities.message import ACTIVE, DEFERRED, NewMessage
from twinbus.entities.queue import Queue
from twinbus.entities.settings import QueueSettings
from twinbus.limits import BROWSE_EXPIRED_MAX
from twinbus.store.facts import Table
from twinbus.store.lmdb_store import Store

TTL_MS = 1_000


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[NamespaceHost]:
    host = opened(tmp_path)
    host.start()
    yield host
    await host.stop()


@pytest.fixture
def rows_read(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The keys of all rows that were read."""
    read: list[bytes] = []
    scan = Store.scan

    def watched(
        self: Store, table: Table, start: bytes = b"", stop: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        for row in scan(self, table, start, stop):
            read.append(row[0])
            yield row

    monkeypatch.setattr(Store, "scan", watched)
    return read


async def filled(host: NamespaceHost, expired: int, living: int) -> Queue:
    """A queue whose first messages have expired and are still there."""
    queue = host.create_queue(QueueSettings(path="q", dead_letter_on_expiry=True))
    messages = [NewMessage("", b"", 1, ttl_ms=TTL_MS) for _ in range(expired)]
    messages += [NewMessage("", b"", 1) for _ in range(living)]
    queue.send(messages, NOW_MS, host.commits.facts)
    host.commits.request()
    await host.commits.drain()
    clock = host.clock
    assert isinstance(clock, SteppedClock)
    clock.step(ms=TTL_MS)
    return queue


async def test_expired_messages_are_skipped(host: NamespaceHost) -> None:
    queue = await filled(host, BROWSE_EXPIRED_MAX, 3)
    first = BROWSE_EXPIRED_MAX + 1
    assert [each.seq for each in browse(host, queue, 0, 2)] == [first, first + 1]
    assert [each.seq for each in browse(host, queue, first + 1, 9)] == [first + 1, first + 2]


async def test_a_message_too_many_is_returned_although_it_has_expired(host: NamespaceHost) -> None:
    queue = await filled(host, BROWSE_EXPIRED_MAX + 2, 1)
    first = BROWSE_EXPIRED_MAX + 1
    assert [each.seq for each in browse(host, queue, 0, 9)] == [first, first + 1, first + 2]
    assert [each.seq for each in browse(host, queue, 2, 9)] == [first + 1, first + 2]


async def test_a_peek_of_one_reads_a_bounded_number_of_rows(host: NamespaceHost, rows_read: list[bytes]) -> None:
    queue = await filled(host, 3 * BROWSE_EXPIRED_MAX, 1)
    assert len(browse(host, queue, 0, 1)) == 1
    assert len(rows_read) == BROWSE_EXPIRED_MAX + 1


async def test_dead_letters_do_not_expire(host: NamespaceHost) -> None:
    queue = await filled(host, 2, 0)
    queue.tick(host.clock.now_ms() + 1_000, host.commits.facts)
    host.commits.request()
    await host.commits.drain()
    assert queue.dead_letters is not None
    assert [each.seq for each in browse(host, queue.dead_letters, 0, 9)] == [1, 2]
    assert browse(host, queue, 0, 9) == []


async def test_what_waits_for_the_disk_is_shown_as_it_will_be(
    host: NamespaceHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await filled(host, 0, 6)
    facts = host.commits.facts
    complete, defer, bury, *_ = queue.acquire(3, NOW_MS, facts)
    queue.complete(tag(complete), NOW_MS, facts)
    assert [message.seq for message in browse(host, queue, 0, 10)] == [2, 3, 4, 5, 6]
    disk = Disk(monkeypatch)
    disk.free.clear()
    host.commits.request()
    while not disk.threads:
        await asyncio.sleep(0)
    facts = host.commits.facts
    queue.defer(tag(defer), NOW_MS, facts)
    queue.dead_letter(tag(bury), NOW_MS, facts, None, None)
    queue.remove_taken(queue.take(1, NOW_MS, facts), facts)
    queue.send([NewMessage("", b"", 1)], NOW_MS, facts)
    found = browse(host, queue, 0, 10)
    assert [(message.seq, message.state) for message in found] == [(2, DEFERRED), (5, ACTIVE), (6, ACTIVE)]
    disk.free.set()
    await host.commits.drain()
    found = browse(host, queue, 0, 10)
    assert [(message.seq, message.state) for message in found] == [(2, DEFERRED), (5, ACTIVE), (6, ACTIVE), (7, ACTIVE)]


async def test_a_message_that_becomes_active_is_never_missing(host: NamespaceHost) -> None:
    queue = host.create_queue(QueueSettings(path="q"))
    queue.schedule([NewMessage("", b"", 1, scheduled_ms=NOW_MS + 1_000)], NOW_MS, host.commits.facts)
    await host.commits.drain()
    queue.tick(NOW_MS + 1_000, host.commits.facts)
    assert [message.seq for message in browse(host, queue, 0, 10)] == [1]
    await host.commits.drain()
    assert [message.seq for message in browse(host, queue, 0, 10)] == [2]
