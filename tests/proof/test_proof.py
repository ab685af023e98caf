"""The quick form of every proof suite, and the bug planted for it. `make proof` lists the long forms."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import pytest

from tests.proof import SUITES, damage, web
from tests.proof.disk import DATA
from tests.proof.suite import Budget
from twinbus.testing import Broker


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


def test_a_request_that_lost_its_end_is_not_waited_for() -> None:
    """Its head continues with a header called $E, for which the broker waits longer than the client does."""
    with Broker() as broker, closing(web.Visitor(broker, random.Random(1))) as visitor:
        visitor.greet()
        assert visitor.ask("damaged", b"DELETE /q HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n$E") == 0
        assert visitor.ask("others", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n") == 200
