"""The rotation of the backlog queues, with a stepped clock and a seeded generator."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from twinbus.clock import SteppedClock
from twinbus.paired.rotation import Rotation


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def rotation(clock: SteppedClock) -> Rotation:
    return Rotation(["a", "b", "c"], pause_ms=30_000, clock=clock, rng=Random(1))


def test_senders_spread_by_chance(rotation: Rotation) -> None:
    picks = Counter(rotation.pick() for _ in range(3_000))
    assert set(picks) == {"a", "b", "c"}
    assert min(picks.values()) > 850


def test_what_failed_is_out_for_a_pause(rotation: Rotation, clock: SteppedClock) -> None:
    assert rotation.fail("a")
    assert not rotation.fail("a")
    assert not rotation.usable("a")
    assert {rotation.pick() for _ in range(100)} == {"b", "c"}
    clock.step(seconds=29.999)
    assert not rotation.usable("a")
    clock.step(ms=1)
    assert {rotation.pick() for _ in range(100)} == {"a", "b", "c"}


def test_it_is_in_again_when_a_send_succeeds(rotation: Rotation, clock: SteppedClock) -> None:
    rotation.fail("a")
    clock.step(seconds=30)
    assert rotation.succeed("a")
    assert not rotation.succeed("a")
    assert rotation.fail("a"), "it went out anew"


def test_when_all_are_out_the_least_recently_failed_is_tried(rotation: Rotation, clock: SteppedClock) -> None:
    for name in ("b", "a", "c"):
        assert not rotation.all_out()
        rotation.fail(name)
    assert rotation.all_out()
    assert rotation.pick() == "b"
    rotation.fail("b")
    assert rotation.pick() == "a"


def test_what_was_tried_is_avoided_if_there_is_another(rotation: Rotation) -> None:
    assert {rotation.pick(avoid=["a", "b"]) for _ in range(20)} == {"c"}
    assert rotation.pick(avoid=["a", "b", "c"]) in ("a", "b", "c")


def test_a_key_always_gets_the_same_queue(rotation: Rotation) -> None:
    picks = {key: rotation.pick(key) for key in map(str, range(100))}
    assert set(picks.values()) == {"a", "b", "c"}
    assert all(rotation.pick(key) == name for key, name in picks.items())
    rotation.fail("a")
    moved = {key for key, name in picks.items() if rotation.pick(key) != name}
    assert moved == {key for key, name in picks.items() if name == "a"}


def test_a_queue_that_is_revived_may_be_picked_at_once() -> None:
    clock = SteppedClock()
    rotation = Rotation(["a", "b"], pause_ms=1_000, clock=clock, rng=Random(1))
    assert rotation.succeed("a") is False
    assert rotation.fail("a") is True
    assert rotation.fail("a") is False
    assert not rotation.usable("a")
    rotation.revive("a")
    rotation.revive("b")
    assert rotation.usable("a")
    assert rotation.succeed("a") is True
    assert rotation.fail("b") is True, "one that was not out was not touched"
