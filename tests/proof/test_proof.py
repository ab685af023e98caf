"""The quick form of every proof suite, and the bug planted for it. `make proof` lists the long forms."""

from __future__ import annotations

import pytest

from tests.proof import SUITES
from tests.proof.suite import Budget


@pytest.mark.parametrize("name", SUITES)
def test_the_promise_holds(name: str) -> None:
    suite = SUITES[name]
    budget = Budget(seed=1, count=suite.quick)
    assert suite.run(budget)
    # A run that tried nothing would prove nothing.
    assert budget.tried == suite.quick


@pytest.mark.parametrize("name", SUITES)
def test_a_planted_bug_is_found(name: str) -> None:
    suite = SUITES[name]
    with suite.planted(), pytest.raises(AssertionError):
        suite.run(Budget(seed=1, count=suite.quick))
