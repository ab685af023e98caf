"""Every command's help has an example that parses and offers JSON where it prints data, and loads nothing heavy."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.cli.conftest import Command
from twinbus.cli.group import Group
from twinbus.cli.main import app

ROOT: Any = typer.main.get_command(app)

# Commands that print no data of their own that JSON could represent.
WITHOUT_JSON = {
    "serve": "the ready file is JSON",
    "export": "what it prints is a configuration file; --format emulator is JSON",
}
HEAVY = ("pyspark", "azure", "matplotlib", "pandas", "numpy", "pyarrow")


def walk(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, each in getattr(command, "commands", {}).items():
        yield from walk(each, (*path, name))


ALL = [pytest.param(path, command, id=" ".join(path) or "twinbus") for path, command in walk(ROOT)]
LEAVES = [each for each in ALL if not hasattr(each.values[1], "commands")]


def help_of(path: tuple[str, ...], command: Any) -> str:
    context = ROOT.make_context("twinbus", [*path, "--help"], resilient_parsing=True)
    return str(command.get_help(type(context)(command, parent=context, info_name=path[-1] if path else "twinbus")))


@pytest.mark.parametrize(("path", "command"), ALL)
def test_every_help_has_an_example(path: tuple[str, ...], command: Any) -> None:
    text = help_of(path, command)
    assert "Example" in text
    assert f"twinbus {' '.join(path)}".strip() in text.partition("Example")[2]


@pytest.mark.parametrize(("path", "command"), LEAVES)
def test_every_command_that_prints_data_has_json(path: tuple[str, ...], command: Any) -> None:
    has = any("--json" in each.opts for each in command.params)
    assert has != (" ".join(path) in WITHOUT_JSON)


@pytest.mark.parametrize(("path", "command"), LEAVES)
def test_every_option_says_what_it_is_for(path: tuple[str, ...], command: Any) -> None:
    assert [each.name for each in command.params if each.name != "help" and not each.help] == []


@pytest.mark.parametrize(("path", "command"), ALL)
def test_the_examples_are_command_lines_that_parse(path: tuple[str, ...], command: Any) -> None:
    for line in re.findall(r"^ +(?:\w+=\S*)?(twinbus .*)$", (command.help or "").partition("Example")[2], re.MULTILINE):
        words = shlex.split(line)
        assert words[0] == "twinbus"
        for at in reversed([at for at, word in enumerate(words) if word in ("|", ">")]):
            if words[at + 1] == "twinbus":
                parsed(words[at + 2 :])
            words = words[:at]
        parsed(words[1:])


def parsed(words: list[str]) -> None:
    """Parse a command line without running it; an invalid one raises."""
    command, context, name = ROOT, None, "twinbus"
    while hasattr(command, "commands"):
        context = command.make_context(name, [words[0]], parent=context, resilient_parsing=True)
        name, words = words[0], words[1:]
        assert name in command.commands
        command = command.commands[name]
    command.make_context(name, list(words), parent=context)


def test_an_example_that_is_wrong_is_found() -> None:
    parsed(["queue", "create", "orders", "--lock-duration", "30s"])
    with pytest.raises(Exception, match="No such option"):
        parsed(["queue", "create", "orders", "--lock-duratio", "30s"])
    with pytest.raises(Exception, match="Missing parameter"):
        parsed(["queue", "create"])


def test_commands_are_grouped_by_purpose(twinbus: Command) -> None:
    code, out, _ = twinbus("--help")
    assert code == 0
    headings = re.findall(r"^([A-Z][\w ]+):$", out, re.MULTILINE)
    assert headings == ["Options", "Broker", "Entities", "Messages", "Paired namespaces", "Pipeline and costs"]
    assert isinstance(ROOT, Group)
    listed = set(re.findall(r"^  ([a-z]\w*)  +\S", out, re.MULTILINE))
    assert set(ROOT.commands) <= listed


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["queu"], "No such command 'queu'. Did you mean 'queue'? See `twinbus --help`."),
        (["queue", "show", "--jsno"], "No such option: --jsno. Did you mean --json? See `twinbus queue show --help`."),
        (["queue", "show"], "Missing argument 'NAME'. See `twinbus queue show --help`."),
        (["send", "orders", "x", "--count", "0"], "See `twinbus send --help`."),
    ],
)
def test_a_mistake_is_one_line(twinbus: Command, arguments: list[str], problem: str) -> None:
    code, out, err = twinbus(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("twinbus: ")
    assert problem in err


def test_a_group_alone_shows_its_help(twinbus: Command) -> None:
    code, out, err = twinbus("queue")
    assert code == 2
    assert "Usage: twinbus queue" in out + err


def loaded(text: str) -> set[str]:
    """Return the packages in the output of -X importtime."""
    return {
        line.rpartition("|")[2].strip().partition(".")[0] for line in text.splitlines() if line.startswith("import")
    }


def test_help_loads_nothing_heavy() -> None:
    program = "from twinbus.cli.main import run; run(['--help'])"
    child = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", program], capture_output=True, text=True, check=True
    )
    assert "typer" in loaded(child.stderr)
    assert loaded(child.stderr) & {*HEAVY, "aiohttp", "cryptography", "lmdb", "lark"} == set()


def test_serve_loads_nothing_heavy(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    program = "from twinbus.cli.main import run; run()"
    arguments = ["serve", "--data", str(tmp_path / "data"), "--namespace", "contoso", "--ready-file", str(ready)]
    with (tmp_path / "imports").open("w+") as imports:
        child = subprocess.Popen(
            [sys.executable, "-X", "importtime", "-c", program, *arguments], stdout=subprocess.DEVNULL, stderr=imports
        )
        try:
            while not ready.exists():
                assert child.poll() is None
                time.sleep(0.01)
        finally:
            child.send_signal(signal.SIGTERM)
            assert child.wait() == 0
        imports.seek(0)
        found = loaded(imports.read())
    assert "lmdb" in found
    assert found & set(HEAVY) == set()
