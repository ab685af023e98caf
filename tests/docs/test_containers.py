"""The image's command, the compose file and the application beside it, without a container. `scripts/container.sh`
builds and runs the real ones."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.cli.test_serve import serving, stopped
from tests.docs.pages import ROOT

EXAMPLE = ROOT / "examples" / "container"
CONTAINERFILE = (ROOT / "Containerfile").read_text()
SERVICES = yaml.safe_load((EXAMPLE / "compose.yaml").read_text())["services"]


def image_command() -> list[str]:
    found = re.findall(r"^CMD (\[.*\])$", CONTAINERFILE, re.MULTILINE)
    return [str(word) for word in json.loads(found[-1])]


def here(command: list[str], folder: Path) -> list[str]:
    """The arguments of `serve` with this machine's folders, and a port of the system's."""
    serve, *arguments = command
    assert serve == "serve"
    arguments[arguments.index("--data") + 1] = str(folder / "data")
    return [*(word.replace("/config.json", str(EXAMPLE / "config.json")) for word in arguments), "-n", "sbemulatorns:0"]


def test_the_compose_file_runs_an_application_beside_the_broker(tmp_path: Path) -> None:
    with serving(tmp_path, *here(shlex.split(SERVICES["broker"]["command"]), tmp_path)) as (process, ready):
        text = SERVICES["app"]["environment"]["TWINBUS_CONNECTION_STRING"]
        port = ready["sbemulatorns"]["port"]
        done = subprocess.run(
            [sys.executable, EXAMPLE / "app.py"],
            env={**os.environ, "TWINBUS_CONNECTION_STRING": text.replace("sb://broker;", f"sb://localhost:{port};")},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.stdout == "received: one coffee\n", done.stderr
        _, warned = stopped(process)
    assert "Warning: every machine" in warned


def test_the_image_starts_and_its_health_check_answers(tmp_path: Path) -> None:
    with serving(tmp_path, *here(image_command(), tmp_path)) as (_, ready):
        (check,) = re.findall(r"^    CMD (\[.*\])$", CONTAINERFILE, re.MULTILINE)
        program = json.loads(check)[-1].replace("5672", str(ready["sbemulatorns"]["port"]))
        subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
    with pytest.raises(subprocess.CalledProcessError):
        subprocess.run([sys.executable, "-c", program], check=True, timeout=30, capture_output=True)


def test_nothing_is_published_beyond_this_machine_while_any_key_is_accepted() -> None:
    for service in SERVICES.values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    assert re.findall(r"^USER (\S+)$", CONTAINERFILE, re.MULTILINE) == ["10001:10001"]
