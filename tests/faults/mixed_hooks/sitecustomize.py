"""Loaded only by a broker that the mixed run starts: lets the run set its clock, and plants faults.

The file named by MIXED_CLOCK holds the clock's offset in milliseconds. MIXED_PLANTED names a module of this folder that
puts an old fault back.
"""

from __future__ import annotations

import importlib
import os
import time
from pathlib import Path
from types import SimpleNamespace

import twinbus.clock

_file = Path(os.environ["MIXED_CLOCK"])


def _time_ns() -> int:
    return time.time_ns() + int(_file.read_text()) * 1_000_000


twinbus.clock.time = SimpleNamespace(time_ns=_time_ns, monotonic_ns=time.monotonic_ns)  # type: ignore[attr-defined]

if "MIXED_PLANTED" in os.environ:
    importlib.import_module(os.environ["MIXED_PLANTED"])
