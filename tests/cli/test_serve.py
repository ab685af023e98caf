"""`twinbus serve` as a process: what it prints and writes, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError

from twinbus.auth.connection_string import ConnectionString
from twinbus.broker.configuration.config import BrokerConfig, NamespaceConfig
from twinbus.broker.configuration.file import load_config
from twinbus.broker.configuration.toml import TomlConfig
from twinbus.broker.security.certificates import Certificates
from twinbus.broker.server import NamespaceEndpoint
from twinbus.cli.main import run
from twinbus.cli.serve import merged
from twinbus.entities.settings import QueueSettings
from twinbus.errors import ConfigError, StoreError

TWINBUS = [sys.executable, "-c", "from twinbus.cli.main import run; run()"]


@contextmanager
def serving(
    folder: Path, *arguments: str, env: dict[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], Any]]:
    """Yield a broker process and the namespaces of its ready file."""
    ready = folder / "ready.json"
    ready.unlink(missing_ok=True)
    process = subprocess.Popen(
        [*TWINBUS, "serve", "--ready-file", str(ready), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
    )
    try:
        deadline = time.monotonic() + 120
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"it did not start: {process.communicate()}")
            time.sleep(0.01)
        yield process, json.loads(ready.read_text())["namespaces"]
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def stopped(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> tuple[str, str]:
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    return out, err


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the error of a command that cannot start; it must be one line."""
    with pytest.raises(SystemExit) as caught:
        run(["serve", *arguments])
    assert caught.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("twinbus: ")
    assert len(captured.err.splitlines()) == 1
    return captured.err


def exchange(connection_string: str, queue: str) -> str:
    with ServiceBusClient.from_connection_string(connection_string) as client:
        with client.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage("hello"))
        with client.get_queue_receiver(queue) as receiver:
            (message,) = receiver.receive_messages(1, max_wait_time=5)
            receiver.complete_message(message)
            return str(message)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_told_to_stop(tmp_path: Path, number: int) -> None:
    arguments = ["--namespace", "contoso", "--namespace", "fabrikam:0", "--data", str(tmp_path / "data")]
    with serving(tmp_path, *arguments) as (process, ready):
        assert set(ready) == {"contoso", "fabrikam"}
        for each in ready.values():
            assert set(each) == {"connection_string", "host", "port", "admin_url"}
            parsed = ConnectionString.parse(each["connection_string"])
            assert parsed.port == each["port"]
            assert parsed.emulator
        assert json.loads((tmp_path / "ready.json").read_text())["pid"] == process.pid
        # Whoever connects with TLS next needs it.
        assert list(tmp_path.rglob("ca.pem"))
        assert (tmp_path / "ready.json").stat().st_mode & 0o777 == 0o600
        out, err = stopped(process, number)
        assert process.returncode == 0
        assert err == ""
        for each in ready.values():
            # A service's output ends up in a log: the key is only in the ready file and in keys.json.
            assert re.sub("SharedAccessKey=[^;]*", "SharedAccessKey=...", each["connection_string"]) in out.splitlines()
            assert ConnectionString.parse(each["connection_string"]).key not in out
        assert "keys.json" in out
        assert str(tmp_path / "data") in out
        assert not (tmp_path / "ready.json").exists()


def test_the_emulators_file_and_its_port(tmp_path: Path) -> None:
    topic = '{"Name": "topic.1", "Subscriptions": [{"Name": "s"}]}'
    config = tmp_path / "config.json"
    config.write_text(
        '{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", // comment\n'
        '"Queues": [{"Name": "queue.1"}], "Topics": [' + topic + "],}]}}"
    )
    arguments = ["--config", str(config), "--data", str(tmp_path / "data"), "--dev", "-n", "sbemulatorns:0"]
    with serving(tmp_path, *arguments) as (process, ready):
        assert exchange(ready["sbemulatorns"]["connection_string"], "queue.1") == "hello"
        out, err = stopped(process)
        assert err == ""
        assert "SharedAccessKey=SAS_KEY_VALUE" in out
        assert "any key" in out


