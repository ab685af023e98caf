"""The browsing stream: an offset is a sequence number, and this stream is the entity's only consumer.

- Executors peek at a range of numbers. Nothing is locked, and a range can be read again exactly as it was.
- Messages of a batch are removed once the batch is in the engine's commit log: at the start of `latestOffset`, whose
  `start` is committed, and in `commit`. Each number is removed once, however often it is asked for.
- While there are no messages the stream waits on a link, one operation per `maxWaitTime`. The message that ends the
  wait is released without counting a delivery.
- An entity that was deleted and created again restarts its numbers. Enqueued times reveal this, and none of its
  messages is taken for an old one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from twinbus.client import ACTIVE, Backoff, Fields, read_head
from twinbus.errors import ConfigError, MessageNotFoundError
from twinbus.limits import SPARK_PARTITION_MESSAGES_MIN
from twinbus.spark.source.batches import Heads
from twinbus.spark.source.browsing import PARTITIONED, EntityBrowser, sized_head
from twinbus.spark.source.options import Options
from twinbus.spark.source.settling import BrowseMark, MadeAnew, Settler, is_old
from twinbus.spark.source.spans import divided
from twinbus.spark.source.stream import Stream
from twinbus.spark.versions import ReadAllAvailable, ReadLimit

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Browsed(InputPartition):
    """Numbers to peek at. `ends`: a message with the number `last` existed when the batch was planned."""

    first: int
    last: int
    ends: bool

    def __init__(self, first: int, last: int, ends: bool) -> None:
        object.__setattr__(self, "first", first)
        object.__setattr__(self, "last", last)
        object.__setattr__(self, "ends", ends)


class BrowseStream(Stream):
    """Reads by peeking, removes what is committed."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        self._settler: Settler | None = None
        # The start after which nothing was found last time: then waiting is enough, without another peek.
        self._idle_at: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_settler": None}

    def initialOffset(self) -> dict[str, Any]:
        return _offset(0, 0, 1, False)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        mark = BrowseMark(0, 0) if self._is_foreign(start) else BrowseMark.of(start)
        try:
            self._settling.settle(mark)
            head = self._next(mark)
        except MadeAnew as error:
            self._say_lost(str(error))
            # Nothing that is there now has been read or removed, whatever its numbers are. Links may still lead to the
            # deleted entity.
            self.stop()
            self._settler = None
            self._idle_at = None
            self._last = 0
            head = self._browser.first_active(1)
        if head is None:
            self._saw(0, 0, None)
            return start
        return self._planned(head, limit) or start

    def first_offset(self) -> dict[str, Any]:
        return self.latestOffset(self.initialOffset(), ReadAllAvailable())

    def without(self, start: dict[str, Any], end: dict[str, Any]) -> dict[str, Any]:
        if self._is_foreign(start):
            return end
        before, after = BrowseMark.of(start), BrowseMark.of(end)
        if after.number <= before.number and after.enqueued_ms > before.enqueued_ms:
            self._say_lost(
                f"The sequence numbers start again: message {after.number} is newer than message {before.number} of "
                "the checkpoint. The entity was deleted and created again."
            )
            return end
        return {**end, "first": max(int(end["first"]), before.number + 1)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        if self._is_foreign(end):
            return []
        first, last = int(end["first"]), int(end["sequenceNumber"])
        ranges = divided(
            (first, last), self._options.partitions, SPARK_PARTITION_MESSAGES_MIN, self._options.partitions_min
        )
        return [Browsed(low, high, high == last and bool(end["ends"])) for low, high in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Browsed)
        options = self._options
        last = 0

        def active(heads: Heads) -> list[bool]:
            nonlocal last
            last = heads.numbers[-1]
            return [state == ACTIVE for state in heads.states]

        with options.access.bus() as bus:
            browser = EntityBrowser(bus, self._path, page=options.prefetch or 250, ahead=options.prefetch > 0)
            yield from self._maker().batches(browser.pages(partition.first, partition.last, bytes), active)
        if partition.ends and last != partition.last:
            self._say_lost(f"The message {partition.last} of {self._path!r} is gone: the batch is not whole.")

    def commit(self, end: dict[str, Any]) -> None:
        if not self._is_foreign(end):
            self._settling.settle(BrowseMark.of(end))

    # --- inside -------------------------------------------------------------------------------------------------------

    @property
    def _settling(self) -> Settler:
        if self._settler is None:
            self._settler = Settler(self._opened, self._path)
        return self._settler

    def _next(self, mark: BrowseMark) -> Fields | None:
        """The first message after those read; if there is none, the first that arrives in time."""
        if self._target is not None and mark.number >= self._target:
            return None
        if self._idle_at != mark.number or self._target is not None:
            head = self._browser.first_active(mark.number + 1)
            if head is not None or self._target is not None:
                return head
        self._idle_at = mark.number
        if not self._waited(mark):
            return None
        self._idle_at = None
        return self._browser.first_active(mark.number + 1)

    def _waited(self, mark: BrowseMark) -> bool:
        """Wait for a message; returns whether one arrived."""
        bus = self._opened
        messages = bus.receive(self._path, 1, self._options.wait_s)
        for message in messages:
            try:
                committed = is_old(read_head(message.payload), mark)
            except MadeAnew:
                bus.release(self._path, [message])
                raise
            if committed:
                # Somebody held it while the others were removed.
                bus.complete(self._path, [message])
            else:
                bus.release(self._path, [message])
        return bool(messages)

    def _planned(self, head: Fields, limit: ReadLimit) -> dict[str, Any] | None:
        """The offset at which the next batch ends; None if there is nothing after all."""
        first = head.sequence_number
        if first >= PARTITIONED:
            raise ConfigError(
                f"{self._path!r} is partitioned: its sequence numbers do not grow in one line, which readMode browse "
                "needs. Take readMode claim."
            )
        self._last = self._enough(first)
        messages, size = self._limits(limit)
        end = min(first + messages - 1, self._last if self._target is None else min(self._last, self._target))
        if end < first:
            return None
        if size is not None:
            end = self._within(first, end, size)
        found = self._browser.first(end)
        if found is None or found.state != ACTIVE:
            # A scheduled message has a future time, which must not become the mark's; or the last ones have expired.
            found = self._browser.last_active(first, end)
            if found is None:
                return None
            end = found.sequence_number
        self._saw(self._last - first + 1, self._last - end, head.enqueued_ms)
        mark = BrowseMark(end, found.enqueued_ms or 0)
        self._settling.saw(mark)
        # A message with a time to live may expire before its batch is read; that is not a loss.
        ends = found.sequence_number == end and found.expires_ms is None
        return self._named(_offset(end, mark.enqueued_ms, first, ends))

    def _enough(self, first: int) -> int:
        """The last number, once there are `minMessagesPerTrigger` messages or `maxTriggerDelay` is over."""
        deadline_ms, pauses = self._deadline_ms(), Backoff()
        wanted = first + self._options.messages_min - 1
        while True:
            last = self._browser.last(max(self._last, first))
            if last >= wanted or self._clock.now_ms() >= deadline_ms:
                return last
            self._opened.pause(pauses)

    def _within(self, first: int, last: int, size: int) -> int:
        """The last number within this many bytes; the first message always fits."""
        total = 0
        end = first
        for page in self._browser.pages(first, last, sized_head):
            for fields, each in page:
                total += each
                if total > size and fields.sequence_number > first:
                    return end
                end = fields.sequence_number
        return last

    def _say_lost(self, text: str) -> None:
        if self._options.fail_on_data_loss:
            raise MessageNotFoundError(
                f"{text} If that was intended, set failOnDataLoss to false and start the query again: it continues "
                "with what is there."
            )
        _logger.warning("%s failOnDataLoss is false: continuing with what is there.", text)


def _offset(number: int, enqueued_ms: int, first: int, ends: bool) -> dict[str, Any]:
    return {"sequenceNumber": number, "enqueuedTime": enqueued_ms, "first": first, "ends": ends}
