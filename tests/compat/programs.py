"""Programs in other languages, one a client: built once, kept in a cache, run case by case.

Rules:
- A program takes the names of cases as arguments and prints a line of JSON for each: `case`, `ok`, and on failure
  `detail`. It finds its connection strings in the environment (`settings_for`).
- What was built is kept under a name made of the sources: an unchanged program is never built twice.
- Programs are built in the background while others run: a run mostly waits, a build mostly computes.
- Without its tools a program is skipped with the reason; in CI (`CI=true`) that is a failure.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
BUILD_TIMEOUT_S = 1_800

# What every program can do, in the order of the table in docs/clients.md. `kill` has a test of its own.
CASES = (
    "send",
    "batch",
    "settle",
    "receive-and-delete",
    "peek",
    "renew",
    "sessions",
    "schedule",
    "topics",
    "transactions",
    "administration",
    "websocket",
    "large",
    "wrong-key",
    "missing-entity",
)


# What builds make, in a program's own folder.
_PRODUCTS = frozenset({"target", "node_modules", "app"})
# Programs being built, by name.
_BUILDS: dict[str, Future[Path]] = {}


class BuildError(Exception):
    """A command that builds a program failed."""


@dataclass(frozen=True)
class Program:
    """One client's program. `lacks` are cases it cannot have, with the reason; `also` are cases only it has."""

    name: str
    client: str
    tools: tuple[str, ...]
    build: tuple[tuple[str, ...], ...]
    command: tuple[str, ...]
    lacks: dict[str, str]
    also: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    # The only system that its packages are made for; empty for any.
    system: str = ""

    @property
    def cases(self) -> list[str]:
        return [case for case in CASES if case not in self.lacks]

    def ready(self) -> Path:
        """The folder in which it is built; skips the test when it cannot be."""
        missing = [tool for tool in self.tools if shutil.which(tool) is None]
        here = f"{platform.system()} {platform.machine()}"
        reason = ""
        if missing:
            reason = f"{' and '.join(missing)} not found: {self.client} cannot be run"
        elif self.system not in ("", here):
            reason = f"this is {here}, not {self.system}: {self.client} cannot be run"
        if reason:
            if os.environ.get("CI") == "true":
                pytest.fail(reason)
            pytest.skip(reason)
        if not self.build:
            return HERE / self.name
        try:
            return _BUILDS[self.name].result() if self.name in _BUILDS else self.built()
        except BuildError as error:
            pytest.fail(str(error))

    def built(self) -> Path:
        """The folder of the cache, with the program in it."""
        built = cache_folder() / f"{self.name}-{_digest(HERE / self.name)}"
        if not (built / ".built").exists():
            shutil.rmtree(built, ignore_errors=True)
            shutil.copytree(HERE / self.name, built, ignore=_products)
            for command in self.build:
                done = subprocess.run(
                    command, cwd=built, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
                )
                if done.returncode != 0:
                    told = f"{done.stdout}\n{done.stderr}"
                    raise BuildError(f"{' '.join(command)} ended with {done.returncode}:\n{told}")
            (built / ".built").touch()
        return built

    def start(self, built: Path, cases: list[str], settings: dict[str, str]) -> subprocess.Popen[str]:
        trust = settings.get("COMPAT_TRUST_STORE", "")
        command = [part.replace("{trust}", trust) for part in self.command]
        return subprocess.Popen(
            [*command, *cases],
            cwd=built,
            env={**os.environ, **dict(self.environment), **settings},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def _products(folder: str, names: list[str]) -> frozenset[str]:
    """What a build by hand has left in a program's own folder; a folder of its sources may have such a name."""
    return _PRODUCTS & set(names) if Path(folder).parent == HERE else frozenset()


def build_ahead(programs: Iterable[Program]) -> None:
    """Begin to build all of them: the longest beside the others, which share caches and so come one by one."""
    alone, in_turn = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
    for program in programs:
        if program.build and all(shutil.which(tool) is not None for tool in program.tools):
            _BUILDS[program.name] = (alone if program.name == "rust" else in_turn).submit(program.built)
    for pool in (alone, in_turn):
        pool.shutdown(wait=False)


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def cache_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "twinbus-compat"


def _digest(folder: Path) -> str:
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.relative_to(folder).parts[0] not in _PRODUCTS:
            found.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]


_JAVA = ("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-Djavax.net.ssl.trustStore={trust}")
_JAVA_PATH = ("-Djavax.net.ssl.trustStorePassword=changeit", "-cp", "target/classes:target/dependency/*", "compat.Main")
_MAVEN = (("mvn", "-q", "-B", "package", "dependency:copy-dependencies"),)

PROGRAMS = (
    Program(
        "python",
        "azure-servicebus 7.15.0 (Python)",
        (),
        (),
        (sys.executable, "main.py"),
        {"transactions": "the client has none"},
    ),
    Program(
        "node",
        "@azure/service-bus 7.9.5 (JavaScript)",
        ("node", "npm"),
        (("npm", "ci", "--no-audit", "--no-fund", "--silent"),),
        ("node", "main.js"),
        {"transactions": "the client has none"},
    ),
    Program(
        "java",
        "azure-messaging-servicebus 7.17.14 (Java)",
        ("mvn", "java", "keytool"),
        _MAVEN,
        (*_JAVA, *_JAVA_PATH),
        {},
    ),
    Program(
        "go",
        "azservicebus 1.11.0 (Go)",
        ("go",),
        (("go", "build", "-o", "compat", "."),),
        ("./compat",),
        {"transactions": "the client has none"},
    ),
    Program(
        "dotnet",
        "Azure.Messaging.ServiceBus 7.20.1 (.NET)",
        ("node", "npm"),
        (("npm", "ci", "--no-audit", "--no-fund", "--silent"), (sys.executable, "build.py")),
        ("app/compat",),
        {},
        (
            *("properties", "batch-delete", "processor", "session-processor", "rule-manager", "rule-types"),
            *("queue-settings", "topic-settings", "subscription-settings", "runtime-properties"),
            *("scope-settlements", "scope-dead-letter", "scope-deferred", "scope-schedule", "scope-cancel"),
            *("scope-session-state", "scope-renew", "scope-reads", "scope-refused", "scope-subscription"),
            *("scope-two-queues", "scope-cross-entity", "scope-parallel", "scope-processor"),
            *("reasons", "unsigned-token"),
        ),
        # The runtime would need ICU otherwise.
        (("DOTNET_SYSTEM_GLOBALIZATION_INVARIANT", "1"),),
        "Linux x86_64",
    ),
    Program(
        "jms",
        "Qpid JMS 2.10.0",
        ("mvn", "java", "keytool"),
        _MAVEN,
        (*_JAVA, *_JAVA_PATH),
        {
            "renew": "JMS has no locks to renew",
            "sessions": "receiving a session needs a filter that JMS cannot express",
            "administration": "JMS has none",
            "receive-and-delete": "JMS has no such mode",
        },
    ),
    Program(
        "rust",
        "fe2o3-amqp 0.14.1 (Rust)",
        ("cargo",),
        (("cargo", "build", "--quiet"),),
        ("target/debug/compat",),
        {
            "administration": "a generic AMQP client has none",
            "peek": "a generic AMQP client without Service Bus management requests",
            "renew": "a generic AMQP client without Service Bus management requests",
        },
    ),
)
