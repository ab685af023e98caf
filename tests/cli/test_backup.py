"""Backups of a broker under load and of a data folder, and what is restored from them."""

from __future__ import annotations

import itertools
import json
import os
import resource
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from twinbus.auth.connection_string import ConnectionString
from twinbus.cli.main import run
from twinbus.cli.target import TargetNamespace
from twinbus.errors import ArgumentError
from twinbus.store.backup import StorePieces
from twinbus.store.facts import Facts
from twinbus.testing import Broker

Said = tuple[int, str, str]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    def ran(*arguments: object) -> Said:
        with pytest.raises(SystemExit) as caught:
            run([str(each) for each in arguments])
        captured = capsys.readouterr()
        return int(caught.value.code or 0), captured.out, captured.err

    return ran


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(queues=["orders", "flow"], dev=False, sync=False, data=tmp_path / "data") as running:
        yield running


def bodies(said: Callable[..., Said], broker: Broker, queue: str) -> list[str]:
    code, out, err = said("peek", queue, "--max", 10_000, "--json", "-c", broker.connection_string())
    assert code == 0, err
    return [json.loads(line)["body"] for line in out.splitlines()]


def key_of(broker: Broker) -> str:
    return broker.connection_string().partition("SharedAccessKey=")[2]


def test_a_backup_under_load_is_of_one_moment(broker: Broker, tmp_path: Path, said: Callable[..., Said]) -> None:
    """One sender moves a token: each step completes the last message and sends the next, in order."""
    connection = broker.connection_string()
    filled = said("send", "orders", "{n}" + "x" * 2_000, "--count", 3_000, "-c", connection)
    assert filled[0] == 0
    stop = threading.Event()
    sent: list[int] = []

    def load() -> None:
        with ServiceBusClient.from_connection_string(connection) as client:
            sender, receiver = client.get_queue_sender("flow"), client.get_queue_receiver("flow")
            with sender, receiver:
                while not stop.is_set():
                    sender.send_messages(ServiceBusMessage(str(len(sent))))
                    sent.append(len(sent))
                    if len(sent) > 5:
                        for message in receiver.receive_messages(1, max_wait_time=5):
                            receiver.complete_message(message)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        while len(sent) < 10:
            assert thread.is_alive()
        before = len(sent)
        code, out, err = said("backup", tmp_path / "b", "-c", connection, "--json")
        after = len(sent)
    finally:
        stop.set()
        thread.join()
    assert code == 0, err
    (told,) = json.loads(out)["namespaces"]
    assert told["namespace"] == "contoso"
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o700
    assert said("restore", tmp_path / "b", "--data", tmp_path / "again")[0] == 0
    with Broker(queues=["orders", "flow"], dev=False, sync=False, data=tmp_path / "again") as restored:
        assert (
            restored.connection_string().partition("SharedAccessKey=")[2] == connection.partition("SharedAccessKey=")[2]
        )
        assert [each.rstrip("x") for each in bodies(said, restored, "orders")] == [str(n) for n in range(1, 3_001)]
        flow = [int(each) for each in bodies(said, restored, "flow")]
        # Whatever the moment was, the messages in the queue are consecutive and from the time of the backup.
        assert flow == list(range(flow[0], flow[0] + len(flow)))
        assert 4 <= len(flow) <= 6
        assert before - 6 <= flow[-1] <= after + 1


def test_a_folder_at_rest_is_copied_with_its_keys_and_ledger(tmp_path: Path, said: Callable[..., Said]) -> None:
    data = tmp_path / "data"
    with Broker(queues=["orders"], dev=False, sync=False, data=data) as broker:
        key = key_of(broker)
        assert said("send", "orders", "one", "-c", broker.connection_string())[0] == 0
        code, _, err = said("backup", tmp_path / "b", "--data", data)
        assert code == 1
        assert "leave --data out" in err
        assert not (tmp_path / "b").exists(), "half of a backup is none"
    code, out, err = said("backup", tmp_path / "b", "--data", data)
    assert (code, err) == (0, "")
    assert "contoso: 1 message" in out
    assert said("restore", tmp_path / "b", "--data", tmp_path / "again")[0] == 0
    with Broker(dev=False, sync=False, data=tmp_path / "again") as broker:
        assert key_of(broker) == key
        assert bodies(said, broker, "orders") == ["one"]


