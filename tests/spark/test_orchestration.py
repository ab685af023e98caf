"""The examples for Airflow and Dagster, each run by its own tool: a backlog comes home, and there is a report of it."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.spark.source.desk import Desk
from twinbus.client import Message
from twinbus.client.envelope import wrap
from twinbus.spark.ledger.delta import DeltaFolder
from twinbus.testing import Broker

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif("TWINBUS_ORCHESTRATORS" not in os.environ, reason="`make spark-orchestrators` runs this"),
]

EXAMPLES = Path(__file__).parents[2] / "examples" / "orchestration"
BACKLOG = [f"contoso/x-servicebus-transfer/{number}" for number in range(10)]
COUNT = 20


@dataclass
class Pair:
    """Two brokers with a backlog, and the folder that the examples work in."""

    folder: Path
    primary: Desk

    def environment(self) -> dict[str, str]:
        command = self.folder / "twinbus"
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from twinbus.cli.main import run; run()" "$@"\n')
        command.chmod(0o700)
        return {
            **os.environ,
            "TWINBUS": str(command),
            "TWINBUS_FOLDER": str(self.folder),
            "HOME": str(self.folder),
            "PYTHONPATH": str(EXAMPLES),
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"),
        }

    def check(self) -> None:
        assert sorted(self.primary.ids("orders")) == sorted(f"m{number}" for number in range(COUNT))
        assert DeltaFolder(self.folder / "tables").files("operations")
        (page,) = self.folder.glob("report*.html")
        assert "<svg" in page.read_text()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with Broker(["contoso"], ["orders"], sync=False) as primary, Broker(["fabrikam"], BACKLOG, sync=False) as second:
        (tmp_path / "primary.txt").write_text(primary.connection_string())
        (tmp_path / "secondary.txt").write_text(second.connection_string())
        with Desk(primary) as desk, Desk(second) as other:
            parcels = [[wrap(Message(b"x", message_id=f"m{number}").encode(), "orders")] for number in range(COUNT)]
            assert not any(other.bus.start_send(BACKLOG[0], parcels).result())
            yield Pair(tmp_path, desk)


def installed(name: str, *packages: str) -> Path:
    """The `bin` of an environment with these packages, made once."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "twinbus-spark"
    folder = cache / f"{name}-py{sys.version_info.major}.{sys.version_info.minor}"
    done = folder / "installed"
    if not done.exists():
        venv.create(folder, with_pip=True, clear=True)
        pip = [folder / "bin" / "python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
        command = [*pip, "install", *packages]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        if found.returncode != 0:
            pytest.skip(f"{name} cannot be installed: {found.stderr[-500:]}")
        done.touch()
    return folder / "bin"


def run(pair: Pair, *command: str | Path, **more: str) -> str:
    done = subprocess.run(
        command, cwd=pair.folder, env={**pair.environment(), **more}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-4_000:]
    return done.stdout + done.stderr


def test_dagster(pair: Pair) -> None:
    program = """
from dagster import materialize
import dagster_assets as example

result = materialize(list(example.defs.resolve_asset_graph().assets_defs))
assert result.success
for event in result.get_asset_materialization_events():
    found = {name: value.value for name, value in event.materialization.metadata.items()}
    print(event.asset_key.to_user_string(), found)
"""
    found = run(pair, installed("dagster", "dagster") / "python", "-c", program)
    assert f"syphon_ledger {{'syphoned': {COUNT}, 'dead_lettered': 0}}" in found
    pair.check()


def test_airflow(pair: Pair) -> None:
    home = pair.folder / "airflow"
    programs = installed("airflow", "apache-airflow>=3,<4", "apache-airflow-providers-standard")
    settings = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(EXAMPLES),
        "PATH": f"{programs}:{os.environ['PATH']}",
    }
    run(pair, programs / "airflow", "db", "migrate", **settings)
    program = """
from airflow_dag import dag

found = dag.test()
states = {task.task_id: str(task.state) for task in found.get_task_instances()}
print(states)
assert set(states.values()) == {"success"}, states
"""
    found = run(pair, programs / "python", "-c", program, **settings)
    assert "'syphon': 'success'" in found
    pair.check()
