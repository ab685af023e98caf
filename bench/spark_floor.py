"""What Spark itself takes: a source and a sink of Python that do nothing, with the schema of ours.

`python bench/spark.py` measures them beside ours. The source yields one Arrow batch of 1,000 finished rows again and
again, as `servicebus` would have read them; the sink drops what it gets. So the cost of a row is that of Spark's pipe
between Python and the JVM, of Arrow on both sides, and of the JVM's own rows: no Python source or sink costs less.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from twinbus.client import Message
from twinbus.spark.source.columns import source_schema
from twinbus.spark.source.rows import RowMaker

ROWS = 1_000
BODY = b"x" * 1_000
TASKS = 2


def finished_rows() -> pa.RecordBatch:
    """Rows as of the messages in `bench/spark.py`."""
    maker = RowMaker(source_schema(include_body=True), entity="kept", namespace="localhost:5672")
    rows = []
    for number in range(ROWS):
        properties = {"shop": "A", "number": number}
        message = Message(BODY, message_id=f"kept-{number}", subject="order", application_properties=properties)
        fields = maker.fields(message.encode())
        rows.append(fields._replace(sequence_number=number + 1, enqueued_ms=1_794_800_000_000 + number))
    return maker.batch(rows)


def shares(rows: int) -> list[InputPartition]:
    return [InputPartition(rows // TASKS + (task < rows % TASKS)) for task in range(TASKS)]


def batches(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    batch, left = finished_rows(), int(partition.value)
    while left > 0:
        yield batch.slice(0, min(left, ROWS))
        left -= ROWS


class FinishedReader(DataSourceReader):
    def __init__(self, rows: int) -> None:
        self._rows = rows

    def partitions(self) -> list[InputPartition]:
        return shares(self._rows)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return batches(partition)


class FinishedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One micro-batch of all rows."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def initialOffset(self) -> dict[str, Any]:
        return {"rows": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return {"rows": self._rows}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return shares(end["rows"] - start["rows"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return batches(partition)


class DroppingWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class Floor(DataSource):
    """`format("floor")` with the option `rows`."""

    @classmethod
    def name(cls) -> str:
        return "floor"

    def schema(self) -> StructType:
        return source_schema(include_body=True)

    def reader(self, schema: StructType) -> DataSourceReader:
        return FinishedReader(int(self.options["rows"]))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return FinishedStream(int(self.options["rows"]))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return DroppingWriter()
