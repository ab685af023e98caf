"""Every command of the README and of the pages in docs is run, and prints what the page says it prints."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.docs import pages
from tests.docs.pages import PAGES, REASONS, Block, agrees, blocks, commands, name
from tests.docs.programs import completed, is_whole, unknown_imports
from tests.docs.setting import scene, setting_of
from tests.docs.shell import Shell

# Languages of blocks; a shell's own name would be a way around this test.
LANGUAGES = {"", "console", "python", "json", "toml", "yaml", "text", "ini", "svg", "sql", "xml", "javascript", "make"}


# Run too when TWINBUS_DOCS is `all`: nothing is missing for them but time.
PATIENT = {"long", "needs a cluster"} if os.environ.get("TWINBUS_DOCS") == "all" else set()


def runnable(page: Path) -> list[Block]:
    return [
        block
        for block in blocks(page.read_text())
        if (block.not_run is None or block.not_run.partition(",")[0] in PATIENT)
        and (block.language == "console" or (block.language == "python" and is_whole(block.text)))
    ]


WITH_COMMANDS = [
    pytest.param(page, id=name(page), marks=pytest.mark.timeout(600 if PATIENT else setting_of(name(page)).timeout_s))
    for page in PAGES
    if runnable(page)
]


@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_every_command_does_what_the_page_says(page: Path, tmp_path: Path) -> None:
    todo = runnable(page)
    every = [command for block in todo if block.language == "console" for command in commands(block)]
    with scene(name(page), tmp_path, every) as here, Shell(tmp_path, here.environment) as shell:
        for block in todo:
            where = f"{name(page)}:{block.line}"
            if block.language == "python":
                _run_program(shell, here.here(completed(block.text), shell.connection_string), where, tmp_path)
                continue
            for command in commands(block):
                where = f"{name(page)}:{command.line}: {command.text}"
                if command.text == "^C":
                    code, printed = shell.interrupt()
                else:
                    code, printed = shell.run(here.here(command.text, shell.connection_string))
                assert code == command.code, f"{where}\nended with {code}\n{printed}"
                if not block.varies:
                    lost = agrees([here.here(line) for line in command.output], printed)
                    assert lost is None, f"{where}\ndid not print\n{lost}\nbut\n{printed}"


def _run_program(shell: Shell, source: str, where: str, folder: Path) -> None:
    tests = "\ndef test_" in f"\n{source}"
    file = folder / f"test_page_{where.rpartition(':')[2]}.py"
    file.write_text(source)
    command = f"python -m pytest -q -p no:cacheprovider --rootdir {folder} {file}" if tests else f"python {file}"
    code, printed = shell.run(command)
    assert code == 0, f"{where}\nended with {code}\n{printed}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_program_compiles_and_imports_what_exists(page: Path) -> None:
    for block in blocks(page.read_text()):
        if block.language == "python":
            compile(block.text, f"{name(page)}:{block.line}", "exec")
            assert unknown_imports(block.text) == [], f"{name(page)}:{block.line}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_block_gets_around_the_runner(page: Path) -> None:
    for block in blocks(page.read_text()):
        where = f"{name(page)}:{block.line}"
        assert block.language in LANGUAGES, f"{where}: commands belong into a `console` block"
        if block.language == "console":
            assert commands(block), f"{where}: no line begins with `$ `"
        elif block.language != "python":
            hidden = [line for line in block.lines if line.startswith(("$ ", "twinbus ", "make ", "pip ", "python "))]
            assert not hidden, f"{where}: commands belong into a `console` block"


def test_blocks_that_are_not_run_say_why_and_are_few() -> None:
    left_out = {
        f"{name(page)}:{block.line}": block.not_run
        for page in PAGES
        for block in blocks(page.read_text())
        if block.not_run is not None
    }
    for where, reason in left_out.items():
        print(f"{where}: {reason}")
    wrong = {where: why for where, why in left_out.items() if why.partition(",")[0] not in REASONS}
    assert wrong == {}, f"a reason begins with one of {REASONS}"
    shown = sum(
        len(commands(block)) for page in PAGES for block in blocks(page.read_text()) if block.language == "console"
    )
    hidden = sum(
        len(commands(block))
        for page in PAGES
        for block in blocks(page.read_text())
        if block.language == "console" and block.not_run is not None
    )
    assert hidden * 3 <= shown, f"{hidden} of {shown} commands are not run"


# --- the runner itself ------------------------------------------------------------------------------------------------

PAGE = """
<!-- not run: root, it edits a file -->
```console
$ sudo true
```

