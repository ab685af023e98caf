"""A short run of the random fuzzer; `FUZZ_SECONDS` makes it longer, `FUZZ_SEED` another."""

from __future__ import annotations

import os

from .fuzz_amqp import run_random


def test_random_input_never_raises() -> None:
    assert run_random(float(os.environ.get("FUZZ_SECONDS", "1")), int(os.environ.get("FUZZ_SEED", "1"))) > 0
