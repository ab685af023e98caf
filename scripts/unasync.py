"""Writes the sync twin of the paired client: src/twinbus/paired/_sync from src/twinbus/paired/_async.

    python scripts/unasync.py            write it
    python scripts/unasync.py --check    only say which files have drifted, and fail if any has

One logic, two colours: the asyncio files are the source, and a test fails when the others are not what this makes of
them. Their rules and comments are told once, in the source.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

PAIRED = Path(__file__).parent.parent / "src" / "twinbus" / "paired"
SOURCE = PAIRED / "_async"
TARGET = PAIRED / "_sync"

NOTE = '"""Written by scripts/unasync.py from _async/{name}: read and change that file, not this one."""\n'

SUBSTITUTIONS = [
    (re.compile(pattern), replacement)
    for pattern, replacement in [
        (r"\basync (def|with|for)\b", r"\1"),
        (r"\bawait ", ""),
        (r"__aenter__", "__enter__"),
        (r"__aexit__", "__exit__"),
        (r"__aiter__", "__iter__"),
        (r"__anext__", "__next__"),
        (r"azure\.servicebus\.aio", "azure.servicebus"),
        (r"azure\.core\.credentials_async", "azure.core.credentials"),
        (r"\bAioHttpTransport\b", "RequestsTransport"),
        (r"\b_async\b", "_sync"),
        # What returns an awaitable returns what it awaits.
        (r"\bAwaitable\[(\w+)\]", r"\1"),
        (r"\bAwaitable, ", ""),
        # Our own classes and functions, and those of the standard library, lose the prefix.
        (r"\bAsync([A-Z]\w*)", r"\1"),
        (r"\basync_(\w+)", r"\1"),
    ]
]


def sync(text: str, name: str) -> str:
    """The sync twin of a file's text."""
    if name == "__init__.py":
        return '"""The sync twin of `_async`, written by `scripts/unasync.py`."""\n'
    for pattern, replacement in SUBSTITUTIONS:
        text = pattern.sub(replacement, text)
    text = text.removeprefix(f'"""{ast.get_docstring(ast.parse(text), clean=False)}"""\n')
    text = "".join(line for line in text.splitlines(keepends=True) if not line.lstrip().startswith("#"))
    return _formatted(NOTE.format(name=name) + text)


def _formatted(text: str) -> str:
    """Shorter names leave imports to merge and lines to join."""
    # What is ours must not depend on which files there are already.
    ours = ["--config", 'lint.isort.known-first-party = ["twinbus"]']
    for command in (["check", "--select", "I", "--fix", "--quiet", *ours], ["format", "--quiet"]):
        run = subprocess.run(
            [Path(sys.executable).parent / "ruff", *command, "--stdin-filename", TARGET / "x.py", "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        )
        text = run.stdout
    return text


def drifted() -> dict[Path, str]:
    """Files that are not what they should be, with what they should be."""
    wanted = {TARGET / path.name: sync(path.read_text(), path.name) for path in sorted(SOURCE.glob("*.py"))}
    found = {path: text for path, text in wanted.items() if not path.exists() or path.read_text() != text}
    found |= {path: "" for path in TARGET.glob("*.py") if path not in wanted}
    return found


def main() -> int:
    wrong = drifted()
    if "--check" in sys.argv[1:]:
        for path in wrong:
            print(f"{path.name} has drifted: run scripts/unasync.py")
        return 1 if wrong else 0
    TARGET.mkdir(exist_ok=True)
    for path, text in wrong.items():
        if text:
            path.write_text(text)
        else:
            path.unlink()
        print(f"wrote {path.name}" if text else f"removed {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
