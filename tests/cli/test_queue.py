"""`twinbus queue` against a real broker, and its errors if there is none."""

from __future__ import annotations

import io
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from twinbus.auth.connection_string import ConnectionString
from twinbus.auth.policies import Policy, rights_of
from twinbus.auth.sas import sign
from twinbus.broker.configuration.config import NamespaceConfig
from twinbus.cli import directory
from twinbus.cli.directory import ask
from twinbus.cli.main import run
from twinbus.clock import SystemClock
from twinbus.entities.settings import QueueSettings
from twinbus.errors import ConfigError, ConnectionForcedError, OperationTimeoutError
from twinbus.testing import Broker

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def broker() -> Iterator[Broker]:
    sender = Policy("sender", rights_of(["Send", "Listen"]), "sender-key")
    with Broker([NamespaceConfig("contoso", policies=[sender])], dev=False) as broker:
        yield broker


@pytest.fixture
def command(broker: Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run `twinbus queue ...`; return exit code, output and errors."""
    monkeypatch.setenv("TWINBUS_CONNECTION_STRING", broker.connection_string())

    def ran(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            run(["queue", *arguments])
        captured = capsys.readouterr()
        return int(caught.value.code or 0), captured.out, captured.err

    return ran


def settings(broker: Broker, path: str) -> QueueSettings:
    return broker.call(lambda server: server.hosts["contoso"].entities.queue(path).settings)


def test_a_queue_with_defaults(command: Command, broker: Broker) -> None:
    assert command("create", "orders") == (0, "Created queue orders.\n", "")
    assert settings(broker, "orders") == QueueSettings(path="orders")


def test_list_and_show(command: Command, broker: Broker) -> None:
    broker.create_queue("zebra")
    broker.create_queue("Apple", requires_session=True)
    code, out, _ = command("list")
    assert code == 0
    heading, apple, zebra = out.splitlines()
    assert heading.split() == ["queue", "active", "scheduled", "deferred", "dead-letter", "bytes", "status"]
    assert apple.split() == ["Apple", "0", "0", "0", "0", "0", "Active"]
    assert zebra.startswith("zebra")
    code, out, _ = command("list", "--json")
    assert [queue["path"] for queue in json.loads(out)] == ["Apple", "zebra"]
    code, out, _ = command("show", "apple")
    rows = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert rows["requires-session"].strip() == "yes"
    assert rows["lock-duration"].strip() == "PT1M"
    assert rows["default-ttl"].strip() == "never"
    assert rows["forward-to"].strip() == "-"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", rows["created"].strip())
    code, out, _ = command("show", "zebra", "--json")
    assert json.loads(out)["path"] == "zebra"


def test_an_empty_namespace_lists_nothing(command: Command) -> None:
    assert json.loads(command("list", "--json")[1]) == []
    assert command("list")[0] == 0


def test_delete(command: Command, broker: Broker) -> None:
    broker.create_queue("orders")
    code, out, err = command("delete", "orders")
    assert (code, out) == (2, "")
    assert "pass --yes" in err, "nobody can be asked without a terminal"
    assert command("delete", "orders", "--yes") == (0, "Deleted queue orders.\n", "")
    code, out, err = command("delete", "orders", "--yes")
    assert (code, out) == (1, "")
    assert err.startswith("twinbus: The messaging entity 'orders' could not be found.")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_person_is_asked_before_a_delete(command: Command, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.create_queue("orders")
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    code, out, _ = command("delete", "orders")
    assert code == 1
    assert "Delete queue orders and its 0 messages?" in out
    assert settings(broker, "orders")
    monkeypatch.setattr("sys.stdin", Terminal(""))
    assert command("delete", "orders", "--yes")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["create", "orders"], 1, "already exists"),
        (["create", "a//b"], 1, "The entity path 'a//b'"),
        (["create", "x", "--lock-duration", "1s"], 1, "out of range: 5000 to 300000"),
        (["create", "x", "--lock-duration", "soon"], 2, "'soon' is not a duration"),
        (["create", "x", "--status", "Open"], 2, "status 'Open' is not one of Active"),
        (["show", "nobody"], 1, "could not be found"),
        (["list", "--namespace", "contoso"], 2, "give --ready-file too"),
        (["list", "-c", "Endpoint=sb://h"], 2, "The connection string has no SharedAccessKey"),
    ],
)
def test_a_refusal_is_one_clear_line(
    command: Command, broker: Broker, arguments: list[str], code: int, problem: str
) -> None:
    broker.create_queue("orders")
    found, out, err = command(*arguments)
    assert (found, out) == (code, "")
    assert err.startswith("twinbus: ")
    assert problem in err
    assert len(err.splitlines()) == 1


def changed(broker: Broker, **parts: Any) -> str:
    text = broker.connection_string()
    for name, value in parts.items():
        text = re.sub(f"{name}=[^;]*", f"{name}={value}", text)
    return text


def test_a_wrong_key_and_a_missing_right(command: Command, broker: Broker) -> None:
    code, _, err = command("list", "-c", changed(broker, SharedAccessKey="wrong"))
    assert code == 1
    assert "InvalidSignature: The token has an invalid signature" in err
    weak = changed(broker, SharedAccessKeyName="sender", SharedAccessKey="sender-key")
    code, _, err = command("list", "-c", weak)
    assert code == 1
    assert "'Manage' claim(s) are required" in err


def test_a_ready_made_signature_is_enough(command: Command, broker: Broker) -> None:
    own = ConnectionString.parse(broker.connection_string())
    expiry_s = SystemClock().now_ms() // 1000 + 60
    token = sign(f"sb://{own.netloc}", own.key_name or "", own.key or "", expiry_s)
    text = ConnectionString(own.host, own.port, signature=token, emulator=True).format()
    assert command("list", "-c", text)[0] == 0


def test_the_ready_file_names_the_broker(command: Command, broker: Broker, tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    one = {"connection_string": broker.connection_string(), "host": "127.0.0.1", "port": 1, "admin_url": None}
    ready.write_text(json.dumps({"namespaces": {"contoso": one}}))
    assert command("list", "--ready-file", str(ready), "-c", "nonsense")[0] == 0
    assert command("list", "--ready-file", str(ready), "-n", "CONTOSO")[0] == 0
    assert "has no namespace 'other'; it has contoso" in command("list", "--ready-file", str(ready), "-n", "other")[2]
    ready.write_text(json.dumps({"namespaces": {"contoso": one, "fabrikam": one}}))
    assert "choose one with --namespace (contoso, fabrikam)" in command("list", "--ready-file", str(ready))[2]
    ready.write_text("[]")
    assert "is not a ready file" in command("list", "--ready-file", str(ready))[2]
    ready.unlink()
    assert "Is the broker running?" in command("list", "--ready-file", str(ready))[2]


def test_without_a_broker_it_says_how_to_name_one() -> None:
    with pytest.raises(ConfigError, match="TWINBUS_CONNECTION_STRING"):
        directory.find(None, None, None)


def test_nobody_there() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    with pytest.raises(ConnectionForcedError, match=f"No connection to 127.0.0.1:{port}"):
        directory.ask(ConnectionString("127.0.0.1", port, "n", "k", emulator=True), "twinbus:list-queues", {})


def test_somebody_else_there() -> None:
    """A peer that hangs up, a silent one, and one that speaks HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = ConnectionString("127.0.0.1", listening.getsockname()[1], "n", "k", emulator=True)

        def answer() -> None:
            first, _ = listening.accept()
            first.close()
            second, _ = listening.accept()
            third, _ = listening.accept()
            third.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            third.recv(1000)
            third.close()
            second.close()

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ConnectionForcedError):
            ask(address, "twinbus:list-queues", {})
        with pytest.raises(OperationTimeoutError, match="within"):
            ask(address, "twinbus:list-queues", {}, patience_s=0.1)
        with pytest.raises(ConnectionForcedError, match="protocol header"):
            ask(address, "twinbus:list-queues", {})
        thread.join()
