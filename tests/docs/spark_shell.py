"""Runs the Spark programs of the pages in one session, as a notebook would: `python spark_shell.py JOBS SECONDS`.

Rules:
- JOBS is a JSON list of {page, folder, names, sources}. A stream that a page leaves running must have moved a row; then
  it is stopped.
- How long a row takes is the machine's business: the first stream of a session moved one after 6 s of an idle machine
  and after 47 s of one that stood still for 42 of them. There is one limit, SECONDS, for all pages together.
- Who is late then is told with what he was doing.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from twinbus.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

# Spark gives the Python of a stream 10 s to start, with no setting for it, and ends the query of one that is later.
LATE = "Python worker failed to connect back"
# For what else may hang, after the limit: a traceback says where.
_GRACE_S = 15.0


def enter(spark: SparkSession, folder: str) -> None:
    """Make a folder the one that relative paths begin at, for Python and for the JVM."""
    os.chdir(folder)
    hadoop = spark._jvm.org.apache.hadoop.fs
    hadoop.FileSystem.get(spark._jsc.hadoopConfiguration()).setWorkingDirectory(hadoop.Path(folder))


@contextmanager
def started_streams() -> Iterator[list[StreamingQuery]]:
    """The streams that are started in the block; one that has failed since is among them, and no longer active."""
    from pyspark.sql.streaming import DataStreamWriter

    found: list[StreamingQuery] = []
    start = DataStreamWriter.start

    def noted(*arguments: Any, **options: Any) -> StreamingQuery:
        found.append(start(*arguments, **options))
        return found[-1]

    with patch.object(DataStreamWriter, "start", noted):
        yield found


def wait_for_rows(query: StreamingQuery, deadline: float) -> None:
    """Until the stream has moved a row; raises what ended it, or what it was doing at the deadline."""
    while True:
        # Asked first: what a stream that has ended moved is all there then.
        goes_on = query.isActive and time.monotonic() < deadline
        if any(progress.numInputRows for progress in query.recentProgress):
            return
        if (error := query.exception()) is not None:
            raise error
        if not goes_on:
            raise TimeoutError(
                f"the stream {query.name or query.id} has moved nothing: {query.status}, last {query.lastProgress}"
            )
        time.sleep(0.1)


def run(spark: SparkSession, job: dict[str, Any], deadline: float) -> None:
    """A page's programs, one after the other; all again when Spark did not wait for a stream's Python."""
    names = {"spark": spark, **job["names"]}
    while True:
        try:
            with started_streams() as queries:
                for source in job["sources"]:
                    exec(compile(source, job["page"], "exec"), names)
            for query in queries:
                wait_for_rows(query, deadline)
            return
        except Exception as error:
            if LATE not in str(error) or time.monotonic() > deadline:
                raise
            print(f"{job['page']}: once more, because {LATE!r}")
        finally:
            for query in spark.streams.active:
                query.stop()


def main(jobs: list[dict[str, Any]], limit_s: float) -> int:
    deadline = time.monotonic() + limit_s
    faulthandler.dump_traceback_later(limit_s + _GRACE_S, exit=True)
    failed = 0
    with spark_session("docs", master="local[2,3]", brisk=True) as spark:
        for job in jobs:
            enter(spark, job["folder"])
            try:
                run(spark, job, deadline)
            except Exception:
                failed += 1
                print(f"--- {job['page']}")
                traceback.print_exc(file=sys.stdout)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(json.loads(Path(sys.argv[1]).read_text()), float(sys.argv[2])))
