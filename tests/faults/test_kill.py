"""A short run of the kill test; `make faults` runs it longer."""

from __future__ import annotations

from pathlib import Path

import kill


def test_nothing_is_lost_and_nothing_comes_back() -> None:
    report = kill.run(kills=3, seed=20)
    assert report.good, str(report)
    # A run in which nothing happened would prove nothing.
    assert report.accepted > 100
    assert report.completed > 50
    assert report.found > 0


def test_a_broker_that_forgets_is_found_out() -> None:
    report = kill.run(kills=1, seed=21, planted=Path(__file__).parent / "planted")
    assert report.lost
