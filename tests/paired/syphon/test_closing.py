"""Two namespaces that end together, on a stepped clock."""

from __future__ import annotations

from twinbus.clock import SteppedClock
from twinbus.paired.syphon.closing import ClosingTogether, Side


def made() -> tuple[ClosingTogether, SteppedClock]:
    clock = SteppedClock()
    return ClosingTogether(clock), clock


def test_nothing_is_due_while_both_are_there() -> None:
    bond, clock = made()
    clock.step(seconds=100)
    assert bond.left_ms is None
    assert bond.due() is None


def test_the_other_is_faulted_after_five_seconds() -> None:
    bond, clock = made()
    bond.end(Side.SECONDARY)
    assert bond.left_ms == 5_000
    clock.step(seconds=4.999)
    assert bond.due() is None
    clock.step(ms=1)
    found = bond.due()
    assert found is not None
    side, text = found
    assert side is Side.PRIMARY
    assert "the secondary was closed" in text
    assert "5 seconds" in text
    # Once.
    assert bond.due() is None
    assert bond.left_ms is None


def test_closing_both_in_time_faults_nobody() -> None:
    bond, clock = made()
    bond.end(Side.PRIMARY)
    clock.step(seconds=4)
    bond.end(Side.SECONDARY)
    clock.step(seconds=10)
    assert bond.left_ms is None
    assert bond.due() is None


def test_the_reason_of_a_fault_is_handed_on() -> None:
    bond, clock = made()
    bond.end(Side.PRIMARY, "the key was withdrawn")
    bond.end(Side.PRIMARY)
    clock.step(seconds=6)
    found = bond.due()
    assert found is not None
    assert found[0] is Side.SECONDARY
    assert "the primary was faulted (the key was withdrawn)" in found[1]
