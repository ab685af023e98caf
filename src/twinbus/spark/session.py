"""The Spark session of Twinbus's own jobs: Java found, workers on this Python, everything on loopback.

    with spark_session("twinbus ledger") as spark: ...

Rules:
- Under `spark-submit` the session is its business: master, memory and the rest are taken as they come.
- Otherwise the default is this machine alone (`local[*]`), listening on loopback, without Spark's own web page.
- Settings of the caller win over ours.
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

# Every core of this machine; a task that fails is tried four times, as on a cluster.
LOCAL: Final = "local[*,4]"

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Spark's own patterns, and ours: settings and options by their names, keys in the text of SQL statements.
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|connection[.]?string",
    "spark.sql.redaction.options.regex": "(?i)url|connectionstring",
    "spark.sql.redaction.string.regex": "(?i)SharedAccess(Key|Signature)\\s*=[^;\"'\\s]+",
    # A task moves messages: running it twice at once would only repeat them.
    "spark.speculation": "false",
}
_LOCAL_SETTINGS: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
}
# Half the time to start, for jobs whose work is done in Python and not in the JVM.
BRISK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
# Its plans are small, and looking at them again while they run takes longer than they do.
_BRISK_SETTINGS: Final = {"spark.sql.adaptive.enabled": "false"}
_QUIET: Final = f'"-Dlog4j2.configurationFile={Path(__file__).with_name("log4j2.properties").as_uri()}"'


def submitted() -> bool:
    """Whether `spark-submit` started this process."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def need_pyspark() -> None:
    """Say what is missing before Spark's own parts do."""
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
    """A session, or the one that is there. `brisk` starts sooner and runs long computations in the JVM more slowly."""
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
    """A session that ends with the block. `archived` is for jobs that run again and again on this machine, and names
    theirs: from the second run on the JVM has its classes from an archive. `progress` is told when one is made."""
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
    """Whether this process has a JVM already, which the next session will use as it is."""
    need_pyspark()
    from pyspark import SparkContext

    return SparkContext._gateway is not None


def _prepare(master: str) -> None:
    """What Spark reads from the environment before its JVM is there."""
    # Its default is the first `python3` of PATH, which lacks our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ["JAVA_HOME"] = str(find_java().home)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
