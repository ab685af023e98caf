"""`python -m tests.proof NAME [--seed N] [--count N | --minutes M] [--planted]`: one proof suite as a command."""

from __future__ import annotations

import sys

from tests.proof import SUITES
from tests.proof.suite import command

if __name__ == "__main__":
    if len(sys.argv) < 2:
        for name, suite in SUITES.items():
            print(f"{name:12} {suite.long:>12,} {suite.unit:10} {suite.run.__doc__}")
        sys.exit()
    if sys.argv[1] not in SUITES:
        sys.exit(f"No such suite. Suites are: {', '.join(SUITES)}.")
    sys.exit(command(sys.argv[1], SUITES[sys.argv[1]], sys.argv[2:]))