@contextmanager
def taken(*ports: int) -> Iterator[None]:
    """Occupy these ports, unless somebody else listens there: then they are taken anyway."""
    with ExitStack() as held:
        for port in ports:
            listener = held.enter_context(socket.socket())
            # Like the broker: ignore old connections that the system still remembers.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):
                listener.bind(("127.0.0.1", port))
                listener.listen()
        yield


def test_the_emulators_ports_may_be_taken(tmp_path: Path) -> None:
    with taken(5672, 5300), serving(tmp_path, "--dev", "--data", str(tmp_path / "data")) as (process, ready):
        (name,) = ready
        assert name == "sbemulatorns"
        port = ready[name]["port"]
        assert port not in (0, 5672)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10) as answer:
            assert answer.status == 200
        out, err = stopped(process)
        assert f"Port 5672 is taken: sbemulatorns uses port {port}." in err
        assert "Port 5300 is taken" in err
        assert f"sbemulatorns on 127.0.0.1:{port}\n" in out


def told(*arguments: str, file: TomlConfig | None = None, dev: bool = True) -> list[tuple[str, list[int]]]:
    """Return the names and ports that a command line requests."""
    ports = {each.partition("=")[0]: int(each.partition("=")[2]) for each in arguments if "=" in each}
    config = merged(
        file or TomlConfig(),
        namespaces=[each for each in arguments if "=" not in each],
        data=Path("data"),
        host=None,
        dev=dev,
        allow_plaintext=False,
        classic_ports=ports,
    )
    config.check()
    # A requested port is never optional.
    assert not {*ports.values()} & {port for each in config.namespaces for port in each.optional_ports}
    return [(each.name, each.ports) for each in config.namespaces]


def test_the_tier_is_that_of_the_command_line_or_the_file() -> None:
    file = TomlConfig([NamespaceConfig("north", sku="Premium"), NamespaceConfig("south")])
    for sku, wanted in ((None, ["Premium", "Standard"]), ("Premium", ["Premium"] * 2), ("Standard", ["Standard"] * 2)):
        config = merged(file, namespaces=[], data=Path("data"), host=None, dev=True, allow_plaintext=False, sku=sku)
        assert [each.sku for each in config.namespaces] == wanted


def test_dev_alone_is_the_emulator() -> None:
    assert told() == [("sbemulatorns", [5672, 5300])]
    assert told("contoso") == [("contoso", [0])]
    assert told("admin_port=5301") == [("sbemulatorns", [5672, 5301])]
    assert told("amqp_port=5672") == [("sbemulatorns", [0, 5672, 5300])]
    with pytest.raises(ConfigError, match="There is no namespace"):
        told(dev=False)


