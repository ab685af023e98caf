"""What the pages name in passing exists: commands and their options, make targets, files, parts of the code."""

from __future__ import annotations

import ast
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

from tests.docs.pages import PAGES, ROOT, blocks, commands, name
from twinbus.cli.main import app

SOURCE = ROOT / "src" / "twinbus"
# Folders whose files the pages name.
FOLDERS = ("tests", "bench", "docs", "examples", "scripts", "compliance", "src")


def spans(page: Path) -> list[str]:
    """The inline code of a page, outside of its blocks."""
    text = re.sub(r"^(```+).*?^\1$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [" ".join(span.split()) for span in re.findall(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)", text)]


@cache
def tree() -> Any:
    """All commands, with their options."""
    return typer.main.get_command(app)


def complaint(text: str) -> str | None:
    """What a command line of ours says that is not there; None where all of it is."""
    command: Any = tree()
    words = [word.strip("[]|") for word in shlex.split(text.replace("'", ""), comments=True)[1:]]
    words = [word for word in words if word]
    while words and isinstance(command, typer.main.TyperGroup):
        # A stand-in for whatever there is, or an option of the group.
        if words[0].startswith("-"):
            break
        if words[0].isupper() or words[0] == "...":
            return None
        if "|" in words[0]:
            missing = [each for each in words[0].split("|") if command.commands.get(each) is None]
            return f"no command {missing}" if missing else None
        found = command.commands.get(words[0])
        if found is None:
            return f"no command {words[0]!r}"
        command = found
        words.pop(0)
    known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)} | {"--help", "-h"}
    wrong = [word for word in words if word.startswith("-") and word.partition("=")[0] not in known]
    return f"no option {wrong}" if wrong else None


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_named_exists(page: Path) -> None:
    named = [span for span in spans(page) if re.match(r"twinbus( |$)", span)]
    for block in blocks(page.read_text()):
        if block.language == "console":
            # Those that are not run are at least looked at.
            named += [
                command.text.replace("\\\n", " ").replace(".venv/bin/", "").removeprefix("sudo ")
                for command in commands(block)
                # What is shown to fail is run, and does.
                if re.match(r"(sudo )?(\.venv/bin/)?twinbus ", command.text) and command.code == 0
            ]
    wrong = {each: said for each in named if (said := complaint(re.split(r"\s[|;&>]+\s", each)[0]))}
    assert wrong == {}


def test_a_wrong_command_is_found_out() -> None:
    assert complaint("twinbus serve --namespace contoso:5672") is None
    assert complaint("twinbus queue create|list") is None
    assert complaint("twinbus surf") == "no command 'surf'"
    assert complaint("twinbus queue create orders --lock 5s") == "no option ['--lock']"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_make_target_named_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {word for span in spans(page) for word in re.findall(r"^make ([a-z ]+)", span)}
    assert {word for words in named for word in words.split()} <= targets


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_file_named_exists(page: Path) -> None:
    wrong = []
    for span in spans(page):
        for word in span.split():
            if re.fullmatch(rf"({'|'.join(FOLDERS)})/[\w./*-]+", word) and not any(ROOT.glob(word.rstrip("/"))):
                wrong.append(word)
    assert wrong == []


# --- the architecture page: the flows are told by names ---------------------------------------------------------------


@cache
def names() -> set[str]:
    """Every function, class, method and attribute of ours: `name`, `Class.name`, and `module.name` of any length."""
    found = {path.name for path in SOURCE.parent.iterdir()}
    for path in SOURCE.rglob("*.py"):
        parts = [*path.relative_to(SOURCE).with_suffix("").parts]
        if parts[-1] == "__init__":
            parts.pop()
        own = _defined(ast.parse(path.read_text()).body, "")
        prefixes = [".".join(parts[number:]) for number in range(len(parts) + 1)]
        found |= {f"{prefix}.{each}".strip(".") for prefix in prefixes for each in own}
        found |= {prefix for prefix in prefixes if prefix}
        # A part passes on what its modules define: `amqp.Connection`.
        found |= {f"{parts[0]}.{each}" for each in own if parts}
    return found


