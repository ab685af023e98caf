"""Session pumps of the JavaScript client after `kill -9` of the broker: every one of them recovers.

The pumps share a connection. When it comes back, several of them open links to `$cbs` at once, each pair in a session
of its own and all of one name; each must get its own answers.

By hand, ten times: `for n in $(seq 10); do pytest -q -n 0 tests/compat/test_node_pumps.py; done`.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
import time
from pathlib import Path

from tests.spark.syphon.processes import BrokerProcess

from twinbus.amqp.message import AmqpMessage

FOLDER = Path(__file__).parent / "node"
PUMPS = 8
RECOVERY_TIMEOUT_S = 120.0
QUEUE = "[namespaces.contoso.queues.jobs]\nrequires_session = true\n"


def job(pump: int, body: str) -> bytes:
    message = AmqpMessage()
    message.message_id = f"{pump}-{body}"
    message.group_id = f"session-{pump}"
    message.value, message.has_value = body, True
    return message.encode()


class Pumps:
    """The Node process and what it prints."""

    def __init__(self, node: str, connection_string: str) -> None:
        self.process = subprocess.Popen(
            [node, "pumps.js", "jobs", str(PUMPS)],
            cwd=FOLDER,
            env={**os.environ, "TWINBUS_CONNECTION_STRING": connection_string},
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def until_all(self, key: str, value: str | None = None) -> set[int]:
        """The pumps that printed `key`, with that value where one is given: all of them, or those in time."""
        found: set[int] = set()
        end = time.monotonic() + RECOVERY_TIMEOUT_S
        while len(found) < PUMPS and (left := end - time.monotonic()) > 0:
            try:
                line = json.loads(self._lines.get(timeout=left))
            except queue.Empty:
                break
            if key in line and value in (None, line[key]):
                found.add(line["pump"])
        return found

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


def test_all_pumps_recover_after_a_kill(node: str, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, "contoso", QUEUE) as broker:
        pumps = Pumps(node, broker.connection_string)
        try:
            broker.put("jobs", [job(pump, "before") for pump in range(PUMPS)])
            assert pumps.until_all("body", "before") == set(range(PUMPS))
            broker.kill()
            assert pumps.until_all("error") == set(range(PUMPS))
            broker.start()
            broker.put("jobs", [job(pump, "after") for pump in range(PUMPS)])
            assert pumps.until_all("body", "after") == set(range(PUMPS))
        finally:
            pumps.close()