def test_the_emulators_ports_are_used_unless_told_otherwise(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns"}]}}')
    file = load_config(config)
    assert told(file=file, dev=False) == [("sbemulatorns", [5672, 5300])]
    assert told("sbemulatorns:6000", file=file) == [("sbemulatorns", [6000])]
    assert told("sbemulatorns", file=file) == [("sbemulatorns", [5672, 5300])]
    assert told("amqp_port=5672", "admin_port=5300", file=file) == [("sbemulatorns", [0, 5672, 5300])]


def test_keys_and_messages_live_through_a_restart(tmp_path: Path) -> None:
    config = tmp_path / "twinbus.toml"
    config.write_text('data = "data"\n[namespaces.contoso.queues.orders]\n')
    with serving(tmp_path, "--config", str(config)) as (process, ready):
        first = ConnectionString.parse(ready["contoso"]["connection_string"])
        with (
            ServiceBusClient.from_connection_string(ready["contoso"]["connection_string"]) as client,
            client.get_queue_sender("orders") as sender,
        ):
            sender.send_messages(ServiceBusMessage("kept"))
        process.kill()
        process.wait()
    with serving(tmp_path, "--config", str(config)) as (_, ready):
        again = ConnectionString.parse(ready["contoso"]["connection_string"])
        assert again.key == first.key
        with (
            ServiceBusClient.from_connection_string(ready["contoso"]["connection_string"]) as client,
            client.get_queue_receiver("orders") as receiver,
        ):
            assert [str(message) for message in receiver.receive_messages(1, max_wait_time=5)] == ["kept"]


def test_a_wrong_key_is_refused_without_dev(tmp_path: Path) -> None:
    config = tmp_path / "twinbus.toml"
    config.write_text("[namespaces.contoso.queues.orders]\n")
    with serving(tmp_path, "--config", str(config), "--data", str(tmp_path / "data")) as (_, ready):
        text = re.sub("SharedAccessKey=[^;]*", "SharedAccessKey=wrong", ready["contoso"]["connection_string"])
        with (
            ServiceBusClient.from_connection_string(text, retry_total=0) as client,
            pytest.raises(ServiceBusAuthenticationError),
            client.get_queue_sender("orders") as sender,
        ):
            sender.send_messages(ServiceBusMessage("no"))


def test_without_data_it_says_where_it_keeps_it(tmp_path: Path) -> None:
    with serving(tmp_path, "-n", "contoso", env={"XDG_STATE_HOME": str(tmp_path / "state")}) as (process, _):
        out, _ = stopped(process)
        assert f"Twinbus keeps its data in {tmp_path / 'state' / 'twinbus'}." in out
        assert (tmp_path / "state" / "twinbus" / "keys.json").exists()


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path, "-n", "contoso", "--data", str(tmp_path / "data")) as (process, _):
        second = subprocess.run(
            [*TWINBUS, "serve", "-n", "contoso", "--data", str(tmp_path / "data")],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        assert second.returncode == 1
        assert f"in use by process {process.pid}" in second.stderr
        assert "Traceback" not in second.stderr


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path, "-n", "contoso", "--data", str(tmp_path / "data")) as (_, ready):
        port = ready["contoso"]["port"]
        second = subprocess.run(
            [*TWINBUS, "serve", "-n", f"other:{port}", "--data", str(tmp_path / "second")],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        assert second.returncode == 2
        assert f"'other' cannot listen on 127.0.0.1:{port}" in second.stderr
        assert "Traceback" not in second.stderr


def test_listening_wider_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data = ["--data", str(tmp_path / "data"), "-n", "contoso", "--host", "0.0.0.0"]
    assert "--tls-certificate, or --tls-name" in refused(capsys, *data)
    assert "--allow-plaintext" in refused(capsys, *data)
    assert "--allow-remote-dev" in refused(capsys, *data, "--dev")
    assert "Development mode" in refused(capsys, *data, "--dev", "--allow-plaintext")
    # The flag does not apply when keys are checked.
    assert "--tls-certificate" in refused(capsys, *data, "--allow-remote-dev")
    assert not (tmp_path / "data").exists()


def test_development_mode_on_other_interfaces_warns(tmp_path: Path) -> None:
    wide = ["--dev", "--host", "0.0.0.0", "--allow-remote-dev", "-n", "contoso:0", "--data", str(tmp_path / "data")]
    with serving(tmp_path, *wide) as (process, ready):
        port = ready["contoso"]["port"]
        assert f"sb://localhost:{port};" in ready["contoso"]["connection_string"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10) as answer:
            assert answer.status == 200
        _, err = stopped(process)
    assert err.startswith(f"Warning: every machine that reaches 0.0.0.0:{port} can read, send and delete")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "There is no namespace"),
        (["-n", "a_b"], "The namespace name 'a_b'"),
        (["-n", "contoso:http"], "the port must be a number"),
        (["-n", "contoso:65536"], "the port must be a number"),
        (["-n", "contoso:-1"], "the port must be a number"),
        (["-n", "a:6000", "-n", "b:6000"], "both want port 6000"),
        (["--config", "nowhere.json"], "nowhere.json cannot be read"),
    ],
)
def test_a_wrong_command_line_says_why(
    capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str, tmp_path: Path
) -> None:
    assert problem in refused(capsys, *arguments, "--data", str(tmp_path / "data"))


