"""`spark.read`: everything an entity holds, looked at and left as it is.

Rules:
- Nothing is locked, counted or taken: Spark may evaluate a DataFrame as often as it likes.
- The range is fixed when the query is planned; messages that come later are not in it.
- Filters narrow the range only when `pushdown` is asked for, and Spark still applies them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from twinbus.client import Fields
from twinbus.limits import SPARK_PARTITION_MESSAGES_MIN
from twinbus.spark.source.browsing import NUMBER_MAX, EntityBrowser
from twinbus.spark.source.options import Options
from twinbus.spark.source.rows import RowMaker
from twinbus.spark.source.spans import divided


@dataclass(frozen=True)
class Range(InputPartition):
    """A part of an entity: from one sequence number to another, both included."""

    first: int
    last: int

    def __init__(self, first: int, last: int) -> None:
        object.__setattr__(self, "first", first)
        object.__setattr__(self, "last", last)


class BatchReader(DataSourceReader):
    """Reads what is there."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        # The range that options and filters leave.
        self._first = options.first_number or 0
        self._last = NUMBER_MAX if options.last_number is None else options.last_number
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
            # In a sub-queue times do not grow with the numbers.
            if self._since_ms is not None and not options.is_sub_queue:
                first = browser.first_since(self._since_ms, first, last)
        ranges = divided((first, last), options.partitions, SPARK_PARTITION_MESSAGES_MIN)
        return [Range(*each) for each in ranges] or [Range(1, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range)
        options = self._options
        assert options.path is not None
        maker = RowMaker(self._schema, entity=options.path, namespace=options.access.namespace)
        with options.access.bus() as bus:
            browser = EntityBrowser(bus, options.path, page=options.prefetch or 250, ahead=options.prefetch > 0)
            yield from maker.batches(self._pages(browser, partition, maker))

    def _pages(self, browser: EntityBrowser, partition: Range, maker: RowMaker) -> Iterator[list[Fields]]:
        for page in browser.pages(partition.first, partition.last, maker.fields):
            if self._since_ms is None:
                yield page
            else:
                yield [fields for fields in page if (fields.enqueued_ms or 0) >= self._since_ms]


class FilteringReader(BatchReader):
    """Reads what is there, in a range that filters on `sequenceNumber` and `enqueuedTime` narrow.

    A class of its own, because Spark refuses a reader that takes filters unless its configuration allows it.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for each in filters:
            if not isinstance(each, EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
                continue
            if each.attribute == ("sequenceNumber",) and isinstance(each.value, int):
                self._narrow(each, each.value)
            elif each.attribute == ("enqueuedTime",) and isinstance(each.value, datetime):
                self._narrow_time(each, each.value)
        # Spark applies all of them as well: the range is only where it looks.
        return filters

    def _narrow(self, each: Any, value: int) -> None:
        if isinstance(each, EqualTo | GreaterThanOrEqual):
            self._first = max(self._first, value)
        if isinstance(each, GreaterThan):
            self._first = max(self._first, value + 1)
        if isinstance(each, EqualTo | LessThanOrEqual):
            self._last = min(self._last, value)
        if isinstance(each, LessThan):
            self._last = min(self._last, value - 1)

    def _narrow_time(self, each: Any, value: datetime) -> None:
        if isinstance(each, EqualTo | GreaterThan | GreaterThanOrEqual) and value.tzinfo is not None:
            since_ms = int(value.timestamp() * 1000)
            self._since_ms = max(self._since_ms or 0, since_ms)