def _defined(body: list[ast.stmt], owner: str) -> set[str]:
    found: set[str] = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(owner + node.name)
            if isinstance(node, ast.ClassDef):
                found |= _defined(node.body, f"{owner}{node.name}.")
            elif owner:
                # Attributes are made in methods.
                found |= {
                    owner + each.attr
                    for each in ast.walk(node)
                    if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
                }
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {owner + each.id for each in targets if isinstance(each, ast.Name)}
    return found


def named_in(page: Path) -> list[str]:
    """What looks like a name of our code: `Class`, `Class.method`, `module.function`, `_private`."""
    found = []
    for span in spans(page):
        for word in re.split(r"\s*(?:\||→|->)\s*", span):
            called = word.split("(")[0]
            if re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", called):
                found.append(called)
    return found


# Words in code type that are not names of our code: the protocol's, the tools', Python's.
OTHERS = {"accepted", "rejected", "declared", "asyncio", "lint", "types", "test", "src", "__init__", "python"}
OTHERS |= {"console", "contoso", "fabrikam", "orders", "sudo"}


def exists(word: str) -> bool:
    """Whether a name is one of ours. A method may be told without its class, or be an inherited one."""
    owner, _, last = word.rpartition(".")
    if last == "py":
        return any(SOURCE.rglob(word))
    return word in names() or ((not owner or (owner[:1].isupper() and owner in names())) and last in methods())


@cache
def methods() -> set[str]:
    return {each.rpartition(".")[2] for each in names() if "." in each}


@pytest.mark.parametrize("page", [ROOT / "docs" / "architecture.md", ROOT / "CONTRIBUTING.md"], ids=name)
def test_every_name_of_the_flows_exists(page: Path) -> None:
    assert [word for word in named_in(page) if not exists(word) and word not in OTHERS] == []


def test_the_house_is_as_it_is_shown() -> None:
    shown = next(block for block in blocks((ROOT / "CONTRIBUTING.md").read_text()) if block.language == "text").text
    parts = [path for path in SOURCE.iterdir() if path.is_dir() and any(path.glob("*.py"))]
    assert {path.name for path in parts} == set(re.findall(r"^  (\w+)/ ", shown, re.MULTILINE))
    named = set(re.findall(r"^([\w/]+)/ ", shown, re.MULTILINE))
    assert {each for each in named if not (ROOT / each).is_dir()} == set()
    assert {"src/pyspark_servicebus", "tests", "compliance", "bench", "examples", "docs"} <= named


def test_the_pictures_name_what_exists() -> None:
    wrong = []
    for picture in sorted((ROOT / "docs" / "pictures").glob("*.svg")):
        drawn = re.findall(r">([^<]+)</text>", picture.read_text())
        for text in drawn:
            wrong += [word for word in re.findall(r"\b[A-Z]\w+\.[a-z_]\w*|\b_[a-z]\w+", text) if not exists(word)]
    assert wrong == []


def test_a_name_that_is_gone_is_found_out() -> None:
    assert exists("broker.server.Server.start")
    assert exists("Server.start")
    assert exists("Queue.send")
    assert exists("_deliver")
    assert exists("state.py")
    assert not exists("Queue.send_nowhere")
    assert not exists("Nobody.send")
    assert not exists("broker.nowhere.Server")
    assert not exists("nowhere.py")


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=name)
def test_lines_of_prose_are_at_most_120_columns_wide(page: Path) -> None:
    """Tables, code and lone addresses cannot be wrapped; everything else can, so that diffs stay small."""
    text = re.sub(r"^( *```+).*?^\1$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    lines = [line for line in text.splitlines() if not line.startswith("|") and "https://" not in line]
    assert [line for line in lines if len(line) > 120] == []