def test_a_wrong_configuration_names_the_key(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "twinbus.toml"
    config.write_text('[namespaces.contoso.queues.orders]\nlock_duratoin = "30s"\n')
    text = refused(capsys, "--config", str(config))
    assert "namespaces.contoso.queues.orders has the unknown key 'lock_duratoin'. Did you mean 'lock_duration'?" in text


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    queue = QueueSettings(path="orders")
    file = TomlConfig(
        [NamespaceConfig("contoso", 5000, [queue])], data=tmp_path / "file", host="::1", dev=True, allow_plaintext=True
    )
    quiet = merged(file, namespaces=[], data=None, host=None, dev=False, allow_plaintext=False)
    assert (quiet.data, quiet.host, quiet.dev, quiet.allow_plaintext) == (tmp_path / "file", "::1", True, True)
    loud = merged(
        file,
        namespaces=["CONTOSO:6000", "fabrikam"],
        data=tmp_path / "cli",
        host="127.0.0.1",
        dev=True,
        allow_plaintext=True,
    )
    assert (loud.data, loud.host) == (tmp_path / "cli", "127.0.0.1")
    assert [(each.name, each.port) for each in loud.namespaces] == [("contoso", 6000), ("fabrikam", 0)]
    assert loud.namespaces[0].queues == [queue]
    twice = TomlConfig([NamespaceConfig("a"), NamespaceConfig("A")])
    with pytest.raises(ConfigError, match="'a' twice"):
        merged(twice, namespaces=[], data=None, host=None, dev=False, allow_plaintext=False)


def test_classic_ports_are_for_one_namespace(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data = ["--data", str(tmp_path / "data"), "--amqp-port", "5672"]
    assert "--amqp-port is for a single namespace" in refused(capsys, *data, "-n", "a", "-n", "b")
    assert "has the port 5672 twice" in refused(capsys, *data, "-n", "a:5672")
    assert "not between 0 and 65535" in refused(capsys, "-n", "a", "--admin-port", "70000")


def test_a_certificate_that_cannot_be_used_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data = ["-n", "contoso", "--data", str(tmp_path / "data")]
    missing = ["--tls-certificate", str(tmp_path / "none.pem")]
    assert "none.pem cannot be used: No such file" in refused(capsys, *data, *missing)
    assert "no certificate: give --tls-certificate" in refused(capsys, *data, "--tls-key", "key.pem")


def test_the_certificate_is_there_soon_after_the_first_start(tmp_path: Path) -> None:
    with serving(tmp_path, "-n", "contoso", "--data", str(tmp_path / "data")) as (process, ready):
        url = ready["contoso"]["admin_url"]
        assert url == f"http://localhost:{ready['contoso']['port']}"
        with urllib.request.urlopen(f"{url}/health", timeout=10) as answer:
            assert answer.status == 200
        _, err = stopped(process)
        assert (process.returncode, err) == (0, "")
        assert (tmp_path / "data" / "server.pem").stat().st_mode & 0o777 == 0o600


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run(["--version"])
    assert caught.value.code == 0
    assert re.fullmatch(r"twinbus 0\.\d+\.\d+ \((pure|compiled)\)\n", capsys.readouterr().out)


class FailingServer:
    """A server whose store fails as soon as it starts serving."""

    def __init__(self, config: BrokerConfig) -> None:
        self.endpoints = {"contoso": NamespaceEndpoint("127.0.0.1", 1, "Endpoint=sb://localhost:1;")}
        self.notes: list[str] = []
        self.failed = asyncio.Event()
        self.failure: BaseException | None = None
        self.certificates = Certificates(config.data or Path())

    async def start(self) -> None:
        self.failure = StoreError("the disk is gone")
        self.failed.set()

    async def stop(self) -> None:
        raise OSError("the disk is gone, still")


def test_a_failed_store_ends_it_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("twinbus.broker.server.Server", FailingServer)
    monkeypatch.setattr("twinbus.broker.tuning.tune_process", lambda: None)
    with pytest.raises(SystemExit) as caught:
        run(["serve", "-n", "contoso", "--data", str(tmp_path), "--ready-file", str(tmp_path / "ready.json")])
    assert caught.value.code == 1
    assert "twinbus: The broker stopped because its store failed: the disk is gone\n" in capsys.readouterr().err
    assert not (tmp_path / "ready.json").exists()


def test_an_unwritable_ready_file_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("twinbus.broker.server.Server", FailingServer)
    monkeypatch.setattr("twinbus.broker.tuning.tune_process", lambda: None)
    with pytest.raises(SystemExit) as caught:
        run(["serve", "-n", "contoso", "--data", str(tmp_path), "--ready-file", str(tmp_path / "no" / "ready.json")])
    assert caught.value.code == 2
    assert "cannot be written: No such file or directory" in capsys.readouterr().err
