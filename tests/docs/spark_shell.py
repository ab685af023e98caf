"""Runs the Spark programs of the pages in one session, as a notebook would: `python spark_shell.py JOBS`.

JOBS is a JSON list of {page, folder, names, sources}. A stream that a page leaves running must have moved a row; then
it is stopped.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinbus.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

ROWS_S = 45.0


def enter(spark: SparkSession, folder: str) -> None:
    """Make a folder the one that relative paths begin at, for Python and for the JVM."""
    os.chdir(folder)
    hadoop = spark._jvm.org.apache.hadoop.fs
    hadoop.FileSystem.get(spark._jsc.hadoopConfiguration()).setWorkingDirectory(hadoop.Path(folder))


def wait_for_rows(query: StreamingQuery) -> None:
    deadline = time.monotonic() + ROWS_S
    while not any(progress.numInputRows for progress in query.recentProgress):
        if (error := query.exception()) is not None:
            raise error
        if time.monotonic() > deadline:
            raise TimeoutError(f"the stream {query.name or query.id} has moved nothing in {ROWS_S:.0f} s")
        time.sleep(0.1)


def main(jobs: list[dict[str, Any]]) -> int:
    failed = 0
    with spark_session("docs", master="local[2,3]", brisk=True) as spark:
        for job in jobs:
            enter(spark, job["folder"])
            names = {"spark": spark, **job["names"]}
            try:
                for source in job["sources"]:
                    exec(compile(source, job["page"], "exec"), names)
                for query in spark.streams.active:
                    wait_for_rows(query)
            except Exception:
                failed += 1
                print(f"--- {job['page']}")
                traceback.print_exc(file=sys.stdout)
            for query in spark.streams.active:
                query.stop()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(json.loads(Path(sys.argv[1]).read_text())))
