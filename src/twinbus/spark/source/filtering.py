"""`spark.read` with pushed-down filters, which narrow the range to peek at. Needs Spark 4.1."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual

from twinbus.spark.source.batch import BatchReader


class FilteringReader(BatchReader):
    """Reads existing messages in a range narrowed by filters on `sequenceNumber` and `enqueuedTime`.

    A class of its own, because Spark rejects a reader with filters unless its configuration allows it.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for each in filters:
            if not isinstance(each, EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
                continue
            if each.attribute == ("sequenceNumber",) and isinstance(each.value, int):
                self._narrow(each, each.value)
            elif each.attribute == ("enqueuedTime",) and isinstance(each.value, datetime):
                self._narrow_time(each, each.value)
        # Spark applies all filters as well; they only narrow the range here.
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
