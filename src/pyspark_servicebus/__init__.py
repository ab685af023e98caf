"""Where Spark looks for `format("servicebus")`: packages named `pyspark_...` with a class `DefaultSource`."""

from twinbus.spark.source.source import ServiceBusSource as DefaultSource

__all__ = ["DefaultSource"]
