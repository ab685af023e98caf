"""The systemd unit and the workflow in examples/ do what they say."""

from __future__ import annotations

import configparser
import contextlib
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import ROOT
from tests.docs.setting import free_port
from tests.docs.test_words import complaint

DEPLOY = ROOT / "examples" / "deploy"
UNIT = DEPLOY / "twinbus.service"
SYPHON = DEPLOY / "twinbus-syphon.service"
UNITS = pytest.mark.parametrize("service", [UNIT, SYPHON], ids=lambda path: path.name)
WORKFLOW = ROOT / "examples" / "ci" / "github-actions.yml"


def unit(section: str, key: str, service: Path = UNIT) -> str:
    parser = configparser.RawConfigParser(strict=False)
    # Systemd's keys have capitals, and may come again.
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(service)
    return parser[section][key]


@pytest.fixture
def systemd() -> None:
    """Systemd's own judge of units; `.ci/run` installs it."""
    if shutil.which("systemd-analyze") is None:
        missing = "systemd-analyze not found: the unit cannot be judged"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)


@UNITS
@pytest.mark.usefixtures("systemd")
def test_systemd_takes_the_unit(service: Path, tmp_path: Path) -> None:
    # What it starts must exist for systemd to be content; here it is where this tree's is.
    text = service.read_text().replace("/opt/twinbus/bin/twinbus", shutil.which("true") or "/bin/true")
    (tmp_path / service.name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / service.name)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        env={**os.environ, "SYSTEMD_LOG_LEVEL": "warning"},
    )
    said = [line for line in (done.stdout + done.stderr).splitlines() if service.stem in line]
    assert (done.returncode, said) == (0, []), done.stderr


@UNITS
@pytest.mark.usefixtures("systemd")
def test_the_unit_leaves_little_exposed(service: Path) -> None:
    # Of 100, less is better; a unit with nothing set has 96.
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--no-pager", "--threshold=20", str(service)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-400:] + done.stderr


@pytest.mark.usefixtures("systemd")
def test_a_mistake_in_the_unit_would_be_found(tmp_path: Path) -> None:
    (tmp_path / UNIT.name).write_text(UNIT.read_text().replace("ProtectHome=yes", "ProtectHome=perhaps"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / UNIT.name)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert "perhaps" in done.stderr


def test_the_command_of_the_unit_exists() -> None:
    command = unit("Service", "ExecStart")
    assert complaint(command.removeprefix("/opt/twinbus/bin/")) is None
    assert complaint(unit("Service", "ExecStart", SYPHON).removeprefix("/opt/twinbus/bin/")) is None
    ready = command.split("--ready-file ")[1].split()[0]
    assert ready == f"/run/{unit('Service', 'RuntimeDirectory')}/ready.json"
    assert f"/var/lib/{unit('Service', 'StateDirectory')}" in command


def test_the_command_of_the_unit_starts_a_broker_and_stops_it(tmp_path: Path) -> None:
    for name in ("etc/twinbus", "var/lib/twinbus", "run/twinbus"):
        (tmp_path / name).mkdir(parents=True)
    sample = (DEPLOY / "twinbus.toml").read_text()
    (tmp_path / "etc/twinbus/twinbus.toml").write_text(sample.replace("port = 5672", "port = 0"))
    command = unit("Service", "ExecStart").replace("/opt/twinbus/bin/twinbus", f"{sys.executable} -m twinbus")
    here = shlex.split(re.sub(r"(?<= )/(etc|var/lib|run)/twinbus", rf"{tmp_path}/\1/twinbus", command))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd, (tmp_path / "log").open("w") as log:
        # The path of a socket has at most 107 characters.
        address = tempfile.mktemp(prefix="twinbus-notify-")
        systemd.bind(address)
        systemd.settimeout(120)
        environment = {**os.environ, "NOTIFY_SOCKET": address, "WATCHDOG_USEC": "20000"}
        broker = subprocess.Popen(here, stdout=log, stderr=log, env=environment)
        try:
            assert systemd.recv(1000) == b"READY=1\nSTATUS=serving contoso"
            assert "contoso" in (tmp_path / "run/twinbus/ready.json").read_text()
            assert {systemd.recv(1000) for _ in range(3)} == {b"WATCHDOG=1"}
            broker.terminate()
            # Read meanwhile: what does not fit into the socket is dropped.
            while systemd.recv(1000) != b"STOPPING=1":
                pass
            assert broker.wait() == 0, (tmp_path / "log").read_text()
        finally:
            broker.kill()
            broker.wait()
            os.unlink(address)


def steps() -> list[dict[str, Any]]:
    workflow = yaml.safe_load(WORKFLOW.read_text())
    found: list[dict[str, Any]] = workflow["jobs"]["test"]["steps"]
    return found


def test_the_workflow_runs(tmp_path: Path) -> None:
    job = yaml.safe_load(WORKFLOW.read_text())["jobs"]["test"]
    port = str(free_port())
    environment = {
        **os.environ,
        **{name: value.replace("5672", port) for name, value in job["env"].items()},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "RUNNER_TEMP": str(tmp_path),
        "PYTEST_ADDOPTS": "-p no:cacheprovider",
    }
    ran, groups = [], []
    output = tmp_path / "output"
    try:
        for step in steps():
            # This tree is installed already, and `if: failure()` is for a red run.
            if "run" not in step or step["name"] == "install" or "if" in step:
                continue
            # As on GitHub's runner, each step has a shell of its own; the broker outlives the one it was started in.
            with output.open("w") as out:
                shell = subprocess.Popen(
                    ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"].replace("5672", port)],
                    cwd=ROOT,
                    env=environment,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            groups.append(shell.pid)
            assert shell.wait(50) == 0, (step["name"], output.read_text())
            ran.append(step["name"])
    finally:
        for group in groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGTERM)
    assert ran == ["start the broker", "test"]
    assert "1 passed" in output.read_text()


def test_the_install_step_names_what_the_steps_need() -> None:
    (install,) = [step["run"] for step in steps() if step.get("name") == "install"]
    assert set(install.split()) >= {"pip", "install", "wheels/twinbus-*.whl", "azure-servicebus", "pytest"}
