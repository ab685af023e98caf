"""The data source `servicebus`: `spark.read`, `readStream`, `write` and `writeStream` of queues and topics.

Spark finds it by itself (package `pyspark_servicebus`) on every node where this package is installed.

    df = (spark.read.format("servicebus")
          .option("connectionString", text).option("queueName", "orders").load())

Options and columns are in `options.py` and `columns.py`; `docs/spark.md` is the manual.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from twinbus.errors import ConfigError
from twinbus.spark.source.columns import check_source, source_schema
from twinbus.spark.source.options import Options, ReadMode, for_reading, for_writing
from twinbus.spark.versions import HAS_FILTERS, HAS_LIMITS, UntoldStream


class ServiceBusSource(DataSource):
    """Queues, topics and subscriptions of a Service Bus namespace or a Twinbus broker."""

    @classmethod
    def name(cls) -> str:
        return "servicebus"

    def __repr__(self) -> str:
        # The options contain the connection string.
        return "ServiceBusSource()"

    def schema(self) -> StructType:
        return source_schema(include_body=self._parsed().include_body)

    def reader(self, schema: StructType) -> DataSourceReader:
        from twinbus.spark.source.batch import BatchReader

        options = for_reading(self._parsed(), stream=False)
        check_source(schema)
        if not options.pushdown:
            return BatchReader(options, schema)
        if not HAS_FILTERS:
            raise ConfigError("pushdown needs Spark 4.1 or newer: leave the option out, and Spark filters the rows.")
        from twinbus.spark.source.filtering import FilteringReader

        return FilteringReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from twinbus.spark.source.browse_stream import BrowseStream
        from twinbus.spark.source.claim_stream import ClaimStream

        options = for_reading(self._parsed(), stream=True)
        check_source(schema)
        stream = (BrowseStream if options.read_mode is ReadMode.BROWSE else ClaimStream)(options, schema)
        return stream if HAS_LIMITS else UntoldStream(stream)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from twinbus.spark.source.sink import BatchWriter

        _refuse_overwrite(overwrite)
        return BatchWriter(for_writing(self._parsed()), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from twinbus.spark.source.sink import StreamWriter

        _refuse_overwrite(overwrite)
        return StreamWriter(for_writing(self._parsed()), schema)

    def _parsed(self) -> Options:
        return Options.parse(self.options)


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise ConfigError(
            "A queue cannot be overwritten: write with mode('append'), or as a stream with outputMode('append')."
        )
