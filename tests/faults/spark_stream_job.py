"""A stream from one queue to another or into files, as an application would write it, until the source is empty.

The connection string is passed in the environment. With `--ids position` the sink derives the message ids.
"""

from __future__ import annotations

import argparse
import os
import sys

from twinbus.spark.session import spark_session


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--master", required=True)
    parser.add_argument("--mode", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True, help="a queue, or with a slash a folder of Parquet files")
    parser.add_argument("--ids", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--tasks", type=int, default=2)
    options = parser.parse_args()
    text = os.environ["TWINBUS_CONNECTION_STRING"]
    settings = {
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": "2",
        # A killed executor is not the task's fault.
        "spark.task.maxFailures": "8",
    }
    with spark_session("stream", master=options.master, settings=settings, brisk=True) as spark:
        stream = (
            spark.readStream.format("servicebus")
            .option("connectionString", text)
            .option("queueName", options.source)
            .option("readMode", options.mode)
            .option("maxMessagesPerTrigger", options.batch)
            .option("numPartitions", options.tasks)
            .load()
        )
        if options.ids == "position":
            stream = stream.select("body")
        if "/" in options.target:
            writer = stream.writeStream.format("parquet").option("path", options.target)
        else:
            given = {"connectionString": text, "queueName": options.target, "duplicateDetection": "ignore"}
            writer = stream.writeStream.format("servicebus").options(**given, batchSize=50)
        query = writer.option("checkpointLocation", options.checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
    return 0


if __name__ == "__main__":
    sys.exit(main())
