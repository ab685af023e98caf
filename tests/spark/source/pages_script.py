"""Reads a queue whose key must not show, in a plain session with its web UI and event log on; saves the pages as files.

Run by `test_secrets.py`: `pages_script.py FOLDER QUEUE FILE`, with the connection string in FILE and in PLANTED.
"""

from __future__ import annotations

import os
import sys
import traceback
import urllib.request
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession


def main() -> None:
    folder, queue, file = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.compress", "false")
        .config("spark.eventLog.dir", (folder / "events").as_uri())
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.port", "0")
        .config("spark.sql.streaming.ui.enabled", "true")
        .getOrCreate()
    )
    ways = [
        {"connectionString": os.environ["PLANTED"]},
        {"connectionStringEnv": "PLANTED"},
        {"connectionStringFile": file},
    ]
    rows = 0
    for way in ways:
        frame = spark.read.format("servicebus").options(**way, queueName=queue).load()
        rows += len(frame.collect())
        frame.explain("extended")
    options = {**ways[0], "queueName": queue}
    stream = spark.readStream.format("servicebus").options(**options).load()
    query = (
        stream.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    streamed = sum(each.numInputRows for each in query.recentProgress)
    failed = ""
    failing = (
        spark.readStream.format("servicebus")
        .options(**{**options, "queueName": "nowhere"})
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(folder / "checkpoint2"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        failing.awaitTermination()
    except PySparkException as error:
        failed = "".join(traceback.format_exception(error))
    save_pages(str(spark.sparkContext.uiWebUrl), spark.sparkContext.applicationId, folder / "pages")
    (folder / "pages" / "failure.txt").write_text(f"{failed}{failing.exception()}{query.recentProgress}")
    spark.stop()
    print(f"{rows} rows, {streamed} streamed, {'failed as it should' if failed else 'did not fail'}")


def save_pages(address: str, application: str, folder: Path) -> None:
    folder.mkdir()
    api = f"/api/v1/applications/{application}"
    paths = ["/jobs/", "/stages/", "/storage/", "/environment/", "/executors/", "/SQL/", "/StreamingQuery/"]
    paths += [f"/SQL/execution/?id={number}" for number in range(4)]
    paths += [f"{api}/{name}" for name in ("jobs", "stages", "environment", "sql?details=true&planDescription=true")]
    for number, path in enumerate(paths):
        with urllib.request.urlopen(address + path, timeout=60) as answer:
            (folder / f"{number:02d}.txt").write_bytes(answer.read())


if __name__ == "__main__":
    main()
