"""The failover state machine: when a sender fails over, pings and fails back, on a stepped clock."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as some

from twinbus.clock import SteppedClock
from twinbus.paired.state import TABLE, EntityState, FailoverMachine, StateSignal


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


def test_the_table_has_an_answer_for_everything() -> None:
    assert {(state, signal) for state, row in TABLE.items() for signal in row} == set(product(EntityState, StateSignal))


def test_a_failure_starts_the_timer_once(clock: SteppedClock) -> None:
    entity = FailoverMachine(60_000, clock)
    assert entity.left_ms() is None
    assert entity.failed()
    assert (entity.state, entity.left_ms()) == (EntityState.SUSPECT, 60_000)
    clock.step(seconds=40)
    assert not entity.failed()
    assert entity.left_ms() == 20_000


def test_a_success_stops_the_timer_and_the_next_failure_starts_it_anew(clock: SteppedClock) -> None:
    entity = FailoverMachine(60_000, clock)
    entity.failed()
    clock.step(seconds=59)
    assert entity.succeeded()
    assert (entity.state, entity.left_ms(), entity.failing_since_ms) == (EntityState.HEALTHY, None, None)
    clock.step(seconds=10)
    entity.failed()
    assert entity.left_ms() == 60_000


def test_the_interval_without_a_success_fails_over(clock: SteppedClock) -> None:
    entity = FailoverMachine(60_000, clock)
    entity.failed()
    clock.step(ms=59_999)
    assert not entity.elapse()
    clock.step(ms=1)
    assert entity.elapse()
    assert entity.state is EntityState.FAILED_OVER
    assert not entity.elapse()


def test_a_failure_past_the_interval_fails_over_at_once(clock: SteppedClock) -> None:
    entity = FailoverMachine(60_000, clock)
    entity.failed()
    clock.step(seconds=61)
    assert entity.failed()
    assert entity.state is EntityState.FAILED_OVER


def test_interval_zero_fails_over_with_the_first_failure(clock: SteppedClock) -> None:
    entity = FailoverMachine(0, clock)
    assert entity.failed()
    assert entity.state is EntityState.FAILED_OVER


def test_only_a_ping_brings_it_back(clock: SteppedClock) -> None:
    entity = FailoverMachine(0, clock)
    entity.failed()
    assert not entity.succeeded()
    clock.step(seconds=3_600)
    assert not entity.failed()
    assert entity.state is EntityState.FAILED_OVER
    assert entity.pinged()
    assert (entity.state, entity.failing_since_ms) == (EntityState.HEALTHY, None)


STEPS = some.lists(
    some.tuples(some.sampled_from(["succeeded", "failed", "pinged", "elapse"]), some.integers(0, 70_000)), max_size=40
)


@given(STEPS)
def test_it_fails_over_only_after_an_interval_of_nothing_but_failures(steps: list[tuple[str, int]]) -> None:
    clock = SteppedClock()
    entity = FailoverMachine(60_000, clock)
    first_failure: int | None = None
    for method, pause_ms in steps:
        now = clock.step(ms=pause_ms)
        before = entity.state
        getattr(entity, method)()
        if method == "failed" and first_failure is None:
            first_failure = now
        if entity.state is EntityState.FAILED_OVER and before is not EntityState.FAILED_OVER:
            assert first_failure is not None
            assert now - first_failure >= 60_000
        if entity.state is EntityState.HEALTHY:
            first_failure = None
        assert (entity.deadline_ms is not None) == (entity.state is EntityState.SUSPECT)
