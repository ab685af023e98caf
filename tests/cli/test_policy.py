from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from twinbus.auth.connection_string import ConnectionString
from twinbus.auth.policies import ROOT_KEY_NAME
from twinbus.cli.main import run
from twinbus.testing import Broker

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(queues=["orders"], dev=False) as broker:
        yield broker


@pytest.fixture
def command(broker: Broker, capsys: pytest.CaptureFixture[str]) -> Command:
    def asked(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            run(["policy", *arguments, "-c", broker.connection_string()])
        captured = capsys.readouterr()
        return int(caught.value.code or 0), captured.out, captured.err

    return asked


def test_from_making_to_deleting(command: Command, broker: Broker) -> None:
    code, out, _ = command("create", "shop", "--right", "send", "-r", "Listen", "--entity", "orders")
    assert code == 0
    assert out.splitlines()[1].split() == ["shop", "orders", "Send,", "Listen"]
    made = json.loads(command("show", "shop", "-e", "Orders", "--show-keys", "--json")[1])
    code, out, _ = command("list", "--json")
    assert [policy["name"] for policy in json.loads(out)] == [ROOT_KEY_NAME, "shop"]
    assert made["primary_key"] not in out
    assert made["primary_key"] not in command("list")[1]
    assert made["primary_key"] in command("list", "--show-keys")[1]
    rotated = json.loads(command("rotate", "shop", "primary", "-e", "orders", "--show-keys", "--json")[1])
    assert rotated["primary_key"] != made["primary_key"]
    assert rotated["secondary_key"] == made["secondary_key"]
    assert command("delete", "shop", "-e", "orders") == (0, "Deleted policy shop.\n", "")
    assert len(json.loads(command("list", "--json")[1])) == 1


def test_a_rotated_root_key_is_in_the_next_connection_string(command: Command, broker: Broker) -> None:
    before = broker.connection_string()
    code, out, _ = command("rotate", ROOT_KEY_NAME, "primary")
    assert code == 0
    key = ConnectionString.parse(broker.connection_string()).key or "?"
    assert key not in out
    assert broker.connection_string() != before
    assert command("list")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["show", "nobody"], 1, "There is no policy 'nobody' on the namespace"),
        (["show", "nobody", "-e", "nowhere"], 1, "could not be found"),
        (["create", "x"], 2, "--right Send"),
        (["create", "x", "-r", "Write"], 1, "'Write' is not known"),
        (["create", ROOT_KEY_NAME, "-r", "Manage"], 1, "exists already"),
        (["delete", ROOT_KEY_NAME], 1, "stands in the configuration"),
    ],
)
def test_a_refusal_is_one_clear_line(command: Command, arguments: list[str], code: int, problem: str) -> None:
    found, out, err = command(*arguments)
    assert (found, out) == (code, "")
    assert err.startswith("twinbus: ")
    assert problem in err
    assert len(err.splitlines()) == 1
