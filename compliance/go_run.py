"""Runs the official Go client's own tests against brokers of ours: `python compliance/go_run.py`.

The module proxy has the client with its tests; they are compiled once and run as they are. They want the service's own
names and ports, so they run on a machine of their own (namespaces of the kernel's, see `go_inside.py`).
Exit code 0: nothing unexpected. 1: a failure that is not listed in go_deviations.toml, or a listed one that passes.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import verdict
from run import show

HERE = Path(__file__).resolve().parent
CACHE = HERE / ".cache" / "go"
MODULE = "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
VERSION = "v1.11.0"
# The first is the client itself.
PACKAGES = (
    ".",
    "admin",
    "internal",
    *(f"internal/{name}" for name in ["amqpwrap", "atom", "conn", "exported", "sas", "utils"]),
)
_ENDED = re.compile(r"^--- (PASS|FAIL|SKIP): (\S+) \(([\d.]+)s\)", re.MULTILINE)
_RESULTS = {"PASS": verdict.PASSED, "FAIL": verdict.FAILED, "SKIP": verdict.SKIPPED}


def compiled(package: str) -> Path:
    """The tests of a package as a program; made on first use."""
    program = CACHE / f"{package.replace('/', '-').replace('.', 'azservicebus')}.test"
    if not program.exists():
        subprocess.run(["go", "test", "-c", "-o", program, f"./{package}"], cwd=sources(), check=True)
    return program


def sources() -> Path:
    folder = CACHE / VERSION
    if not folder.exists():
        command = ["go", "mod", "download", "-json", f"{MODULE}@{VERSION}"]
        # Anywhere but in a module.
        told = subprocess.run(command, cwd=tempfile.gettempdir(), check=True, capture_output=True, text=True)
        shutil.copytree(json.loads(told.stdout)["Dir"], folder)
        subprocess.run(["chmod", "-R", "u+w", folder], check=True)
    return folder


def outcomes_in(package: str, printed: str) -> list[verdict.Outcome]:
    """What the tests of a package did. One that panics takes those behind it along, and is the last that ended."""
    return [
        verdict.Outcome(f"{package}::{name}", _RESULTS[word], float(seconds))
        for word, name, seconds in _ENDED.findall(printed)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--package", action="append", choices=PACKAGES, help="only this one; repeatable")
    parser.add_argument("--run", default="", metavar="PATTERN", help="only these tests, as in go test")
    options = parser.parse_args()
    packages = options.package or list(PACKAGES)
    programs = {package: compiled(package) for package in packages}
    outcomes: list[verdict.Outcome] = []
    started = time.monotonic()
    for package, program in programs.items():
        log = program.with_suffix(".log")
        inside = [sys.executable, HERE / "go_inside.py", sources() / package, program, log, options.run]
        subprocess.run(["unshare", "--mount", "--net", "--map-root-user", *inside], check=True)
        outcomes += outcomes_in(package, log.read_text(errors="replace"))
    existing = {outcome.test for outcome in outcomes}
    result = verdict.judge(outcomes, verdict.load(HERE / "go_deviations.toml"), existing)
    if options.run:
        result.unknown = []
    show(result, outcomes, time.monotonic() - started)
    return 0 if result.good else 1


if __name__ == "__main__":
    sys.exit(main())
