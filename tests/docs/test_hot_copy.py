"""A hot copy, taken as docs/operations.md says, under load: whole, and with everything that was accepted before it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from twinbus.client import BusClient, Message
from twinbus.entities import records
from twinbus.store.check import verify
from twinbus.store.facts import Table

TWINBUS = [sys.executable, "-c", "from twinbus.cli.main import run; run()"]


async def test_a_hot_copy_under_load_is_whole(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    options = ["--namespace", "contoso", "--data", str(tmp_path / "data"), "--ready-file", str(ready)]
    broker = subprocess.Popen([*TWINBUS, "serve", *options], stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while not ready.exists():
            assert broker.poll() is None
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        made = subprocess.run([*TWINBUS, "queue", "create", "orders", "--ready-file", str(ready)], check=False)
        assert made.returncode == 0
        where = json.loads(ready.read_text())["namespaces"]["contoso"]["connection_string"]
        async with BusClient.from_connection_string(where) as client:
            await _copied_under_load(client, tmp_path)
    finally:
        broker.send_signal(signal.SIGCONT)
        broker.terminate()
        assert broker.wait(20) == 0


async def _copied_under_load(client: BusClient, folder: Path) -> None:
    sender = await client.sender("orders")
    accepted = 0
    stop = asyncio.Event()

    async def load() -> None:
        nonlocal accepted
        while not stop.is_set():
            await sender.send_many([Message(b"x" * 1_000) for _ in range(50)])
            accepted += 50

    sending = asyncio.create_task(load())
    pid = int((folder / "data" / "contoso" / "lock").read_text())
    for number in range(3):
        goal = accepted + 500
        while accepted < goal:
            await asyncio.sleep(0.005)
        before = accepted
        os.kill(pid, signal.SIGSTOP)
        try:
            shutil.copytree(folder / "data", folder / f"copy-{number}")
        finally:
            os.kill(pid, signal.SIGCONT)
        report = verify(folder / f"copy-{number}" / "contoso", lambda value: records.unpack(value).body_number)
        assert report.ok
        assert report.rows[Table.INDEX] >= before
    stop.set()
    await sending
