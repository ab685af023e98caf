"""`twinbus apply`: the namespace matches the file afterwards, with only the changes that are needed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Command, counts
from tests.cli.test_export import broker, state
from twinbus.broker.configuration.config import NamespaceConfig
from twinbus.cli.main import run
from twinbus.testing import Broker

__all__ = ["broker"]

FILE = """
[namespaces.contoso.queues.orders]
lock_duration = "30s"
forward_dead_letters_to = "grave"

[namespaces.contoso.queues.grave]

[namespaces.contoso.topics.news.subscriptions.europe.rules.eu]
sql = "region = 'eu'"
"""


def test_an_exported_namespace_is_made_again_elsewhere(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def ran(*arguments: str) -> str:
        with pytest.raises(SystemExit) as caught:
            run(arguments)
        captured = capsys.readouterr()
        assert not caught.value.code, captured.err
        return captured.out

    file = tmp_path / "twinbus.toml"
    ran("export", "-c", broker.connection_string(), "--output", str(file))
    with Broker([NamespaceConfig("contoso", sku="Premium")], dev=False, sync=False) as other:
        there = ("-c", other.connection_string())
        assert json.loads(ran("apply", str(file), *there, "--dry-run", "--json"))["applied"] == 0
        assert state(other) == ({}, {})
        ran("apply", str(file), *there)
        assert state(other) == state(broker)
        assert ran("apply", str(file), *there) == "No difference.\n"


def test_the_difference_is_shown_and_made(
    bus: Broker, done: Callable[..., str], twinbus: Command, tmp_path: Path
) -> None:
    file = tmp_path / "twinbus.toml"
    file.write_text(FILE)
    done("send", "others", "kept")
    code, out, err = twinbus("apply", str(file), "--dry-run")
    assert (code, out.splitlines()) == (
        0,
        [
            "+ queue grave",
            "+ topic news",
            "+ subscription news/europe",
            "~ queue orders",
            "    lock-duration: PT1M -> PT30S",
            "    forward-dead-letters-to: - -> grave",
            "4 changes to make; nothing was changed.",
        ],
    )
    assert err == "Not in the file, and kept: queue others. --prune deletes it.\n"
    assert done("apply", str(file)).splitlines()[-1] == "4 changes made."
    assert done("apply", str(file)) == "No difference.\n"
    assert counts(bus, "others")[0] == 1

    file.write_text(FILE.replace("region = 'eu'", "region = 'EU'"))
    done("rule", "create", "news", "europe", "more", "--sql", "1=1")
    out = done("apply", str(file), "--dry-run", "--prune")
    assert "~ rule news/europe/eu" in out
    assert "- rule news/europe/more" in out
    code, _, err = twinbus("apply", str(file), "--prune")
    assert (code, "Delete queue others, with its messages?" in err) == (2, True)
    done("apply", str(file), "--prune", "--yes")
    names = [each["path"] for each in json.loads(done("queue", "list", "--json"))]
    assert names == ["grave", "orders"]
    (rule,) = json.loads(done("rule", "list", "news", "europe", "--json"))
    assert rule["filter"]["expression"] == "region = 'EU'"


def test_everything_that_prune_deletes_is_counted(bus: Broker, twinbus: Command, tmp_path: Path) -> None:
    file = tmp_path / "twinbus.toml"
    file.write_text(FILE)
    for number in range(6):
        bus.create_queue(f"more-{number}")
    _, _, err = twinbus("apply", str(file), "--dry-run")
    assert err.endswith(" and 2 more. --prune deletes them.\n")
    code, _, err = twinbus("apply", str(file), "--prune")
    assert (code, "and 2 more, with their messages?" in err) == (2, True)


def test_what_is_fixed_stops_it_before_anything_changes(bus: Broker, twinbus: Command, tmp_path: Path) -> None:
    file = tmp_path / "twinbus.toml"
    file.write_text(FILE + "\n[namespaces.contoso.queues.others]\nrequires_session = true\n")
    before = state(bus)
    code, _, err = twinbus("apply", str(file))
    assert (code, "requires-session of queue others cannot be changed" in err) == (2, True)
    assert state(bus) == before


@pytest.mark.parametrize(
    ("text", "problem"),
    [("[namespaces.a]\n[namespaces.b]\n", "choose one with --from"), ("nonsense", "is not TOML")],
)
def test_a_file_that_does_not_say_it(twinbus: Any, tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "twinbus.toml"
    file.write_text(text)
    code, _, err = twinbus("apply", str(file))
    assert (code, problem in err) == (2, True)
