"""Differences between the supported versions of PySpark, 4.0 to 4.3.

- The rest of the package imports these names from here and is written for the newest version.
- Before 4.2 Spark has no admission control for Python sources: it asks a stream for the end of a batch without saying
  where the batch starts. `UntoldStream` infers the start from what Spark plans and commits.
- Before 4.1 there are no filters for Python sources and no Arrow writer for streams; a stream writer that is also a
  batch Arrow writer gets Arrow anyway.
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

# Whether Spark tells a stream where a batch starts and how much it may contain.
HAS_LIMITS: Final = find_spec("pyspark.sql.streaming.datasource") is not None
HAS_FILTERS: Final = hasattr(datasource, "Filter")
_HAS_TIMEZONE: Final = "timezone" in signature(to_arrow_schema).parameters
# Marks an offset made without knowing where its batch starts. The value makes each such offset different, so that Spark
# plans a batch and thereby reveals the start.
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
    """The Arrow schema that Spark expects for batches of a schema."""
    found: pa.Schema = to_arrow_schema(schema, timezone="UTC") if _HAS_TIMEZONE else to_arrow_schema(schema)
    return found


class LimitedStream(DataSourceStreamReader):
    """A stream that is told where its batches start, and can do without that for the first batch of a run."""

    @abstractmethod
    def first_offset(self) -> dict[str, Any]:
        """The end of a batch whose start is unknown."""

    @abstractmethod
    def without(self, start: dict[str, Any], end: dict[str, Any]) -> dict[str, Any]:
        """The end of a batch from `first_offset`, without what lies before its start."""


class UntoldStream(DataSourceStreamReader):
    """A stream for Spark before 4.2.

    What Spark does there, and what follows from it:

    - It calls `latestOffset` without arguments. After a restart it first plans the partitions from the last offset to
      the same offset, then those of the uncommitted batch. So when it asks for an offset, the batch planned last is
      committed.
    - A run with availableNow asks once, before all that, and plans one batch. That offset includes what is left of the
      previous batch, which is removed from it when the batch is planned.
    """

    def __init__(self, stream: LimitedStream) -> None:
        self._stream = stream
        # Where the next batch starts; None until Spark has planned one.
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
