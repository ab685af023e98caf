"""What differs between the versions of PySpark that Twinbus runs on, 4.0 to 4.3.

Rules:
- The rest of the package imports these names from here, and is written for the newest version.
- Before 4.2 Spark has no admission control for Python sources: it asks a stream for the end of a batch without saying
  where the batch starts. `UntoldStream` finds out, from what Spark plans and commits.
- Before 4.1 there are no filters for Python sources, and no writer of a stream that takes Arrow; a stream's writer that
  is also one of a batch is given Arrow all the same.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from inspect import signature
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamReader, DataSourceStreamWriter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from twinbus.clock import SystemClock

# Whether Spark tells a stream where a batch starts and how much it may have.
HAS_LIMITS: Final = find_spec("pyspark.sql.streaming.datasource") is not None
HAS_FILTERS: Final = hasattr(datasource, "Filter")
_HAS_TIMEZONE: Final = "timezone" in signature(to_arrow_schema).parameters
# In an offset: it was made without knowing where its batch starts. Its value makes it another one each time, so that
# Spark plans a batch, and tells by it.
UNTOLD: Final = "asked"

if TYPE_CHECKING or HAS_LIMITS:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:
        pass

    class ReadAllAvailable(ReadLimit):
        pass

    @dataclass
    class ReadMaxRows(ReadLimit):
        max_rows: int

    @dataclass
    class ReadMaxBytes(ReadLimit):
        max_bytes: int

    class SupportsTriggerAvailableNow:
        pass


if TYPE_CHECKING or hasattr(datasource, "DataSourceStreamArrowWriter"):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:

    class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):
        pass


__all__ = [
    "HAS_FILTERS",
    "HAS_LIMITS",
    "UNTOLD",
    "DataSourceStreamArrowWriter",
    "LimitedStream",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "UntoldStream",
    "arrow_schema",
]


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark expects batches of a schema to have."""
    found: pa.Schema = to_arrow_schema(schema, timezone="UTC") if _HAS_TIMEZONE else to_arrow_schema(schema)
    return found


class LimitedStream(DataSourceStreamReader):
    """A stream that is told where its batches start, and can do without for the first batch of a run."""

    @abstractmethod
    def first_offset(self) -> dict[str, Any]:
        """The end of a batch that may start anywhere."""

    @abstractmethod
    def without(self, start: dict[str, Any], end: dict[str, Any]) -> dict[str, Any]:
        """The end of a batch, made by `first_offset`, without what there was up to its start."""


class UntoldStream(DataSourceStreamReader):
    """A stream for Spark before 4.2.

    What Spark does there, and what follows from it:
    - `latestOffset` without arguments. A query that is started again first has the partitions from its last offset to
      the same one planned, and then those of the batch that was not committed. So when an offset is asked for, the
      batch planned last is committed.
    - A run with availableNow asks once, before all of that, and plans one batch. What is left of the batch before is
      in that offset, and is taken out of it when the batch is planned.
    """

    def __init__(self, stream: LimitedStream) -> None:
        self._stream = stream
        # Where the next batch starts; None before Spark has planned one.
        self._start: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return repr(self._stream)

    def initialOffset(self) -> dict[str, Any]:
        return self._stream.initialOffset()

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        if self._start is None:
            return {**self._stream.first_offset(), UNTOLD: SystemClock().now_ms()}
        return self._stream.latestOffset(self._start, self._stream.getDefaultReadLimit())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._start = end
        if start == end:
            return []
        self._stream.commit(start)
        return self._stream.partitions(start, self._stream.without(start, end) if UNTOLD in end else end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._stream.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._stream.commit(end)

    def stop(self) -> None:
        self._stream.stop()
