"""The quick form of every proof suite, and the bug planted for it. `make proof` lists the long forms."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proof import SUITES, damage
from tests.proof.disk import DATA
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


def test_check_names_a_file_that_fails_in_two_ways(tmp_path: Path) -> None:
    """In a file truncated here, LMDB refuses one table with an error, and ends the process at another."""
    damage.built(tmp_path)
    with (tmp_path / DATA).open("r+b") as file:
        file.truncate(1_054_716)
    assert damage.judged(damage.apart(lambda: damage.looked_at(tmp_path))) == "refused"
