"""Every command of the README and of the pages in docs is run, and prints what the page says it prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs import pages
from tests.docs.pages import PAGES, REASONS, agrees, blocks, commands, name
from tests.docs.private import refusal, run_page_as_root
from tests.docs.programs import unknown_imports
from tests.docs.runner import as_root, run_page, runnable
from tests.docs.setting import scene, setting_of
from tests.docs.shell import Shell

# Languages of blocks; a shell's own name would be a way around this test.
LANGUAGES = {
    "",
    "console",
    "python",
    "json",
    "toml",
    "yaml",
    "text",
    "ini",
    "svg",
    "sql",
    "xml",
    "javascript",
    "csharp",
    "make",
    "mermaid",
}
# Commands that no test can run.
NOT_RUN_MAX = 7


WITH_COMMANDS = [
    pytest.param(page, id=name(page), marks=pytest.mark.timeout(setting_of(name(page)).timeout_s))
    for page in PAGES
    if runnable(page)
]


@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_every_command_does_what_the_page_says(page: Path, tmp_path: Path) -> None:
    folder = tmp_path / "page"
    folder.mkdir()
    programs = [program for block in runnable(page) for program in as_root(block)]
    refused = refusal(programs) if programs else None
    if programs and refused is None:
        run_page_as_root(page, folder, tmp_path)
        return
    run_page(page, folder)
    if refused is not None:
        pytest.skip(f"what needs root is not run: {refused}")


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


def test_commands_that_are_not_run_say_why_and_are_few() -> None:
    left_out = {
        f"{name(page)}:{block.line}": block
        for page in PAGES
        for block in blocks(page.read_text())
        if block.not_run is not None
    }
    for where, block in left_out.items():
        print(f"{where}: {block.not_run}")
    wrong = [where for where, block in left_out.items() if str(block.not_run).partition(",")[0] not in REASONS]
    assert wrong == [], f"a reason begins with one of {REASONS}"
    programs = [where for where, block in left_out.items() if block.language != "console"]
    assert programs == [], "what is not a command is not left out"
    hidden = [command.text for block in left_out.values() for command in commands(block)]
    # Of systemd as the machine's first process: the unit is judged, and its commands are run, in `test_deployment.py`.
    # Of pip, which needs a package index: `make setup` installs the same way.
    known = ("sudo systemctl ", "sudo journalctl ", "python3 -m venv ", ".venv/bin/pip install ")
    assert [text for text in hidden if not text.startswith(known)] == []
    assert len(hidden) <= NOT_RUN_MAX


# --- the runner itself ------------------------------------------------------------------------------------------------

PAGE = """
<!-- not run: systemd, it starts one -->
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
    assert first.not_run == "systemd, it starts one"
    assert as_root(first) == ["true"]
    assert second.not_run is second.run_by is None
    assert as_root(second) == []
    assert blocks("<!-- run by: a/b.py -->\n```console\n$ make demo\n```\n")[0].run_by == "a/b.py"
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
