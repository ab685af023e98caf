"""Pages of the documentation, taken apart: their blocks of commands and programs, in order.

Rules:
- A block is what stands between two fences. Its language is the first word after the opening fence.
- In a `console` block a line that begins with `$ ` is a command; it goes on where it ends with a backslash, where a
  quote is open, and to the end of a here-document. A line `^C` interrupts the newest one that runs in the background.
  The other lines are what the command before them prints.
- A comment right above a block says what is special about it: `<!-- run by: FILE -->` (its commands are run there, not
  here), `<!-- not run: REASON -->` (REASON begins with one of `REASONS`), or `<!-- output varies -->` (what is printed
  is an example, and not compared).
- A command with the comment `# exits N` is expected to end with N, any other with 0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])

# Why a block is not run. A longer reason may follow after a comma.
REASONS = ("systemd", "package index")

_FENCE = re.compile(r"^(\s*)(`{3,})(.*)$")
_COMMENT = re.compile(r"^\s*<!--\s*(.*?)\s*-->\s*$")
_EXITS = re.compile(r"#\s*exits (\d+)\b")
_HERE = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")


@dataclass
class Command:
    """One command and what the page says it prints."""

    # The line in the page, for those who look for it.
    line: int
    # What the shell is given; `^C` interrupts the command before.
    text: str
    # The exit code the page expects.
    code: int = 0
    # The lines it prints, as the page shows them.
    output: list[str] = field(default_factory=list)


@dataclass
class Block:
    """What stands between two fences."""

    # The line of the opening fence.
    line: int
    # The first word after it; empty where there is none.
    language: str
    # The lines, without the fence's indentation.
    lines: list[str]
    # Why it is not run; None where it is.
    not_run: str | None = None
    # The file that runs it instead of the page's own test; None where that does.
    run_by: str | None = None
    # Whether what it prints is only an example.
    varies: bool = False

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(text: str) -> list[Block]:
    """All blocks of a page, in order."""
    found: list[Block] = []
    lines = text.splitlines()
    open_at: int | None = None
    fence = indent = ""
    for number, line in enumerate(lines):
        match = _FENCE.match(line)
        if open_at is None:
            if match:
                open_at, indent, fence = number, match[1], match[2]
                said = _said_above(lines, number)
                language = match[3].strip().partition(" ")[0]
                reason, run_by = _told(said, "not run"), _told(said, "run by")
                found.append(Block(number + 1, language, [], reason, run_by, "output varies" in said))
        elif match and match[2].startswith(fence) and not match[3].strip():
            open_at = None
        else:
            found[-1].lines.append(line.removeprefix(indent))
    if open_at is not None:
        raise ValueError(f"the block that begins in line {open_at + 1} has no end")
    return found


def _said_above(lines: list[str], number: int) -> list[str]:
    """The comments directly above a line; one empty line may stand between."""
    said = []
    above = number - 1
    while above >= 0 and (not lines[above].strip() or _COMMENT.match(lines[above])):
        if match := _COMMENT.match(lines[above]):
            said.append(match[1])
        elif said or above < number - 1:
            break
        above -= 1
    return said


def _told(said: list[str], word: str) -> str | None:
    return next((each.partition(":")[2].strip() for each in said if each.startswith(f"{word}:")), None)


def commands(block: Block) -> list[Command]:
    """The commands of a `console` block, each with what it prints."""
    found: list[Command] = []
    lines = list(enumerate(block.lines, block.line + 1))
    while lines:
        number, line = lines.pop(0)
        if line.strip() == "^C":
            found.append(Command(number, "^C"))
        elif line.startswith("$ "):
            text = line[2:]
            while lines and not _complete(text):
                text += "\n" + lines.pop(0)[1].removeprefix("> ")
            told = _EXITS.search(text)
            found.append(Command(number, text, int(told[1]) if told else 0))
        elif found:
            found[-1].output.append(line)
        elif line.strip():
            raise ValueError(f"line {number} stands before the first command")
    return found


def _complete(text: str) -> bool:
    """Whether a shell would run it, or wait for more."""
    if text.endswith("\\"):
        return False
    if match := _HERE.search(text):
        return text.splitlines()[-1].strip() == match[2] and "\n" in text
    bare = re.sub(r"(^|\s)#.*", "", re.sub(r"\\.", "", text), flags=re.MULTILINE)
    return bare.count("'") % 2 == 0 and re.sub(r"'[^']*'", "", bare).count('"') % 2 == 0


def agrees(shown: list[str], printed: str) -> str | None:
    """What the page shows that was not printed, in this order; None where all of it was. `...` stands for anything."""
    rest = [" ".join(line.split()) for line in printed.splitlines()]
    for line in shown:
        wanted = " ".join(line.split())
        if wanted in ("", "..."):
            continue
        pattern = re.compile(".*".join(re.escape(part) for part in re.split(r"\.\.\.|…", wanted)))
        place = next((number for number, has in enumerate(rest) if pattern.fullmatch(has)), None)
        if place is None:
            return line
        rest = rest[place + 1 :]
    return None
