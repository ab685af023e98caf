"""Which namespace a command uses, and the errors if it is unreachable or refuses us."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from twinbus.testing import Broker

Done = Callable[..., str]

# A directory request and a message request: they take different paths.
BOTH = pytest.mark.parametrize("asking", [["queue", "list"], ["peek", "orders"]], ids=["entities", "messages"])


def string(port: int, *, key: str = "bm9uZQ==", tls: bool = False) -> str:
    end = "" if tls else "UseDevelopmentEmulator=true"
    return f"Endpoint=sb://localhost:{port};SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey={key};{end}"


def one_line(found: tuple[int, str, str], code: int = 1) -> str:
    assert found[0] == code, found
    assert (found[1], found[2].count("\n")) == ("", 1)
    return found[2]


@BOTH
def test_by_option_file_and_ready_file(
    bus: Broker, twinbus: Command, asking: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("TWINBUS_CONNECTION_STRING")
    problem = one_line(twinbus(*asking), 2)
    assert "No broker given: pass --connection-string" in problem
    file = tmp_path / "connection"
    file.write_text(bus.connection_string() + "\n")
    assert twinbus(*asking, "-c", bus.connection_string())[0] == 0
    assert twinbus(*asking, "--connection-file", str(file))[0] == 0
    assert "cannot be read" in one_line(twinbus(*asking, "--connection-file", str(tmp_path / "none")), 2)


@BOTH
def test_nobody_is_there(twinbus: Command, asking: list[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        problem = one_line(twinbus(*asking, "-c", string(port)))
    assert f"localhost:{port}" in problem
    assert "Is it running? Start it with `twinbus serve`" in problem


@BOTH
def test_the_key_is_wrong(bus: Broker, twinbus: Command, asking: list[str]) -> None:
    problem = one_line(twinbus(*asking, "-c", string(bus.endpoint().port, key="c2VjcmV0bm90cmlnaHQ=")))
    assert "Check the key and its rights for localhost" in problem
    assert "c2VjcmV0bm90cmlnaHQ" not in problem


@BOTH
def test_somebody_else_is_there(twinbus: Command, asking: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            with server.accept()[0] as peer:
                peer.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
                while peer.recv(1024):
                    pass

        thread = threading.Thread(target=greet)
        thread.start()
        problem = one_line(twinbus(*asking, "-c", string(server.getsockname()[1])))
        thread.join()
    assert "the right port? `twinbus serve` shows it." in problem


@BOTH
def test_somebody_is_there_and_silent(twinbus: Command, asking: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinbus.cli.directory.PATIENCE_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        problem = one_line(twinbus(*asking, "-c", string(server.getsockname()[1])))
    assert "right port" in problem


@BOTH
def test_tls_needs_a_ca_that_is_trusted(bus: Broker, twinbus: Command, asking: list[str], tmp_path: Path) -> None:
    key = bus.connection_string().partition("SharedAccessKey=")[2].partition(";")[0]
    text = string(bus.endpoint().port, key=key, tls=True)
    ca_file = str(bus.ca_file)
    problem = one_line(twinbus(*asking, "-c", text))
    assert "--ca-file" in problem
    code, _, err = twinbus(*asking, "-c", text, "--ca-file", ca_file)
    assert code == 0, err
    assert "There is no file" in one_line(twinbus(*asking, "--ca-file", str(tmp_path / "none")), 2)


def test_a_name_that_is_not_there(bus: Broker, twinbus: Command, done: Done) -> None:
    assert "Did you mean 'orders'?" in one_line(twinbus("send", "ordrs", "x"))
    assert "Did you mean 'others'?" in one_line(twinbus("queue", "show", "othres"))
    assert "Existing: orders, others." in one_line(twinbus("peek", "zebra"))
    for name in "abcde":
        bus.create_queue(name)
    assert "Existing: a, b, c, d, e and 2 more." in one_line(twinbus("peek", "zebra"))
    assert "visit" not in one_line(twinbus("peek", "zebra"))
    assert "TrackingId" not in one_line(twinbus("peek", "zebra"))


def test_a_subscription_that_is_not_there(bus: Broker, twinbus: Command) -> None:
    bus.create_topic("news")
    assert "`twinbus subscription create news NAME` creates one" in one_line(twinbus("receive", "news", "-s", "eu"))
    for name in ("europe", "asia"):
        bus.create_subscription("news", name)
    assert "Did you mean 'europe'?" in one_line(twinbus("subscription", "show", "news", "eurpe"))
    assert "Did you mean 'asia'?" in one_line(twinbus("peek", "news", "--subscription", "asai"))
    assert "Existing: asia, europe." in one_line(twinbus("rule", "list", "news", "zebra"))


def test_a_namespace_without_entities(bus: Broker, twinbus: Command, done: Done) -> None:
    for name in ("orders", "others"):
        bus.delete_queue(name)
    assert "`twinbus queue create NAME` creates one" in one_line(twinbus("peek", "zebra"))
    assert done("queue", "list", "--json") == "[]\n"


def test_the_connection_string_is_never_shown(bus: Broker, twinbus: Command) -> None:
    secret = bus.connection_string().partition("SharedAccessKey=")[2].partition(";")[0]
    for arguments in (
        ["peek", "zebra"],
        ["queue", "list", "--help"],
        ["queue", "list", "--jsno"],
        ["queue", bus.connection_string()],
        ["send", "orders", "x", "-c"],
        ["queue", "show", "nobody", "-c", bus.connection_string()],
    ):
        code, out, err = twinbus(*arguments)
        assert secret not in out + err
        assert (code == 0) == ("--help" in arguments)
