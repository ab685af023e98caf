"""Process-wide settings: the memory of messages is used again instead of being returned and fetched anew."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

ROUNDS, PIECES, PIECE_BYTES, PAGE_BYTES = 50, 64, 65_536, 4_096

# In its own process, because the settings last. Each round holds 4 MiB in pieces and frees them.
_PROGRAM = f"""
import resource
from twinbus.broker.tuning import tune_process
tune_process()
def burst():
    return [b"x" * {PIECE_BYTES} for _ in range({PIECES})]
burst()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({ROUNDS}):
    burst()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_freed_memory_is_not_fetched_anew() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    pages = ROUNDS * PIECES * PIECE_BYTES // PAGE_BYTES
    assert int(done.stdout) < pages / 20
