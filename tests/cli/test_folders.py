"""`twinbus check` and `twinbus compact` on data folders of a real broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from twinbus.cli.folders import default_data, namespaces_in
from twinbus.cli.main import run
from twinbus.errors import ConfigError
from twinbus.store.environment import open_environment
from twinbus.store.facts import Table
from twinbus.testing import Broker

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    def ran(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return int(caught.value.code or 0), captured.out, captured.err

    return ran


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return the folder of a broker that had two namespaces and a few messages."""
    folder = tmp_path / "data"
    with (
        Broker(["contoso", "fabrikam"], {"contoso": ["orders"]}, data=folder, dev=False) as broker,
        ServiceBusClient.from_connection_string(broker.connection_string("contoso")) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages([ServiceBusMessage(f"message {n}") for n in range(5)])
    return folder


def damage(folder: Path) -> None:
    """Flip a bit in the first body."""
    env, tables = open_environment(folder, map_bytes=64 * 1024 * 1024)
    with env.begin(write=True) as txn:
        cursor = txn.cursor(tables.handles[Table.BODIES])
        assert cursor.first()
        key, value = cursor.item()
        txn.put(key, value[:-1] + bytes([value[-1] ^ 1]), db=tables.handles[Table.BODIES])
    env.close()


def test_a_whole_folder(command: Command, data: Path) -> None:
    code, out, err = command("check", data)
    assert code == 0, err
    rows = {line.split()[0].strip("│"): line for line in out.splitlines() if "whole" in line}
    assert len(rows) == 2
    assert any("contoso" in line and " 5 " in line for line in rows.values())


def test_a_damaged_body_is_found(command: Command, data: Path) -> None:
    damage(data / "contoso")
    code, out, _ = command("check", data)
    assert code == 1
    assert "damaged" in out
    assert "contoso: body 1 does not match its checksum" in out
    code, _, err = command("compact", data, data.with_name("copy"))
    assert code == 1
    assert "does not match its checksum" in err


def test_one_namespace_can_be_checked_alone(command: Command, data: Path) -> None:
    damage(data / "contoso")
    assert command("check", data / "fabrikam")[0] == 0
    assert command("check", data / "contoso")[0] == 1


def test_a_folder_in_use_is_not_looked_at(command: Command, data: Path) -> None:
    with Broker(["contoso"], data=data, dev=False):
        code, _, err = command("check", data)
        assert code == 1
        assert "in use by process" in err


def test_a_compact_copy_serves_as_the_original_did(command: Command, data: Path) -> None:
    copy = data.with_name("copy")
    code, out, err = command("compact", data, copy)
    assert code == 0, err
    assert "contoso: " in out
    assert f"--data {copy}" in out
    assert (copy / "keys.json").read_bytes() == (data / "keys.json").read_bytes()
    assert (copy / "keys.json").stat().st_mode & 0o777 == 0o600
    assert command("check", copy)[0] == 0
    with Broker(["contoso", "fabrikam"], data=copy, dev=False) as broker:
        counts = broker.call(lambda server: server.hosts["contoso"].entities.queue("orders").counts.active, "contoso")
        assert counts == 5
    code, _, err = command("compact", data, copy)
    assert code == 2
    assert "exists already" in err
    assert command("compact", data / "contoso", data.with_name("alone"))[0] == 0
    assert command("check", data.with_name("alone"))[0] == 0


def test_a_folder_without_data_says_so(command: Command, tmp_path: Path) -> None:
    code, _, err = command("check", tmp_path)
    assert code == 2
    assert f"There is no Twinbus data in {tmp_path}" in err
    with pytest.raises(ConfigError):
        namespaces_in(tmp_path / "nowhere")


@pytest.mark.parametrize("tool", ["check", "compact"])
def test_a_namespace_that_lost_its_store_is_named(command: Command, data: Path, tool: str) -> None:
    (data / "contoso" / "data.mdb").unlink()
    code, _, err = command(tool, data, *([data.with_name("copy")] if tool == "compact" else []))
    assert code != 0
    assert f"{data / 'contoso'} had a store" in err


def test_the_default_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_data() == tmp_path / "twinbus"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_data() == tmp_path / ".local" / "state" / "twinbus"
