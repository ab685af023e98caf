"""Runs a page: its commands and whole programs in order, and compares what they print with what the page shows.

    python -m tests.docs.runner PAGE FOLDER

Rules:
- Blocks with `sudo` are for root of a machine that may be changed (`private.py`); elsewhere they are left out.
- There `sudo` itself is left out of the commands: who runs them is root already.
"""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path

from tests.docs.pages import Block, agrees, blocks, commands, name
from tests.docs.programs import completed, is_whole
from tests.docs.setting import scene
from tests.docs.shell import Shell

_SUDO = re.compile(r"\bsudo (?=(\S+))")


def runnable(page: Path) -> list[Block]:
    """The blocks that the page's own test runs."""
    return [
        block
        for block in blocks(page.read_text())
        if block.not_run is None
        and block.run_by is None
        and (block.language == "console" or (block.language == "python" and is_whole(block.text)))
    ]


def as_root(block: Block) -> list[str]:
    """The programs that a block runs as root."""
    if block.language != "console":
        return []
    return [program for command in commands(block) for program in _SUDO.findall(command.text)]


def run_page(page: Path, folder: Path, *, root: bool = False) -> None:
    """Raises where the page and what happens differ."""
    todo = [block for block in runnable(page) if root or not as_root(block)]
    every = [command for block in todo if block.language == "console" for command in commands(block)]
    with scene(name(page), folder, every) as here, Shell(folder, here.environment) as shell:
        for block in todo:
            if block.language == "python":
                source = here.here(completed(block.text), shell.connection_string)
                _run_program(shell, source, f"{name(page)}:{block.line}", folder)
                continue
            for command in commands(block):
                where = f"{name(page)}:{command.line}: {command.text}"
                shown = [] if block.varies else [here.here(line) for line in command.output]
                if command.text == "^C":
                    code, printed = shell.interrupt()
                else:
                    text = here.here(command.text, shell.connection_string)
                    code, printed = shell.run(_SUDO.sub("", text) if root else text, shown)
                assert code == command.code, f"{where}\nended with {code}\n{printed}"
                lost = agrees(shown, printed)
                assert lost is None, f"{where}\ndid not print\n{lost}\nbut\n{printed}"


def _run_program(shell: Shell, source: str, where: str, folder: Path) -> None:
    tests = "\ndef test_" in f"\n{source}"
    file = folder / f"test_page_{where.rpartition(':')[2]}.py"
    file.write_text(source)
    command = f"python -m pytest -q -p no:cacheprovider --rootdir {folder} {file}" if tests else f"python {file}"
    code, printed = shell.run(command)
    assert code == 0, f"{where}\nended with {code}\n{printed}"


if __name__ == "__main__":
    # Told to stop, it ends what it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to stop"))
    run_page(Path(sys.argv[1]), Path(sys.argv[2]), root=True)
