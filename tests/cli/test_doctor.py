"""`twinbus doctor`: each thing that can be wrong is found, named, and comes with the next step."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from twinbus.broker.security import authority
from twinbus.cli import doctor
from twinbus.cli.main import run
from twinbus.testing import Broker


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with one namespace, whose broker has stopped."""
    folder = tmp_path / "data"
    with Broker(data=folder, dev=False, sync=False):
        pass
    folder.chmod(0o700)
    return folder


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    with pytest.raises(SystemExit) as caught:
        run(["doctor", "--json", *arguments])
    found = json.loads(capsys.readouterr().out)
    assert all(bool(each["next_step"]) == (each["health"] != "fine") for each in found)
    return int(caught.value.code or 0), {each["subject"]: each for each in found}


def test_a_sound_folder_has_no_problem(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    code, found = told(capsys, "--data", str(data))
    assert code == 0
    assert "problem" not in {each["health"] for each in found.values()}
    assert found["namespace contoso"]["finding"].startswith("Not served")


def test_people_get_a_table_and_a_sum(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as caught:
        run(["doctor", "--data", str(tmp_path / "none")])
    assert not caught.value.code
    printed = capsys.readouterr().out
    assert "does not exist. The first start of the broker creates it." in " ".join(printed.split())
    assert printed.endswith("No problems found.\n")
    assert not (tmp_path / "none").exists()


def test_a_running_broker_is_named_and_not_disturbed(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    with Broker(data=data, dev=False, sync=False):
        code, found = told(capsys, "--data", str(data))
        assert found["namespace contoso"]["finding"] == f"Served by process {os.getpid()}."
    assert code == 0


def test_a_lost_store_is_a_problem(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    (data / "contoso" / "data.mdb").unlink()
    code, found = told(capsys, "--data", str(data))
    assert code == 1
    assert found["namespace contoso"]["health"] == "problem"


def test_a_folder_open_to_others_is_noted(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    data.chmod(0o755)
    assert told(capsys, "--data", str(data))[1]["data folder"]["next_step"] == f"chmod 700 {data}"


def test_a_file_is_no_data_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    assert told(capsys, "--data", str(tmp_path / "data"))[1]["data folder"]["health"] == "problem"


def test_files_from_the_future_tell_of_a_clock_set_back(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    future = (datetime.now(UTC) + timedelta(days=1)).timestamp()
    os.utime(data / "contoso" / "data.mdb", (future, future))
    code, found = told(capsys, "--data", str(data))
    assert (code, found["clock"]["health"]) == (1, "problem")


@pytest.mark.parametrize(("free", "health"), [(10**7, "problem"), (10**9, "note"), (10**11, "fine")])
def test_a_disk_that_fills_is_found(
    capsys: pytest.CaptureFixture[str], data: Path, monkeypatch: pytest.MonkeyPatch, free: int, health: str
) -> None:
    usage = doctor.shutil.disk_usage(data)._replace(free=free)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: usage)
    assert told(capsys, "--data", str(data))[1]["disk"]["health"] == health


def configured(tmp_path: Path, certificate: Path) -> Path:
    config = tmp_path / "twinbus.toml"
    config.write_text(f'tls_certificate = "{certificate}"\ndata = "data"\n[namespaces.contoso]\n')
    return config


@pytest.mark.parametrize(("age_days", "health"), [(400, "problem"), (390, "note"), (1, "fine")])
def test_the_age_of_a_certificate_of_your_own(
    capsys: pytest.CaptureFixture[str], data: Path, tmp_path: Path, age_days: int, health: str
) -> None:
    made_ms = int((datetime.now(UTC) - timedelta(days=age_days)).timestamp() * 1000)
    ca_key, key = authority.make_key(), authority.make_key()
    ca = authority.make_ca(ca_key, made_ms, "somebody")
    certificate = tmp_path / "own.pem"
    certificate.write_text(authority.make_server(ca, ca_key, key, made_ms, ["localhost"]))
    _, found = told(capsys, "--config", str(configured(tmp_path, certificate)))
    assert found["certificate"]["health"] == health
    assert found["configuration"]["finding"].endswith("1 namespace.")


@pytest.mark.parametrize("text", [None, "not PEM"])
def test_a_certificate_that_is_none(
    capsys: pytest.CaptureFixture[str], data: Path, tmp_path: Path, text: str | None
) -> None:
    certificate = tmp_path / "own.pem"
    if text is not None:
        certificate.write_text(text)
    code, found = told(capsys, "--config", str(configured(tmp_path, certificate)))
    assert (code, found["certificate"]["health"]) == (1, "problem")


def test_a_bad_configuration_ends_the_look(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "twinbus.toml"
    config.write_text("colour = 1\n")
    code, found = told(capsys, "--config", str(config))
    assert (code, list(found)) == (1, ["configuration"])


def test_a_port_that_another_program_has(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        config = tmp_path / "twinbus.toml"
        config.write_text(f'data = "none"\n[namespaces.contoso]\nport = {port}\n')
        code, found = told(capsys, "--config", str(config))
        assert (code, found[f"port {port}"]["health"]) == (0, "note")


def test_a_remote_file_system_is_a_problem(
    capsys: pytest.CaptureFixture[str], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_mounted_as", lambda _: "nfs4")
    assert told(capsys, "--data", str(data))[1]["file system"]["health"] == "problem"


@pytest.mark.skipif(not Path("/proc/self/mounts").exists(), reason="this system does not list its mounts")
def test_the_file_system_is_the_one_of_the_longest_mount() -> None:
    assert doctor._mounted_as(Path("/proc/self")) == "proc"


def test_java_that_is_too_old_is_a_problem(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    environment = {**os.environ, "JAVA_HOME": str(tmp_path), "PATH": "/nowhere", "TWINBUS_JAVA": "found"}
    program = "from twinbus.cli.main import run; run()"
    arguments = [sys.executable, "-c", program, "doctor", "--json", "--data", str(tmp_path / "none")]
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    found = {each["subject"]: each for each in json.loads(done.stdout)}
    assert (done.returncode, found["Java"]["health"]) == (1, "problem")


@pytest.mark.parametrize(
    ("versions", "subject", "health"),
    [
        ({}, "official SDK", "note"),
        ({"azure-servicebus": "7.14.3"}, "official SDK", "problem"),
        ({"azure-servicebus": "8.0.0b1"}, "official SDK", "problem"),
        ({"azure-servicebus": "7.15.0"}, "official SDK", "fine"),
        ({}, "event loop", "note"),
        ({}, "Spark", "note"),
    ],
)
def test_packages(
    capsys: pytest.CaptureFixture[str],
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
    versions: dict[str, str],
    subject: str,
    health: str,
) -> None:
    monkeypatch.setattr(doctor, "_version", versions.get)
    assert told(capsys, "--data", str(data))[1][subject]["health"] == health


def test_few_open_files_are_noted(
    capsys: pytest.CaptureFixture[str], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor.resource, "getrlimit", lambda _: (1024, 4096))
    assert "4,096" in told(capsys, "--data", str(data))[1]["open files"]["finding"]
