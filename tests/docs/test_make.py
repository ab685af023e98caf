"""The `make` commands of the pages work, and those that a page says are run elsewhere are run there."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.docs.made import made
from tests.docs.pages import PAGES, ROOT, blocks, commands, name


def test_the_tests_are_run() -> None:
    # All of them would be this one again: a file that takes no time, in one process.
    done = made("make test", "WORKERS=0", "ARGS=-p no:cacheprovider tests/docs/test_limits.py", timeout_s=50)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed in " in done.stdout


def test_a_failure_is_passed_on() -> None:
    done = made("make test", "WORKERS=0", "ARGS=-p no:cacheprovider tests/docs/nowhere.py", timeout_s=50)
    assert done.returncode != 0


def test_every_change_must_pass_them() -> None:
    assert runs(ROOT / ".ci" / "run", "make test")


def runs(file: Path, command: str) -> bool:
    """Whether a script has a command, or a test makes it with `made`."""
    if file.suffix == ".py":
        calls = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)]
        return any(ast.unparse(call).startswith(f"made({command!r},") for call in calls)
    program, *targets = command.split()
    lines = [line.split("#")[0].split() for line in file.read_text().splitlines()]
    return any(words[:1] == [program] and set(targets) <= set(words[1:]) for words in lines)


ELSEWHERE = [
    pytest.param(command.text, block.run_by, id=f"{name(page)}:{command.line}")
    for page in PAGES
    for block in blocks(page.read_text())
    if block.run_by is not None and block.language == "console"
    for command in commands(block)
]


@pytest.mark.parametrize(("command", "file"), ELSEWHERE)
def test_what_a_page_says_is_run_elsewhere_is_run_there(command: str, file: str) -> None:
    # What CI runs, itself or by another script, or a test that `make test` collects.
    in_ci = file == ".ci/run" or (file.startswith("scripts/") and file in (ROOT / ".ci" / "run").read_text())
    assert in_ci or (file.startswith("tests/") and Path(file).name.startswith("test_"))
    assert runs(ROOT / file, command)


def test_a_command_that_is_not_run_is_found_out(tmp_path: Path) -> None:
    file = tmp_path / "test_x.py"
    file.write_text("# make demo\nmade('make test', timeout_s=1)\n")
    assert runs(file, "make test")
    assert not runs(file, "make demo")
    script = tmp_path / "run"
    script.write_text("# make demo\nmake lint test\n")
    assert runs(script, "make test")
    assert not runs(script, "make demo")
