"""Compares what the tests did with what we know they do. Pure.

A run is good when every failure is a listed deviation and every listed deviation that ran still fails:
a deviation that passes must leave the list, so the list is always the truth. Only a test that depends on the machine
may go either way.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PASSED = "passed"
FAILED = "failed"
SKIPPED = "skipped"


@dataclass(frozen=True)
class Outcome:
    """What one test did."""

    test: str
    result: str
    seconds: float
    detail: str = ""

    @property
    def file(self) -> str:
        return self.test.partition("::")[0]


@dataclass(frozen=True)
class Deviation:
    """Why a test fails; `machine`: only on some machines."""

    reason: str
    machine: bool = False


@dataclass
class Verdict:
    """The comparison of one run with the list."""

    # Failures nobody announced.
    unexpected: list[Outcome] = field(default_factory=list)
    # Failures that are listed, with the reason.
    known: list[tuple[Outcome, str]] = field(default_factory=list)
    # Listed tests that passed.
    stale: list[str] = field(default_factory=list)
    # Listed tests the SDK does not have.
    unknown: list[str] = field(default_factory=list)
    # Counts by file and result.
    files: dict[str, Counter[str]] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        return not (self.unexpected or self.stale or self.unknown)


def load(path: Path) -> dict[str, Deviation]:
    """Every entry has tests and a reason; a test is listed once."""
    listed: dict[str, Deviation] = {}
    for entry in tomllib.loads(path.read_text()).get("deviation", []):
        reason = " ".join(str(entry["reason"]).split())
        if not reason:
            raise ValueError(f"A deviation without a reason: {entry['tests']}")
        for test in entry["tests"]:
            if test in listed:
                raise ValueError(f"Listed twice: {test}")
            listed[test] = Deviation(reason, bool(entry.get("machine", False)))
    return listed


def judge(outcomes: list[Outcome], listed: dict[str, Deviation], existing: set[str]) -> Verdict:
    """`existing`: every test the examined files hold, run or not."""
    verdict = Verdict()
    examined = {test.partition("::")[0] for test in existing}
    for outcome in sorted(outcomes, key=lambda one: one.test):
        verdict.files.setdefault(outcome.file, Counter())[outcome.result] += 1
        if outcome.result == FAILED and outcome.test in listed:
            verdict.known.append((outcome, listed[outcome.test].reason))
        elif outcome.result == FAILED:
            verdict.unexpected.append(outcome)
        elif outcome.result == PASSED and outcome.test in listed and not listed[outcome.test].machine:
            verdict.stale.append(outcome.test)
    verdict.unknown = sorted(test for test in listed if test.partition("::")[0] in examined and test not in existing)
    return verdict


def as_json(verdict: Verdict, outcomes: list[Outcome]) -> dict[str, Any]:
    """The run as plain data, for the file other tools read."""
    return {
        "good": verdict.good,
        "files": {name: dict(counts) for name, counts in sorted(verdict.files.items())},
        "totals": dict(sum(verdict.files.values(), Counter())),
        "unexpected": [one.test for one in verdict.unexpected],
        "known": [{"test": one.test, "reason": reason} for one, reason in verdict.known],
        "stale": verdict.stale,
        "unknown": verdict.unknown,
        "tests": [
            {"test": one.test, "result": one.result, "seconds": round(one.seconds, 2), "detail": one.detail}
            for one in sorted(outcomes, key=lambda one: one.test)
        ],
    }
