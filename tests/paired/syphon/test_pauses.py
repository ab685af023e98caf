"""Pauses of destinations, on a stepped clock."""

from __future__ import annotations

from twinbus.clock import SteppedClock
from twinbus.paired.syphon.pauses import PRIMARY, Pauses


def made() -> tuple[Pauses, SteppedClock]:
    clock = SteppedClock()
    return Pauses(clock, first_ms=100, longest_ms=1_000, draw=lambda: 1.0), clock


def test_pauses_grow_and_end() -> None:
    pauses, clock = made()
    assert pauses.left_ms("a") == 0
    assert [pauses.fail("a") for _ in range(5)] == [100, 200, 400, 800, 1_000]
    assert pauses.left_ms("a") == 1_000
    clock.step(ms=400)
    assert pauses.left_ms("a") == 600
    clock.step(ms=700)
    assert pauses.left_ms("a") == 0
    # It may be tried, and counts as failing until it succeeds.
    assert pauses.failing("a")


def test_a_success_ends_them() -> None:
    pauses, _ = made()
    pauses.fail("a")
    pauses.fail("a")
    assert pauses.succeed("a")
    assert not pauses.succeed("a")
    assert pauses.left_ms("a") == 0
    assert pauses.fail("a") == 100


def test_each_destination_has_its_own() -> None:
    pauses, _ = made()
    pauses.fail("a")
    pauses.fail("a")
    assert pauses.fail("b") == 100
    assert pauses.left_ms("c") == 0
    assert pauses.paths() == ["a", "b"]


def test_the_primary_as_a_whole() -> None:
    pauses, _ = made()
    pauses.fail()
    assert pauses.left_ms() == 100
    assert pauses.failing(PRIMARY)
    assert pauses.paths() == []
    assert pauses.left_ms("a") == 0
