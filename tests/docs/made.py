"""Runs a `make` command of the pages in this tree, with the environment that the tests run in."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

from tests.docs.pages import ROOT


def made(command: str, *variables: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """A command as a page has it, with variables behind it. The environment is there: nothing is installed."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "PYTEST", "COV"))
    }
    old = [f"--assume-old={sys.prefix}/{stamp}" for stamp in (".installed", ".demo")]
    there = [*old, f"VENV={sys.prefix}"]
    return subprocess.run(
        [*shlex.split(command), "--silent", *there, *variables],
        cwd=ROOT,
        env=kept,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
