"""The decoders of `tests/fuzz`, fed by atheris, which is guided by the branches that an input takes.

Promise: a value or one of our errors. Atheris ends the process it runs in, so it gets its own: a small run gives it all
decoders at once, chosen by the first byte of an input, a large one each decoder by itself.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from tests.fuzz.decoders import DECODERS
from tests.fuzz.target import ALL, PLANTED
from tests.proof.suite import Budget, Suite

SUPPORTED = find_spec("atheris") is not None
# From this count on, each decoder has its own process.
LARGE_RUN = 100_000
INPUT_BYTES_MAX = 4_096


def run(budget: Budget) -> str:
    """Let atheris look for inputs that make a decoder raise anything but one of our errors."""
    found = list(DECODERS)
    edges = 0
    for name in found if budget.count >= LARGE_RUN else [ALL]:
        with tempfile.TemporaryDirectory() as folder:
            count = budget.count * (len(found) if name == ALL else 1)
            options = [f"-runs={count}", f"-seed={budget.seed}", f"-max_len={INPUT_BYTES_MAX}", "-verbosity=1"]
            options += [f"-artifact_prefix={folder}/", "-use_value_profile=0"]
            if budget.minutes is not None:
                options.append(f"-max_total_time={max(int(60 * budget.minutes) // len(found), 1)}")
            corpus = Path(folder, "corpus")
            corpus.mkdir()
            done = subprocess.run(
                [sys.executable, "-m", "tests.fuzz.target", name, *options, str(corpus)],
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
            text = done.stdout + done.stderr
            assert done.returncode == 0, f"{name}: {text[-3_000:]}"
            edges += int(re.findall(r"cov: (\d+)", text)[-1])
    budget.tried = budget.count
    return f"{budget.count:,} inputs to each of {len(found)} decoders, {edges:,} edges reached, no other error"


@contextmanager
def planted() -> Iterator[None]:
    """The bug of `decoders.py`, in the process of atheris."""
    os.environ[PLANTED] = "1"
    try:
        yield
    finally:
        del os.environ[PLANTED]


SUITE = Suite("inputs", 300, 10_000_000, run, planted)
