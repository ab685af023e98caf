"""The Spark session of Twinbus's own jobs: finds Java, runs workers on this Python, and stays on loopback.

    with spark_session("twinbus ledger") as spark: ...

- Under `spark-submit`, its settings apply: master, memory and the rest.
- Otherwise the default is this machine alone (`local[*]`), listening on loopback, without Spark's web UI.
- The caller's settings override ours.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from twinbus.errors import ConfigError
from twinbus.spark.archive import Archive
from twinbus.spark.java import caches, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# All cores of this machine; a failed task is tried four times, as on a cluster.
LOCAL: Final = "local[*,4]"

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Spark's own patterns plus ours: settings and options by name, keys in the text of SQL statements.
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|connection[.]?string",
    "spark.sql.redaction.options.regex": "(?i)url|connectionstring",
    "spark.sql.redaction.string.regex": "(?i)SharedAccess(Key|Signature)\\s*=[^;\"'\\s]+",
    # A task moves messages, so running it twice at the same time would only repeat them.
    "spark.speculation": "false",
}
_LOCAL_SETTINGS: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
}
# Halves the start time, for jobs that work in Python and not in the JVM.
BRISK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
# Its plans are small: replanning them takes longer than running them.
_BRISK_SETTINGS: Final = {"spark.sql.adaptive.enabled": "false"}
_QUIET: Final = f'"-Dlog4j2.configurationFile={Path(__file__).with_name("log4j2.properties").as_uri()}"'


def submitted() -> bool:
    """Whether `spark-submit` started this process."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def need_pyspark() -> None:
    """Raise a helpful error if Spark is not installed."""
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"This needs Spark, and {error.name} is not installed: run `pip install 'twinbus[spark]'`."
        ) from None


def open_session(
    name: str,
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    brisk: bool = False,
    archive: Archive | None = None,
) -> SparkSession:
    """Create or reuse a session. `brisk` starts faster, but runs long computations in the JVM more slowly."""
    need_pyspark()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    chosen = dict(_SETTINGS)
    if not submitted():
        _prepare(master or LOCAL)
        builder = builder.master(master or LOCAL)
        if (master or LOCAL).startswith("local"):
            chosen.update({**_LOCAL_SETTINGS, **(_BRISK_SETTINGS if brisk else {})})
        options = [_QUIET, BRISK if brisk else "", archive.options if archive is not None else ""]
        chosen["spark.driver.extraJavaOptions"] = " ".join(filter(None, options))
    elif master is not None:
        raise ConfigError("Pass --master to spark-submit instead.")
    for key, value in {**chosen, **(settings or {})}.items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    return spark


@contextmanager
def spark_session(
    name: str,
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    brisk: bool = False,
    archived: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Iterator[SparkSession]:
    """A session that ends with the block. `archived` names a job that runs repeatedly on this machine: from its second
    run on the JVM loads its classes from an archive. `progress` is called when one is written."""
    archive = None
    if archived is not None and not submitted() and not _has_jvm():
        archive = Archive.of(archived, find_java(), caches(os.environ), os.environ)
    spark = open_session(name, master=master, settings=settings, brisk=brisk, archive=archive)
    try:
        yield spark
    finally:
        spark.stop()
    if archive is not None and not archive.is_there:
        if progress is not None:
            progress("keeping Spark's classes for the next run, some seconds, once")
        archive.keep()


def _has_jvm() -> bool:
    """Whether this process already has a JVM, which the next session will reuse."""
    need_pyspark()
    from pyspark import SparkContext

    return SparkContext._gateway is not None


def _prepare(master: str) -> None:
    """Set what Spark reads from the environment before its JVM starts."""
    # Spark's default is the first `python3` on PATH, which lacks our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ["JAVA_HOME"] = str(find_java().home)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
