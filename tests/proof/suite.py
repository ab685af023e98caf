"""One proof suite: what it tries, how many cases, and the bug that must make it fail.

A suite draws everything from its seed, so the same seed tries the same cases. It raises at the first case that breaks
its promise, and otherwise returns one line of figures.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass


class Budget:
    """How many cases a run tries: a number, or as many as fit into some minutes."""

    def __init__(self, seed: int, count: int, minutes: float | None = None) -> None:
        # Every choice of a run follows from it.
        self.seed = seed
        # Maximum number of cases; ignored if there are minutes.
        self.count = count
        # How long to run; None: until the count is reached.
        self.minutes = minutes
        # Number of cases started.
        self.tried = 0

    def __iter__(self) -> Iterator[random.Random]:
        """The random generator of each case, which depends only on the seed and the number of the case."""
        end_s = None if self.minutes is None else time.monotonic() + 60 * self.minutes
        while self.tried < self.count if end_s is None else time.monotonic() < end_s:
            self.tried += 1
            yield random.Random(f"{self.seed}/{self.tried}")


@dataclass(frozen=True)
class Suite:
    """A proof with its sizes."""

    # The unit of the count, such as "states" or "requests".
    unit: str
    # Cases in `make test`, and in a run by hand.
    quick: int
    long: int
    # Tries all cases of a budget and returns the figures.
    run: Callable[[Budget], str]
    # Plants a bug for the time of a `with`: the run must fail.
    planted: Callable[[], AbstractContextManager[None]]


def command(name: str, suite: Suite, arguments: list[str]) -> int:
    """Run a suite as a command; the last line prints the figures and the seed."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.proof {name}", description=suite.run.__doc__)
    parser.add_argument("--seed", type=int, default=1, help="choose the cases (default 1)")
    parser.add_argument("--count", type=int, default=suite.long, help=f"try N {suite.unit} (default {suite.long:,})")
    parser.add_argument("--minutes", type=float, help="go on for this long, whatever the count")
    parser.add_argument("--planted", action="store_true", help="plant a bug: the run must fail")
    options = parser.parse_args(arguments)
    budget = Budget(options.seed, options.count, options.minutes)
    started_s = time.monotonic()
    try:
        with suite.planted() if options.planted else nullcontext():
            figures = suite.run(budget)
    except Exception:
        print(f"{name}: FAILED at {suite.unit} {budget.tried:,}, seed {options.seed}", file=sys.stderr)
        raise
    print(f"{name}: {figures}, seed {options.seed}, {time.monotonic() - started_s:.0f} s")
    return 0
