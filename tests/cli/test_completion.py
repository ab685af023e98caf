"""Shell completion, by the protocol of the script that `--show-completion` prints."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from twinbus.testing import Broker

Complete = Callable[..., list[str]]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Create a `twinbus` for the PATH: an installed one may be missing, or another version."""
    file = tmp_path / "bin" / "twinbus"
    file.parent.mkdir()
    file.write_text(f"#!/bin/sh\nexec {sys.executable} -c 'from twinbus.cli.main import run; run()' \"$@\"\n")
    file.chmod(0o755)
    return file


@pytest.fixture
def complete(bus: Broker, program: Path) -> Complete:
    """Return what bash would offer for a line that ends at the cursor."""
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    # What `twinbus --show-completion` prints in bash; it detects the shell it is started from.
    asked = {**os.environ, "_TWINBUS_COMPLETE": "source_bash"}
    shown = subprocess.run([program], env=asked, capture_output=True, text=True, check=True).stdout
    script = (
        f"{shown}\n"
        'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _twinbus_completion twinbus; printf "%s\\n" "${COMPREPLY[@]}"'
    )

    def offered(*words: str, environment: dict[str, str] | None = None) -> list[str]:
        told = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
        # On a machine busy with other tests, answers are slow.
        told |= {"TWINBUS_CONNECTION_STRING": bus.connection_string(), "TWINBUS_COMPLETION_S": "20"}
        told |= environment or {}
        child = subprocess.run(
            ["bash", "--norc", "-c", script, "bash", "twinbus", *words], env=told, capture_output=True, text=True
        )
        assert (child.returncode, child.stderr) == (0, "")
        return child.stdout.split()

    return offered


def test_commands_and_options(complete: Complete) -> None:
    assert complete("que") == ["queue"]
    assert "--lock-duration" in complete("queue", "create", "--lo")
    assert complete("receive", "orders", "--then", "d") == ["defer", "dead-letter"]


def test_names_of_entities(bus: Broker, complete: Complete) -> None:
    bus.create_topic("news")
    bus.create_subscription("news", "europe")
    assert complete("queue", "show", "o") == ["orders", "others"]
    assert complete("send", "") == ["news", "orders", "others"]
    assert complete("topic", "show", "") == ["news"]
    assert complete("subscription", "show", "news", "") == ["europe"]
    assert complete("receive", "news", "--subscription", "e") == ["europe"]
    assert complete("queue", "status", "orders", "Send") == ["SendDisabled"]


def test_whatever_goes_wrong_it_is_silent_and_quick(complete: Complete) -> None:
    with socket.socket() as silent:
        # Accepts the connection, but never answers.
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        end = "SharedAccessKeyName=a;SharedAccessKey=Yg==;UseDevelopmentEmulator=true"
        for text in (f"Endpoint=sb://127.0.0.1:{port};{end}", f"Endpoint=sb://127.0.0.1:1;{end}", "nonsense", ""):
            told = {"TWINBUS_CONNECTION_STRING": text, "TWINBUS_COMPLETION_S": ""}
            assert complete("queue", "show", "o", environment=told) == []
    azure = "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=a;SharedAccessKey=Yg=="
    assert complete("queue", "show", "o", environment={"TWINBUS_CONNECTION_STRING": azure}) == []


def test_contexts_and_their_entities(bus: Broker, complete: Complete, tmp_path: Path) -> None:
    kept = tmp_path / "twinbus" / "contexts.json"
    kept.parent.mkdir(mode=0o700)
    entry = {"connection_string": bus.connection_string(), "ca_file": None}
    away = {"connection_string": "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=a;SharedAccessKey=Yg=="}
    kept.write_text(json.dumps({"use": "away", "contexts": {"site": entry, "site-2": entry, "away": away}}))
    kept.chmod(0o600)
    told = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert complete("queue", "list", "--context", "s", environment=told) == ["site", "site-2"]
    assert complete("context", "use", "", environment=told) == ["away", "site", "site-2"]
    assert complete("context", "remove", "a", environment=told) == ["away"]
    # Without a variable the names are those of the context on the line, of TWINBUS_CONTEXT, or of the one in use.
    told["TWINBUS_CONNECTION_STRING"] = ""
    assert complete("queue", "show", "--context", "site", "o", environment=told) == ["orders", "others"]
    assert complete("queue", "show", "o", environment={**told, "TWINBUS_CONTEXT": "site"}) == ["orders", "others"]
    assert complete("queue", "show", "o", environment=told) == []
    kept.chmod(0o644)
    assert complete("queue", "list", "--context", "s", environment=told) == []
