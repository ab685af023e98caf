"""`spark.read`: everything an entity holds, without changing it.

- Nothing is locked, counted or removed: Spark may evaluate a DataFrame as often as it likes.
- The range is fixed when the query is planned; later messages are not included.
- Filters narrow the range only with the option `pushdown`, and Spark still applies them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from twinbus.limits import SPARK_PARTITION_MESSAGES_MIN
from twinbus.spark.source.batches import BatchMaker, Heads
from twinbus.spark.source.browsing import NUMBER_MAX, EntityBrowser
from twinbus.spark.source.options import Options
from twinbus.spark.source.spans import divided


@dataclass(frozen=True)
class Range(InputPartition):
    """A part of an entity: from one sequence number to another, inclusive."""

    first: int
    last: int

    def __init__(self, first: int, last: int) -> None:
        object.__setattr__(self, "first", first)
        object.__setattr__(self, "last", last)


class BatchReader(DataSourceReader):
    """Reads existing messages."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        # The range left by options and filters.
        self._first = options.first_number or 0
        self._last = NUMBER_MAX if options.last_number is None else min(options.last_number, NUMBER_MAX)
        self._since_ms = options.first_ms

    def __repr__(self) -> str:
        return f"BatchReader({self._options.path!r} of {self._options.access.namespace!r})"

    def partitions(self) -> list[InputPartition]:
        options = self._options
        assert options.path is not None
        with options.access.bus() as bus:
            browser = EntityBrowser(bus, options.path)
            head = browser.first(self._first) if self._first <= self._last else None
            if head is None or head.sequence_number > self._last:
                return [Range(1, 0)]
            first = head.sequence_number
            last = self._last
            if last == NUMBER_MAX or browser.first(last + 1) is None:
                last = min(last, browser.last(first))
            # In a dead-letter queue times do not grow with the numbers.
            if self._since_ms is not None and not options.is_sub_queue:
                first = browser.first_since(self._since_ms, first, last)
        ranges = divided((first, last), options.partitions, SPARK_PARTITION_MESSAGES_MIN, options.partitions_min)
        return [Range(*each) for each in ranges] or [Range(1, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range)
        options = self._options
        assert options.path is not None
        maker = BatchMaker(self._schema, entity=options.path, namespace=options.access.namespace)
        with options.access.bus() as bus:
            browser = EntityBrowser(bus, options.path, page=options.prefetch or 250, ahead=options.prefetch > 0)
            pages = browser.pages(partition.first, partition.last, bytes)
            yield from maker.batches(pages, None if self._since_ms is None else self._recent)

    def _recent(self, heads: Heads) -> list[bool]:
        assert self._since_ms is not None
        return [(enqueued_ms or 0) >= self._since_ms for enqueued_ms in heads.enqueued_ms]
