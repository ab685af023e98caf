"""`spark.read` with filters, which narrow the range that is looked at. Spark has them from 4.1 on."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual

from twinbus.spark.source.batch import BatchReader


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
