"""The compliance harness is red when it should be: on what nobody announced, and on a list that is no longer true."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "compliance"


@pytest.fixture(scope="module")
def verdict() -> ModuleType:
    """The harness is no package, so it is loaded from its file."""
    spec = importlib.util.spec_from_file_location("compliance_verdict", FOLDER / "verdict.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


def judged(verdict: ModuleType, results: dict[str, str], listed: dict[str, str], *, machine: bool = False) -> Any:
    outcomes = [verdict.Outcome(test, result, 1.0) for test, result in results.items()]
    deviations = {test: verdict.Deviation(reason, machine) for test, reason in listed.items()}
    return verdict.judge(outcomes, deviations, set(results))


def test_announced_failures_are_good(verdict: ModuleType) -> None:
    results = {"a.py::one": "passed", "a.py::two": "failed", "b.py::three": "skipped"}
    found = judged(verdict, results, {"a.py::two": "reason"})
    assert found.good
    assert found.files["a.py"] == {"passed": 1, "failed": 1}
    assert [reason for _, reason in found.known] == ["reason"]


def test_a_failure_nobody_announced_is_red(verdict: ModuleType) -> None:
    found = judged(verdict, {"a.py::one": "failed"}, {})
    assert not found.good
    assert [outcome.test for outcome in found.unexpected] == ["a.py::one"]


def test_a_deviation_that_passes_is_red(verdict: ModuleType) -> None:
    found = judged(verdict, {"a.py::one": "passed"}, {"a.py::one": "reason"})
    assert not found.good
    assert found.stale == ["a.py::one"]


@pytest.mark.parametrize("result", ["passed", "failed"])
def test_a_deviation_that_depends_on_the_machine_may_go_either_way(verdict: ModuleType, result: str) -> None:
    assert judged(verdict, {"a.py::one": result}, {"a.py::one": "reason"}, machine=True).good


def test_a_deviation_that_does_not_exist_is_red_if_its_file_was_looked_at(verdict: ModuleType) -> None:
    listed = {"a.py::gone": "reason", "z.py::elsewhere": "reason"}
    found = judged(verdict, {"a.py::one": "passed"}, listed)
    assert not found.good
    assert found.unknown == ["a.py::gone"]


def test_our_own_list_has_a_reason_for_everything(verdict: ModuleType) -> None:
    listed = verdict.load(FOLDER / "deviations.toml")
    assert listed
    assert all(len(deviation.reason) > 20 for deviation in listed.values())
