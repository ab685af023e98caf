"""Connection strings as `twinbus serve --dev` prints them: administration over plain HTTP, no certificate, no
option."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from twinbus.paired.syphon.drain import name_of
from twinbus.paired.syphon.syphon import counts_of

ROOT = Path(__file__).parent.parent.parent
TWINBUS = [sys.executable, "-m", "twinbus"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a shell in which `twinbus serve --dev` runs, with the strings that it printed."""
    folder = tmp_path_factory.mktemp("served")
    ready = folder / "ready.json"
    command = [*TWINBUS, "serve", "--dev", "--namespace", "contoso:0", "--namespace", "fabrikam:0"]
    command += ["--data", str(folder / "data"), "--ready-file", str(ready)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
        try:
            while not ready.exists():
                assert broker.poll() is None, "the broker has ended"
                time.sleep(0.02)
            namespaces = json.loads(ready.read_text())["namespaces"]
            strings = {name: namespaces[name]["connection_string"] for name in ("contoso", "fabrikam")}
            assert all("UseDevelopmentEmulator=true" in text for text in strings.values())
            environment = {name: value for name, value in os.environ.items() if not name.endswith("CA_BUNDLE")}
            environment |= {"TWINBUS_PRIMARY": strings["contoso"], "TWINBUS_SECONDARY": strings["fabrikam"]}
            environment["TWINBUS_CONNECTION_STRING"] = strings["contoso"]
            run(environment, *TWINBUS, "queue", "create", "orders")
            yield environment
        finally:
            broker.terminate()


def run(environment: dict[str, str], *command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def snippet(page: str, heading: str) -> str:
    text = (ROOT / page).read_text().split(heading, 1)[1]
    found = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1]


GIVEN = "import os\nprimary, secondary = os.environ['TWINBUS_PRIMARY'], os.environ['TWINBUS_SECONDARY']\n"
AIO = """
import asyncio
from twinbus.paired.aio import PairedServiceBusClient
from azure.servicebus import ServiceBusMessage

async def main():
    async with PairedServiceBusClient.from_connection_strings(primary, secondary) as client:
        async with client.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("hello"))
        await client.wait_until_paired()
        assert len(client.backlog_queues) == 10

asyncio.run(main())
"""


@pytest.mark.parametrize(
    "source",
    [snippet("README.md", "## Pair two namespaces"), snippet("docs/paired.md", "# Paired namespaces"), AIO],
    ids=["README", "paired.md", "aio"],
)
def test_the_snippets_run_as_printed(served: dict[str, str], source: str) -> None:
    before = run(served, *TWINBUS, "queue", "show", "orders", "--json")
    run(served, sys.executable, "-W", "error::UserWarning", "-c", GIVEN + source)
    after = run(served, *TWINBUS, "queue", "show", "orders", "--json")
    assert json.loads(after)["active_messages"] == json.loads(before)["active_messages"] + 1


def test_the_commands_need_no_certificate(served: dict[str, str]) -> None:
    run(served, sys.executable, "-c", GIVEN + AIO)
    assert "primary contoso: reachable" in run(served, *TWINBUS, "pair", "status")
    assert len(json.loads(run(served, *TWINBUS, "backlog", "list", "--json"))) == 10
    found = json.loads(run(served, *TWINBUS, "syphon", "--engine", "local", "--once", "--json", "--quiet"))
    assert (found["missing"], len(found["queues"])) == ([], 10)


def test_spark_asks_for_names_and_depths_in_the_clear(served: dict[str, str]) -> None:
    """What `twinbus.spark.syphon.job` asks the administration API for."""
    assert name_of(served["TWINBUS_SECONDARY"], None) == "fabrikam"
    counts = counts_of(served["TWINBUS_PRIMARY"], None)
    assert counts is not None
    assert "orders" in asyncio.run(counts(["orders"]))