def test_a_restore_spoils_nothing(tmp_path: Path, said: Callable[..., Said]) -> None:
    data = tmp_path / "data"
    with Broker(queues=["orders"], dev=False, sync=False, data=data):
        pass
    assert said("backup", tmp_path / "b", "--data", data)[0] == 0
    code, _, err = said("restore", tmp_path / "b", "--data", data)
    assert (code, "has a namespace contoso already" in err) == (2, True)
    code, _, err = said("restore", data, "--data", tmp_path / "x")
    assert (code, "is not a complete backup" in err) == (2, True)
    shutil.copytree(tmp_path / "b", tmp_path / "damaged")
    with (tmp_path / "damaged" / "contoso" / "data.mdb").open("ab") as opened:
        opened.write(b"x")
    code, _, err = said("restore", tmp_path / "damaged", "--data", tmp_path / "x")
    assert (code, "was changed since the backup" in err) == (1, True)
    assert not (tmp_path / "x").exists()


def test_the_broker_writes_only_to_an_empty_folder_of_its_own(broker: Broker, tmp_path: Path) -> None:

    target = TargetNamespace(ConnectionString.parse(broker.connection_string()))
    full = tmp_path / "full"
    full.mkdir(mode=0o700)
    (full / "x").touch()
    wide = tmp_path / "wide"
    wide.mkdir(mode=0o755)
    os.symlink(wide, tmp_path / "link")
    for folder in (full, wide, tmp_path / "link", tmp_path / "missing", Path("relative")):
        with pytest.raises(ArgumentError):
            target.ask("start-backup", {"folder": str(folder)})
    assert target.ask("get-backup")["state"] == "none"


def test_a_folder_that_exists_is_not_written_to(broker: Broker, tmp_path: Path, said: Callable[..., Said]) -> None:
    (tmp_path / "b").mkdir()
    code, _, err = said("backup", tmp_path / "b", "-c", broker.connection_string())
    assert (code, "exists already" in err) == (2, True)


@contextmanager
def small_disk() -> Iterator[None]:
    """No file can grow beyond 64 KiB, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def filled(broker: Broker, said: Callable[..., Said], count: int = 1_000) -> None:
    assert said("send", "orders", "x" * 1_000, "--count", count, "-c", broker.connection_string())[0] == 0


def test_a_full_disk_is_named(broker: Broker, tmp_path: Path, said: Callable[..., Said]) -> None:
    filled(broker, said)
    with small_disk():
        code, _, err = said("backup", tmp_path / "b", "-c", broker.connection_string())
    assert (code, f"cannot be written to {tmp_path / 'b'}" in err) == (1, True), err
    assert "Nothing more is accepted" not in err, "the broker goes on"
    assert not (tmp_path / "b").exists()
    assert said("backup", tmp_path / "b", "-c", broker.connection_string())[0] == 0
    with small_disk():
        code, _, err = said("restore", tmp_path / "b", "--data", tmp_path / "again")
    assert (code, err) == (1, f"twinbus: {tmp_path / 'b'} cannot be copied to {tmp_path / 'again'}: File too large.\n")
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize("damage", ["pages", "body"])
def test_a_damaged_backup_is_named(broker: Broker, tmp_path: Path, said: Callable[..., Said], damage: str) -> None:
    filled(broker, said)
    assert said("backup", tmp_path / "b", "-c", broker.connection_string())[0] == 0
    file = tmp_path / "b" / "contoso" / "data.mdb"
    content = bytearray(file.read_bytes())
    if damage == "body":
        content[content.index(b"x" * 1_000)] = ord("y")
    else:
        for at in range(2 * 4096, len(content), 4096):  # the headers of all pages but LMDB's first two
            content[at : at + 16] = bytes(16)
    file.write_bytes(content)
    code, _, err = said("restore", tmp_path / "b", "--data", tmp_path / "again")
    assert (code, f"The backup {tmp_path / 'b'} is damaged" in err) == (1, True), err
    assert "use another backup" in err
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize("piece", [1, 500])
def test_a_backup_whose_folder_is_removed_ends(
    broker: Broker, tmp_path: Path, said: Callable[..., Said], monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    """An interrupted command removes the folder: the broker must not go on to fill the disk."""
    filled(broker, said, 3_000)
    monkeypatch.setattr("twinbus.store.backup.BACKUP_PIECE_BYTES", 1)
    target = TargetNamespace(ConnectionString.parse(broker.connection_string()))
    (tmp_path / "b").mkdir(mode=0o700)
    taken = StorePieces.next
    calls = itertools.count(1)

    def taking(pieces: StorePieces) -> Facts | None:
        if next(calls) == piece:
            shutil.rmtree(tmp_path / "b")
        return taken(pieces)

    monkeypatch.setattr(StorePieces, "next", taking)
    status = target.ask("start-backup", {"folder": str(tmp_path / "b")})
    while status["state"] == "running":
        status = target.ask("get-backup")
    assert (status["state"], "was removed" in status["error"]) == ("failed", True)
    assert status["rows"] < 3_000
