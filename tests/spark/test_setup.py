"""The README's Spark program, saved and run as described: no activation, no Java, an ordinary session."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks
from twinbus.testing import Broker

pytestmark = pytest.mark.timeout(900)


def test_the_program_of_the_readme_runs_by_its_python_alone(tmp_path: Path) -> None:
    found = [each.text for each in blocks((ROOT / "README.md").read_text()) if "twinbus.spark.setup" in each.text]
    (program,) = found
    script = tmp_path / "orders.py"
    script.write_text(program)
    # Nothing of the virtual environment is on the path, and Java only if the package supplies it.
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "PYTHONPATH") if name in os.environ}
    with Broker(queues=["orders"], sync=False) as broker:
        environment = {
            **kept,
            "PATH": "/usr/bin:/bin",
            "TWINBUS_JAVA": "supplied",
            "TWINBUS_CONNECTION_STRING": broker.connection_string(),
        }
        twinbus = [sys.executable, "-c", "from twinbus.cli.main import run; run()"]
        subprocess.run([*twinbus, "send", "orders", "hello {n}", "--count", "3"], env=environment, check=True)
        done = subprocess.run(
            [sys.executable, str(script)], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr[-3_000:]
    assert [f"hello {n}" in done.stdout for n in (1, 2, 3)] == [True] * 3
