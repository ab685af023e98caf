"""Who may import whom: the walls of the house (CONTRIBUTING.md shows the plan)."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "twinbus"
BASE = {"errors", "limits", "clock", "durations", "spelling", "build"}

# Part -> the parts of ours it may import, itself apart.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "limits": set(),
    "clock": set(),
    "build": set(),
    "durations": {"errors", "limits"},
    "websocket": {"limits"},
    "spelling": set(),
    "amqp": BASE,
    "auth": BASE,
    "store": BASE,
    "ledger": BASE,
    "entities": BASE | {"store.facts"},
    "broker": BASE | {"websocket", "amqp", "auth", "store", "ledger", "entities"},
    "client": BASE | {"websocket", "amqp", "auth"},
    "paired": BASE | {"client", "ledger"},
    "plan": BASE | {"ledger"},
    "spark": BASE | {"client", "paired", "ledger", "plan"},
    # It is a user of the commands, as people are.
    "demo": BASE | {"client", "paired", "ledger"},
    "cli": BASE
    | {"amqp", "auth", "store", "ledger", "entities", "broker", "client", "paired", "plan", "spark", "demo"},
    "__main__": {"cli"},
    "testing": BASE | {"auth", "entities", "broker"},
    "testing_plugin": {"testing"},
}
# The rooms of the broker, and its files outside of them: each imports only what stands above it. Types may be named
# in any direction.
ROOMS = (
    "memory",
    "lock_tokens",
    "tuning",
    "configuration",
    "metering",
    "commits",
    "durability",
    "identity",
    "slices",
    "security",
    "backup",
    "messages",
    "sending",
    "links",
    "nodes",
    "faults",
    "connections",
    "http",
    "timers",
    "clock_watch",
    "host",
    "configured",
    "server",
)
ASYNCIO = {"websocket", "broker", "client", "paired", "cli", "demo", "testing"}
# Calls that read the time of day, or wait: time goes through `clock`. A monotonic clock only measures.
WALL_TIME = {
    ("time", "time"),
    ("time", "time_ns"),
    ("time", "sleep"),
    ("time", "localtime"),
    ("time", "gmtime"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
    ("date", "today"),
}
# Where randomness may be drawn; the rest is handed it.
RANDOM = {"broker", "client", "paired", "cli", "demo", "testing"}
PURE = {"amqp", "auth", "entities", "ledger", "plan"}
# The ledger's files are written by clients as well as by the broker, so their one door to the disk is in the ledger.
DOORS = {SOURCE / "ledger" / "files.py"}
IO = {"asyncio", "os", "socket", "subprocess", "threading", "pathlib", "tempfile", "time", "shutil"}


FILES = [path for path in sorted(SOURCE.rglob("*.py")) if path != SOURCE / "__init__.py"]


def part_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def place(path: Path, line: int) -> str:
    return f"{path.relative_to(SOURCE)}:{line}"


def imports(path: Path, *, with_typing: bool = True) -> Iterator[tuple[str, str]]:
    """What a file imports, as places and absolute names: modules, and `module.name` for from-imports."""
    tree = ast.parse(path.read_text())
    package = ["twinbus", *path.relative_to(SOURCE).parts[:-1]]
    skipped: set[ast.AST] = set()
    if not with_typing:
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                skipped.update(ast.walk(node))
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield place(path, node.lineno), alias.name
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, [base, node.module]))
            for alias in node.names:
                yield place(path, node.lineno), f"{module}.{alias.name}"


def attributes(path: Path) -> Iterator[tuple[str, str, str]]:
    """Uses of `owner.name` in a file, with their places."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
            yield place(path, node.lineno), owner, node.attr


def may_import(part: str, name: str) -> bool:
    if not name.startswith("twinbus."):
        return True
    target = name.removeprefix("twinbus.")
    if target.split(".")[0] in (part, "__version__"):
        return True
    return any(target == one or target.startswith(one + ".") for one in ALLOWED[part])


def test_a_part_imports_only_what_it_may() -> None:
    new = {part_of(path) for path in FILES} - set(ALLOWED)
    assert not new, "say in ALLOWED what a new part may import"
    wrong = [
        f"{where} imports {name}"
        for path in FILES
        for where, name in imports(path)
        if not may_import(part_of(path), name)
    ]
    assert wrong == []


def test_a_room_of_the_broker_imports_only_rooms_above_it() -> None:
    wrong = []
    for path in FILES:
        if part_of(path) != "broker" or path == SOURCE / "broker" / "__init__.py":
            continue
        room = path.relative_to(SOURCE).parts[1].removesuffix(".py")
        assert room in ROOMS, "say in ROOMS where a new room of the broker stands"
        above = ROOMS[: ROOMS.index(room) + 1]
        wrong += [
            f"{where} imports {name}"
            for where, name in imports(path, with_typing=False)
            if name.startswith("twinbus.broker.") and name.split(".")[2] not in above
        ]
    assert wrong == []


def test_asyncio_stays_in_the_shells() -> None:
    wrong = [
        f"{where} imports {name}"
        for path in FILES
        if part_of(path) not in ASYNCIO
        for where, name in imports(path)
        if name.split(".")[0] in ("asyncio", "uvloop")
    ]
    assert wrong == []


def test_pure_parts_touch_nothing() -> None:
    wrong = [
        f"{where} imports {name}"
        for path in FILES
        if part_of(path) in PURE and path not in DOORS
        for where, name in imports(path, with_typing=False)
        if name.split(".")[0] in IO
    ]
    assert wrong == []


def test_only_the_clock_reads_the_time() -> None:
    others = [path for path in FILES if part_of(path) != "clock"]
    wrong = [
        f"{where} imports {name}"
        for path in others
        for where, name in imports(path)
        if tuple(name.split(".")[-2:]) in WALL_TIME
    ]
    wrong += [
        f"{where} uses {owner}.{name}"
        for path in others
        for where, owner, name in attributes(path)
        if (owner, name) in WALL_TIME
    ]
    assert wrong == []


def test_randomness_is_passed_in() -> None:
    others = [path for path in FILES if part_of(path) not in RANDOM]
    draws = {"urandom", "uuid4", "uuid1"}
    wrong = [
        f"{where} imports {name}"
        for path in others
        for where, name in imports(path)
        if name.split(".")[0] in ("random", "secrets") or name.split(".")[-1] in draws
    ]
    wrong += [f"{where} draws {name}" for path in others for where, _, name in attributes(path) if name in draws]
    assert wrong == []


def test_the_plugin_imports_nothing_heavy() -> None:
    at_once = {
        alias.name if isinstance(node, ast.Import) else str(node.module)
        for node in ast.parse((SOURCE / "testing_plugin.py").read_text()).body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert at_once <= {"__future__", "collections.abc", "contextlib", "typing", "pytest"}


def test_no_module_beside_a_program_hides_one_of_python() -> None:
    # Spark runs a job as a file, and then its folder comes first where modules are looked for.
    hidden = [
        str(path.relative_to(SOURCE))
        for job in SOURCE.rglob("job.py")
        for path in job.parent.iterdir()
        if path.stem in sys.stdlib_module_names
    ]
    assert hidden == []
