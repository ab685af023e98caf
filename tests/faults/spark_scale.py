"""Loses one of three workers of a standalone cluster under load: `make spark-scale`.

First a job makes the ledger's tables from many records, then a stream moves many messages into Parquet files. In the
middle of each, one worker is killed with everything that it started, as if its machine failed; the others carry on. The
tables must then have every record once, and the files every message once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
from ledger_files import generate  # bench/
from spark_cluster import Cluster, environment
from spark_stream_kill import JOB, in_files
from syphon import Peer  # bench/

from twinbus.client import BusClient, Message
from twinbus.spark.ledger import job as ledger_job
from twinbus.spark.ledger.delta import DeltaFolder

WORKERS = 3
QUEUE = "orders"
TIMEOUT_S = 1_800.0


class Watched:
    """A job on the cluster; one worker is lost when `begun` says so, and the job goes on."""

    def __init__(
        self, cluster: Cluster, command: list[str], settings: dict[str, str], begun: Callable[[], bool]
    ) -> None:
        started = time.monotonic()
        with tempfile.TemporaryFile() as out:
            process = subprocess.Popen(command, env={**environment(), **settings}, stdout=out, stderr=out)
            while not begun() and process.poll() is None and time.monotonic() - started < TIMEOUT_S:
                time.sleep(0.02)
            self.running = process.poll() is None
            self.lost_s = time.monotonic() - started
            cluster.lose_worker(WORKERS - 1)
            self.code = process.wait(TIMEOUT_S)
            self.seconds = time.monotonic() - started
            out.seek(0)
            self.out = out.read().decode(errors="replace")
        if self.code != 0 or not self.running:
            raise RuntimeError(
                f"The job ended with {self.code}, running when a worker was lost: {self.running}\n{self.out[-4_000:]}"
            )


def ledger(folder: Path, records: int) -> dict[str, Any]:
    source, tables = folder / "ledger", folder / "tables"
    generate(source, records)
    rows = tables / "_staging" / "rows"
    submit = str(Path(sys.executable).with_name("spark-submit"))
    with Cluster(WORKERS) as cluster:
        command = [submit, "--master", cluster.url, "--conf", "spark.ui.enabled=false", str(Path(ledger_job.__file__))]
        command += ["--ledger", str(source), "--tables", str(tables)]
        # Tasks are writing, and none of what they have written counts yet.
        watched = Watched(cluster, command, {}, lambda: any(rows.rglob("*.parquet")))
    summary = json.loads(next(line for line in watched.out.splitlines() if line.startswith('{"files"')))
    wanted = duckdb.sql(
        f"SELECT sum(count)::BIGINT, sum(bytes)::BIGINT FROM read_json('{source}/*.jsonl', format='newline_delimited', "
        "columns={type: 'VARCHAR', count: 'BIGINT', bytes: 'BIGINT'}) WHERE type = 'operations'"
    ).fetchall()
    files = DeltaFolder(tables).files("operations")
    found = duckdb.sql(f"SELECT sum(count)::BIGINT, sum(bytes)::BIGINT FROM read_parquet({files!r})").fetchall()
    good = summary["records"] == records and summary["repeated"] == 0 and found == wanted
    return {
        "part": "ledger",
        "good": good,
        "whole_s": watched.seconds,
        "lost_after_s": watched.lost_s,
        **summary,
        "operations": found,
        "expected": wanted,
    }


def stream(folder: Path, messages: int, batch: int) -> dict[str, Any]:
    files, checkpoint = folder / "files", folder / "checkpoint"
    peer = Peer(folder / "broker", "bench", [QUEUE])
    try:
        asyncio.run(fill(peer.connection_string, messages))
        with Cluster(WORKERS) as cluster:
            command = [sys.executable, str(JOB), "--master", cluster.url, "--mode", "browse", "--source", QUEUE]
            command += ["--target", str(files), "--ids", "column", "--batch", str(batch), "--tasks", str(WORKERS)]
            command += ["--checkpoint", str(checkpoint)]
            half = messages // batch // 2
            # Half of the batches are committed, and one is under way.
            watched = Watched(
                cluster,
                command,
                {"TWINBUS_CONNECTION_STRING": peer.connection_string},
                lambda: (checkpoint / "offsets" / str(half)).exists(),
            )
        left = asyncio.run(peeked(peer.connection_string))
    finally:
        peer.stop()
    ids = in_files(files, "messageId")
    different = len(set(ids))
    good = different == messages == len(ids) and left == 0
    return {
        "part": "stream",
        "good": good,
        "whole_s": watched.seconds,
        "lost_after_s": watched.lost_s,
        "messages": messages,
        "missing": messages - different,
        "twice": len(ids) - different,
        "left": left,
    }


async def fill(text: str, messages: int) -> None:
    async with BusClient.from_connection_string(text) as client:
        sender = await client.sender(QUEUE)
        body = b"x" * 500
        payloads = (Message(body, message_id=f"m{number}").encode() for number in range(messages))
        assert not any(await sender.send_batches(payloads))


async def peeked(text: str) -> int:
    async with BusClient.from_connection_string(text) as client:
        return len(await (await client.management(QUEUE)).peek(250))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, help="where the files go; default: a temporary folder")
    options = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory(prefix="twinbus-scale-", dir=options.folder) as name:
        for part in (
            lambda: ledger(Path(name), options.records),
            lambda: stream(Path(name), options.messages, options.batch),
        ):
            found = part()
            print(json.dumps(found), flush=True)
            good = good and found["good"]
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
