"""Ledger and tables in an object store, by the commands: a local S3 server, and Hadoop's connector by Maven."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.spark.s3_server import s3_bucket
from twinbus.broker.configuration.config import LEDGER_NAME
from twinbus.client import Message
from twinbus.client.blocking import BlockingBus
from twinbus.client.client import BusClient
from twinbus.spark.store_path import StorePath, ledger_files
from twinbus.testing import Broker

pytestmark = pytest.mark.timeout(400)

POM = Path(__file__).parents[1] / "s3" / "pom.xml"
TWINBUS = [sys.executable, "-c", "from twinbus.cli.main import run; run()"]
COUNT = 40


def connector() -> list[Path]:
    """The connector's jars, fetched once. Netty and the logging's face are Spark's own."""
    if shutil.which("mvn") is None:
        pytest.skip("Maven is not installed: it fetches Hadoop's connector to S3")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "twinbus-spark"
    folder = cache / f"s3-{hashlib.sha256(POM.read_bytes()).hexdigest()[:16]}"
    if not folder.exists():
        draft = folder.with_name(f"{folder.name}-{os.getpid()}")
        options = [f"-DoutputDirectory={draft}", "-DexcludeGroupIds=io.netty,org.slf4j"]
        subprocess.run(["mvn", "-q", "-B", "-f", POM, "dependency:copy-dependencies", *options], check=True)
        draft.rename(folder)
    return sorted(folder.glob("*.jar"))


def twinbus(*arguments: str) -> dict[str, Any]:
    """A command's answer in JSON; Spark is told of the connector and the server as its users do it."""
    settings = {
        "spark.hadoop.fs.s3a.endpoint": os.environ["AWS_ENDPOINT_URL"],
        "spark.hadoop.fs.s3a.endpoint.region": os.environ["AWS_REGION"],
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
    }
    options = [option for name, value in settings.items() for option in ("--conf", f"{name}={value}")]
    jars = ",".join(map(str, connector()))
    done = subprocess.run(
        [*TWINBUS, *arguments, "--json"],
        env={**os.environ, "PYSPARK_SUBMIT_ARGS": " ".join(["--jars", jars, *options, "pyspark-shell"])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-6_000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def recorded(folder: Path, count: int) -> None:
    """A broker's ledger of so many sends."""
    with (
        Broker(queues=["orders"], ledger=folder, sync=False) as broker,
        BlockingBus(lambda: BusClient.from_connection_string(broker.connection_string())) as bus,
    ):
        assert bus.start_send("orders", [[Message(b"x").encode()] * count]).result() == [None]


def upload(folder: Path, target: StorePath) -> None:
    for path in folder.glob("*.jsonl"):
        (target / path.name).write_text(path.read_text())


def test_ledger_and_tables_in_a_bucket(tmp_path: Path) -> None:
    connector()
    with s3_bucket() as bucket:
        ledger, tables = bucket / "data" / LEDGER_NAME, bucket / "data" / "tables"
        recorded(tmp_path / "one", COUNT)
        upload(tmp_path / "one", ledger)
        first = twinbus("ledger", "run", "--ledger", str(bucket / "data"))
        assert (first["tables"], first["files"]) == (str(tables), len(ledger_files(ledger)))
        assert (first["quarantined"], first["repeated"]) == (0, 0)
        # What is known is not read again, and what is new is added.
        recorded(tmp_path / "two", COUNT)
        upload(tmp_path / "two", ledger)
        second = twinbus("ledger", "run", "--ledger", str(ledger), "--tables", str(tables))
        assert second["files"] == len(ledger_files(ledger)) - first["files"]
        report = twinbus("report", "--tables", str(tables), "--output", str(tmp_path / "report.html"))
        assert (tmp_path / "report.html").stat().st_size > 1_000
        assert report["sentence"]
        # Every reader of Delta tables reads them there.
        from deltalake import DeltaTable

        rows = DeltaTable(str(tables / "operations")).to_pyarrow_table().to_pylist()
        assert sum(row["count"] for row in rows if (row["entity"], row["kind"]) == ("orders", "send")) == 2 * COUNT
        assert not (tables / "_staging").exists()
