"""Clocks: what follows the time of day, and when."""

from __future__ import annotations

import pytest

from twinbus import clock as clocks
from twinbus.clock import AnchoredClock, SteppedClock, SystemClock


class Machine:
    """The two clocks of a machine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall_ns = 1_700_000_000_000_000_000
        self.steady_ns = 50_000_000_000
        # What passes between two readings of the clocks, in order; then nothing.
        self.delays_ns: list[int] = []
        monkeypatch.setattr(clocks.time, "time_ns", self._time_ns)
        monkeypatch.setattr(clocks.time, "monotonic_ns", self._monotonic_ns)

    def pass_ms(self, ms: int) -> None:
        self.wall_ns += ms * 1_000_000
        self.steady_ns += ms * 1_000_000

    def _read(self) -> None:
        if self.delays_ns:
            delay_ns = self.delays_ns.pop(0)
            self.wall_ns += delay_ns
            self.steady_ns += delay_ns

    def _time_ns(self) -> int:
        self._read()
        return self.wall_ns

    def _monotonic_ns(self) -> int:
        self._read()
        return self.steady_ns


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_an_anchored_clock_jumps_only_when_it_follows(machine: Machine) -> None:
    clock = AnchoredClock()
    assert clock.now_ms() == 1_700_000_000_000
    machine.pass_ms(1_500)
    assert (clock.now_ms(), clock.steady_ms()) == (1_700_000_001_500, 51_500)
    for step_s in (-86_400, 86_400, -3, 0.05, -0.05):
        before_ms = clock.now_ms()
        machine.wall_ns += round(step_s * 1e9)
        assert clock.now_ms() == before_ms
        assert clock.follow() == round(step_s * 1000)
        assert clock.now_ms() == before_ms + round(step_s * 1000)
        assert clock.follow() == 0


def test_small_differences_are_no_step_until_they_add_up(machine: Machine) -> None:
    clock = AnchoredClock()
    for _ in range(2):
        machine.wall_ns += 4_000_000
        assert clock.follow() == 0
    machine.wall_ns += 4_000_000
    assert clock.follow() == 12


def test_a_pause_between_two_readings_is_no_step(machine: Machine) -> None:
    clock = AnchoredClock()
    # The process had no CPU for a second, in the middle of the first two attempts.
    machine.delays_ns = [0, 1_000_000_000, 0, 0, 0, 1_000_000_000, 0, 0, 0]
    assert clock.follow() == 0
    # It had none in any of them: the middle is the best guess, and right in so regular a case.
    machine.delays_ns = [0, 500_000_000, 500_000_000] * 5
    assert clock.follow() == 0


def test_the_system_clock_shows_each_time_what_is_set(machine: Machine) -> None:
    clock = SystemClock()
    machine.wall_ns -= 86_400_000_000_000
    assert (clock.now_ms(), clock.steady_ms(), clock.follow()) == (1_699_913_600_000, 50_000, 0)


def test_a_stepped_clock_jumps_without_time_passing() -> None:
    clock = SteppedClock(1_000)
    clock.step(seconds=1)
    clock.jump(seconds=5)
    assert (clock.now_ms(), clock.steady_ms()) == (2_000, 1_000)
    assert clock.follow() == 5_000
    assert (clock.now_ms(), clock.steady_ms(), clock.follow()) == (7_000, 1_000, 0)
