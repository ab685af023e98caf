"""Builds the package: pure Python, or with the hot modules compiled by mypyc when TWINBUS_COMPILE=1.

Everything else is in pyproject.toml. The compiled modules are the same files: nothing in them may behave differently.
"""

from __future__ import annotations

import os
from pathlib import Path

from setuptools import setup

SOURCE = Path("src/twinbus")

# Whole packages of pure rules and bytes, and the two files of the broker that touch every message.
HOT = (
    *sorted((SOURCE / "amqp").glob("*.py")),
    *sorted((SOURCE / "entities").glob("*.py")),
    SOURCE / "broker" / "messages" / "intake.py",
    SOURCE / "broker" / "messages" / "stored.py",
    SOURCE / "store" / "facts.py",
)

# Subclasses of int, str and bytes, and enumerations, cannot be compiled; they do no work either. A compiled AmqpMessage
# would enforce the types of its fields, and peers send what they like there.
COLD = {
    *SOURCE.rglob("__init__.py"),
    SOURCE / "amqp" / "types.py",
    SOURCE / "amqp" / "message.py",
    SOURCE / "entities" / "effects.py",
}


def extensions() -> list[object]:
    if os.environ.get("TWINBUS_COMPILE") != "1":
        return []
    from mypyc.build import mypycify

    return list(mypycify(["--strict", *(str(path) for path in HOT if path not in COLD)]))


setup(ext_modules=extensions())
