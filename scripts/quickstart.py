"""Do what docs/quickstart.md says, as a person in two terminals, and write down what they show.

    python3 scripts/quickstart.py RECORDING      in a new clone of the repository

Every line of the page's `console` blocks is typed as it is printed, into a bash of its own terminal; the next one
follows when the prompt is back, or when a broker says where it serves. Keys are left out of the recording. The page
kills a process and uses ports 5672 and 5673: run it on a machine where nothing else does. Needs only Python and bash.
"""

from __future__ import annotations

import os
import pty
import re
import select
import sys
import time
from pathlib import Path

PAGE = Path("docs/quickstart.md")
# By the heading of a part, the terminal of each of its `console` blocks.
TERMINALS = {
    "Install": (1, 1),
    "Start two brokers": (1,),
    "Create a queue, send, receive": (2,),
    "Kill the primary": (2, 2, 1, 2),
}
PROMPT = "$ "
ENVIRONMENT = {"PS1": PROMPT, "PS2": "> ", "TERM": "dumb", "BASH_SILENCE_DEPRECATION_WARNING": "1", "COLUMNS": "120"}
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x07")
KEY = re.compile(r"(SharedAccessKey=)[^;\s]+")
PATIENCE_S = 600.0


class Terminal:
    """A bash on a terminal of its own."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._text = ""
        self._written = 0
        pid, self._handle = pty.fork()
        if pid == 0:
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "--noediting"], {**os.environ, **ENVIRONMENT})
        self.until(lambda text: text.endswith(PROMPT))

    def until(self, seen: object, patience_s: float = PATIENCE_S) -> None:
        """Read until something is seen."""
        deadline = time.monotonic() + patience_s
        while not seen(self._text):  # type: ignore[operator]
            if time.monotonic() > deadline:
                raise SystemExit(f"terminal {self.number} shows nothing new:\n{self._text[-2000:]}")
            self.read()

    def read(self, wait_s: float = 0.2) -> bool:
        """Read what it shows; returns whether that was something."""
        if not select.select([self._handle], [], [], wait_s)[0]:
            return False
        data = os.read(self._handle, 65536).decode(errors="replace")
        self._text += CONTROL.sub("", data).replace("\r\n", "\n")
        return True

    def type(self, line: str) -> None:
        before = len(self._text)
        os.write(self._handle, line.encode() + b"\n")
        serves = re.match(r"twinbus serve --namespace \w+:(\d+) .*[^&]$", line)

        def done(text: str) -> bool:
            new = text[before:]
            if serves is not None:
                if new.endswith(PROMPT):
                    raise SystemExit(f"the broker does not serve:\n{new}")
                return f"localhost:{serves[1]}/console" in new
            if line.endswith("&"):
                # What it prints comes behind the prompt.
                return re.search(r"\[\d+\] \d+\n[^\n]*\$ ", new) is not None
            return new.endswith((PROMPT, "> ")) and "\n" in new

        self.until(done)

    def rest(self) -> str:
        """What it shows since the last time somebody asked."""
        found = self._text[self._written :]
        self._written = len(self._text)
        return KEY.sub(r"\1...", found)


def parts(text: str) -> list[tuple[int, str]]:
    """What is typed where: a terminal and the lines of a block; a program is a file that an editor wrote."""
    found: list[tuple[int, str]] = []
    for part in text.split("\n## ")[1:]:
        terminals = iter(TERMINALS.get(part.partition("\n")[0], ()))
        for language, block in re.findall(r"```(console|python)\n(.*?)```", part, re.DOTALL):
            if language == "console" and (number := next(terminals, None)) is not None:
                found.append((number, block))
            elif language == "python" and "file `hello.py`" in part:
                Path("hello.py").write_text(block)
                found.append((2, "$ python hello.py\n"))
    return found


def lines(block: str) -> list[str]:
    """What a person types of a block: commands, and the text of a here-document behind one."""
    typed, end = [], ""
    for line in block.splitlines():
        if end:
            typed.append(line)
            end = "" if line == end else end
        elif line.startswith("$ "):
            typed.append(line[2:])
            found = re.search(r"<<'(\w+)'", line)
            end = found[1] if found else ""
    return typed


def main(target: Path) -> None:
    terminals = {number: Terminal(number) for number in (1, 2)}
    begun = time.monotonic()
    last = 0
    with target.open("w") as out:
        for number, block in parts(PAGE.read_text()):
            terminal = terminals[number]
            for line in lines(block):
                terminal.type(line)
            time.sleep(1)
            for each in terminals.values():
                # Also what another terminal did to it: the next prompt must not be taken for an answer.
                while each.read():
                    pass
            if number != last:
                out.write(f"\n--- terminal {number}, after {time.monotonic() - begun:.0f} s ---\n")
            last = number
            out.write(terminal.rest())
            out.flush()
    print(f"{target}: {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
