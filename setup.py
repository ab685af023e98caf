"""Builds the package: pure Python, or with the hot modules compiled by mypyc when TWINBUS_COMPILE=1.

Everything else is in pyproject.toml. The compiled modules are the same files: nothing in them may behave differently.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_ext import build_ext

SOURCE = Path("src/twinbus")

# Whole packages of pure rules and bytes, and the files of the broker and the store that touch every message.
HOT = (
    *sorted((SOURCE / "amqp").glob("*.py")),
    *sorted((SOURCE / "entities").glob("*.py")),
    SOURCE / "broker" / "connections" / "event_routes.py",
    SOURCE / "broker" / "links" / "consumer.py",
    SOURCE / "broker" / "links" / "dispatcher.py",
    SOURCE / "broker" / "links" / "publisher.py",
    SOURCE / "broker" / "links" / "selector_line.py",
    SOURCE / "broker" / "links" / "senders.py",
    SOURCE / "broker" / "links" / "session_answers.py",
    SOURCE / "broker" / "lock_tokens.py",
    SOURCE / "broker" / "messages" / "damage.py",
    SOURCE / "broker" / "messages" / "intake.py",
    SOURCE / "broker" / "messages" / "stored.py",
    SOURCE / "clock.py",
    SOURCE / "store" / "body_rows.py",
    SOURCE / "store" / "checksums.py",
    SOURCE / "store" / "facts.py",
)

# Subclasses of int, str and bytes, and enumerations, cannot be compiled; they do no work either. A compiled AmqpMessage
# would enforce the types of its fields, and peers send what they like there.
IMPOSSIBLE = {
    *SOURCE.rglob("__init__.py"),
    SOURCE / "amqp" / "types.py",
    SOURCE / "amqp" / "message.py",
    SOURCE / "entities" / "effects.py",
}
# No message passes through these: compiling them would only take time.
COLD = {
    SOURCE / "amqp" / "attachments.py",
    SOURCE / "amqp" / "handshake.py",
    SOURCE / "amqp" / "terminus.py",
    SOURCE / "amqp" / "typed_json.py",
    SOURCE / "entities" / "audit.py",
    SOURCE / "entities" / "findings.py",
    SOURCE / "entities" / "resubmission.py",
    SOURCE / "entities" / "rule.py",
    SOURCE / "entities" / "setting.py",
    SOURCE / "entities" / "settings.py",
    SOURCE / "entities" / "states.py",
    SOURCE / "entities" / "topic_settings.py",
}


class ParallelBuild(build_ext):
    """Compiles the C files of one extension side by side: nearly all of them belong to one."""

    def build_extensions(self) -> None:
        compile_in_turn = self.compiler.compile

        def compile_side_by_side(sources: list[str], *args: Any, **options: Any) -> list[str]:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                parts = pool.map(lambda source: compile_in_turn([source], *args, **options), sources)
                return [path for part in parts for path in part]

        self.compiler.compile = compile_side_by_side
        super().build_extensions()


def extensions() -> list[object]:
    if os.environ.get("TWINBUS_COMPILE") != "1":
        return []
    from mypyc.build import mypycify

    paths = [str(path) for path in HOT if path not in IMPOSSIBLE | COLD]
    # Most of the time is spent in Python's own functions, so -O1: gcc takes most of the build beyond it.
    return list(mypycify(["--strict", *paths], opt_level="1", debug_level="0", multi_file=True))


setup(ext_modules=extensions(), cmdclass={"build_ext": ParallelBuild})
