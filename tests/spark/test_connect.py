"""Spark Connect with client and server on different machines: only the server has Twinbus."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from tests.faults.spark_cluster import descendants, environment, kill
from tests.spark.source.desk import Desk
from twinbus.testing import Broker

pytest.importorskip("grpc", reason="grpcio is not installed: `make spark-hosts` runs this")

pytestmark = pytest.mark.timeout(400)

START_TIMEOUT_S = 180.0
# The class that sbin/start-connect-server.sh starts; not every pip package of Spark contains the script.
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
# Imports nothing of Twinbus.
CLIENT = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
text, target, checkpoint = sys.argv[2:]
options = {"connectionString": text, "queueName": "orders"}
print("read", spark.read.format("servicebus").options(**options).load().filter("messageId <> 'a'").count())
stream = spark.readStream.format("servicebus").options(**options).load()
sink = stream.writeStream.format("servicebus").options(connectionString=text, queueName=target)
query = sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
query.awaitTermination()
print("moved", query.lastProgress is not None, sum(each.numInputRows for each in query.recentProgress))
copies = spark.read.format("servicebus").options(connectionString=text, queueName=target).load()
copies.selectExpr("concat(messageId, '-again') AS messageId", "body").write.format("servicebus").options(
    connectionString=text, queueName=target
).mode("append").save()
assert not any(name.split(".")[0] == "twinbus" for name in sys.modules)
spark.stop()
"""


@contextmanager
def server(folder: Path, python: str) -> Iterator[str]:
    """A Connect server with this Python; yields its address."""
    home = Path(pyspark.__path__[0])
    log = folder / "server.log"
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    options = [option for name, value in settings.items() for option in ("--conf", f"{name}={value}")]
    own = {**environment(), "PYSPARK_PYTHON": python, "SPARK_HOME": str(home), "SPARK_LOG_DIR": str(folder)}
    own.pop("PYTHONPATH", None)
    with open(log, "wb") as out:
        process = subprocess.Popen(
            [home / "bin" / "spark-submit", "--class", SERVER, "--master", "local[2]", *options],
            cwd=folder,
            env=own,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        end = time.monotonic() + START_TIMEOUT_S
        while not (found := re.search(r"Spark Connect server started at: \S*?:(\d+)", log.read_text(errors="replace"))):
            if process.poll() is not None or time.monotonic() > end:
                pytest.fail(log.read_text(errors="replace")[-3_000:])
            time.sleep(0.1)
        yield f"sc://127.0.0.1:{found[1]}"
    finally:
        for pid in [*descendants(process.pid), process.pid]:
            kill(pid)
        process.wait()


def client(folder: Path, address: str, broker: Broker, target: str) -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "PYTHONPATH")}
    return subprocess.run(
        [sys.executable, "-c", CLIENT, address, broker.connection_string(), target, str(folder / target)],
        cwd=folder,
        env=own,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_server_with_twinbus_serves_any_client(tmp_path: Path) -> None:
    with Broker(queues=["orders", "copies"], sync=False) as broker, Desk(broker) as desk:
        desk.fill("orders", ["a", "b", "c"])
        with server(tmp_path, sys.executable) as address:
            done = client(tmp_path, address, broker, "copies")
        assert done.returncode == 0, done.stderr[-4_000:]
        assert done.stdout.splitlines() == ["read 2", "moved True 3"]
        assert desk.left("orders") == []
        assert sorted(desk.ids("copies")) == ["a", "a-again", "b", "b-again", "c", "c-again"]