```console
$ false   # exits 1
$ echo one \\
>   two
one two
$ cat <<'END'
$ not a command
END
...
$ echo 'a
b'
^C
```
"""


def test_a_page_is_taken_apart() -> None:
    first, second = blocks(PAGE)
    assert first.not_run == "root, it edits a file"
    assert second.not_run is None
    found = commands(second)
    assert [command.text for command in found] == [
        "false   # exits 1",
        "echo one \\\n  two",
        "cat <<'END'\n$ not a command\nEND",
        "echo 'a\nb'",
        "^C",
    ]
    assert found[0].code == 1
    assert found[1].output == ["one two"]


def test_what_is_printed_is_compared() -> None:
    printed = "queue    active\norders   3\nmore\n"
    assert agrees(["queue active", "orders ..."], printed) is None
    assert agrees(["...", "more"], printed) is None
    assert agrees(["orders 4"], printed) == "orders 4"
    assert agrees(["more", "orders 3"], printed) == "orders 3"


def test_a_command_that_fails_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    page = tmp_path / "README.md"
    page.write_text("```console\n$ twinbus queue show nothing\n```\n")
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(AssertionError, match="ended with 1"):
        test_every_command_does_what_the_page_says(page, folder)


def test_variables_and_folders_last(tmp_path: Path) -> None:
    with Shell(tmp_path, {"PATH": "/usr/bin:/bin"}) as shell:
        assert shell.run("mkdir sub && cd sub && export COLOUR=green") == (0, "")
        assert shell.run('echo "$COLOUR in ${PWD##*/}"   # a comment') == (0, "green in sub\n")
        assert shell.run("echo wrong >&2; false") == (1, "wrong\n")


def test_ports_and_keys_are_those_of_this_machine(tmp_path: Path) -> None:
    with scene(
        "docs/nowhere.md", tmp_path, commands(blocks("```console\n$ twinbus serve -n a:6000\n```\n")[0])
    ) as here:
        primary, secondary = (here.broker.endpoint(each).port for each in ("contoso", "fabrikam"))
        assert here.here("curl localhost:5672 localhost:5673") == f"curl localhost:{primary} localhost:{secondary}"
        assert here.here("send --count 5672 --text 5672") == "send --count 5672 --text 5672"
        assert here.here("serve a:6000").partition(":")[2] not in ("6000", str(primary))
        elided = "'Endpoint=sb://localhost:5673;SharedAccessKeyName=Root;SharedAccessKey=...'"
        assert here.here(elided) == f"'{here.broker.connection_string('fabrikam')}'"
        assert here.here("'Endpoint=sb://localhost:5672;SharedAccessKey=SAS_KEY_VALUE'").endswith("SAS_KEY_VALUE'")


def test_a_broker_is_started_waited_for_and_stopped(tmp_path: Path) -> None:
    with scene("docs/nowhere.md", tmp_path, []) as here, Shell(tmp_path, here.environment) as shell:
        code, printed = shell.run(f"twinbus serve --namespace a:{here.ports[6000]} --data ./own   # goes on")
        assert code == 0
        assert f"a on 127.0.0.1:{here.ports[6000]}" in printed
        found = shell.connection_string(here.ports[6000])
        assert found is not None
        assert shell.run(f"twinbus queue list -c '{found}'")[0] == 0
        assert shell.interrupt()[0] == 0
        assert shell.run(f"twinbus queue list -c '{found}'")[0] == 1
