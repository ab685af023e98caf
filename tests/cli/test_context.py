"""`twinbus context`: named connection strings, in a file that only its owner can read."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Command, counts
from twinbus.auth.connection_string import ConnectionString
from twinbus.testing import Broker


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "twinbus"


@pytest.fixture
def plain(twinbus: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Without a connection string in the environment."""
    monkeypatch.delenv("TWINBUS_CONNECTION_STRING")
    return twinbus


def add(plain: Command, bus: Broker, tmp_path: Path, name: str = "site") -> str:
    file = tmp_path / "string.txt"
    file.write_text(bus.connection_string())
    code, out, err = plain("context", "add", name, "--connection-file", str(file))
    assert code == 0, err
    return out


def test_commands_work_with_a_context(plain: Command, bus: Broker, tmp_path: Path, folder: Path) -> None:
    code, _, err = plain("queue", "list")
    assert (code, "twinbus context add" in err) == (2, True)
    key = ConnectionString.parse(bus.connection_string()).key or ""
    said = add(plain, bus, tmp_path)
    said += add(plain, bus, tmp_path, "other")
    assert (folder / "contexts.json").stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    assert plain("queue", "list")[0] == 0, "the first one is in use"
    assert plain("queue", "show", "orders", "--context", "other")[0] == 0
    assert plain("context", "use", "other")[0] == 0
    code, out, _ = plain("context", "list", "--json")
    assert [(each["name"], each["in_use"]) for each in json.loads(out)] == [("other", True), ("site", False)]
    said += out + plain("context", "list")[1]
    assert plain("context", "remove", "other")[0] == 0
    assert plain("queue", "list")[0] == 2, "none is in use any more"
    assert key not in said


def test_a_context_that_is_replaced_says_so(plain: Command, bus: Broker, tmp_path: Path, folder: Path) -> None:
    assert add(plain, bus, tmp_path).startswith("Added context site: localhost:")
    assert add(plain, bus, tmp_path).startswith("Replaced context site: localhost:")
    assert add(plain, bus, tmp_path, "other").startswith("Added context other: localhost:")
    (folder / "contexts.json").unlink()
    assert add(plain, bus, tmp_path).endswith("Commands now use it.\n")
    assert "use it" not in add(plain, bus, tmp_path, "other")


def test_a_context_goes_before_the_environment(twinbus: Command, bus: Broker, tmp_path: Path) -> None:
    with Broker(queues=["elsewhere"], dev=False, sync=False) as other:
        add(twinbus, other, tmp_path)
        assert "elsewhere" in twinbus("queue", "list", "--context", "site")[1]
        assert "orders" in twinbus("queue", "list")[1], "the one in use comes last"


def test_a_string_from_the_standard_input(
    plain: Command, bus: Broker, monkeypatch: pytest.MonkeyPatch, done: Callable[..., str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(bus.connection_string() + "\n"))
    assert plain("context", "add", "site")[0] == 0
    assert done("send", "orders", "x")
    assert counts(bus, "orders")[0] == 1


def test_a_file_that_others_can_read_is_refused(plain: Command, bus: Broker, tmp_path: Path, folder: Path) -> None:
    add(plain, bus, tmp_path)
    (folder / "contexts.json").chmod(0o644)
    code, _, err = plain("queue", "list")
    assert (code, "chmod 600" in err) == (2, True)


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"contexts": {"a": {}}}', '{"contexts": {"a": {"connection_string": "?"}}}']
)
def test_a_broken_file_is_told(plain: Command, folder: Path, text: str) -> None:
    folder.mkdir(parents=True)
    (folder / "contexts.json").touch(mode=0o600)
    (folder / "contexts.json").write_text(text)
    code, _, err = plain("queue", "list")
    assert code == 2
    assert err.startswith("twinbus: ")


def test_an_unknown_context_is_told(plain: Command, bus: Broker, tmp_path: Path) -> None:
    add(plain, bus, tmp_path)
    for arguments in (("queue", "list", "--context", "sit"), ("context", "use", "sit"), ("context", "remove", "sit")):
        code, _, err = plain(*arguments)
        assert (code, "Did you mean 'site'?" in err) == (2, True)


def test_messages_move_to_the_namespace_of_a_context(plain: Command, bus: Broker, tmp_path: Path) -> None:
    add(plain, bus, tmp_path)
    with Broker(queues=["orders"], dev=False, sync=False) as other:
        add(plain, other, tmp_path, "other")
        assert plain("send", "orders", "x", "--count", "3")[0] == 0
        code, _, err = plain("move", "orders", "orders", "--to-context", "other")
        assert code == 0, err
        assert (counts(bus, "orders")[0], counts(other, "orders")[0]) == (0, 3)


def lists(json_of: Any, *options: str) -> list[str]:
    return [str(each["path"]) for each in json_of("queue", "list", *options)]


def test_lists_are_filtered_and_sorted(done: Callable[..., str], json_of: Any, twinbus: Command) -> None:
    done("send", "others", "x", "--count", "3")
    assert lists(json_of) == ["orders", "others"]
    assert lists(json_of, "--filter", "OTH") == ["others"]
    assert lists(json_of, "--sort", "active") == ["others", "orders"]
    assert lists(json_of, "--with", "active") == ["others"]
    assert lists(json_of, "--with", "dead-letter") == []
    code, _, err = twinbus("queue", "list", "--sort", "activ")
    assert (code, "Did you mean 'active'?" in err) == (2, True)
