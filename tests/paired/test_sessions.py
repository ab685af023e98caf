"""Point 33: which sessions must go through the backlog, and until when."""

from __future__ import annotations

from twinbus.limits import CLOCK_SKEW_MS_MAX
from twinbus.paired.sessions import SessionTrail


def test_a_session_is_held_until_its_queue_is_empty() -> None:
    trail = SessionTrail()
    trail.note(["s1", "s2"], "q", 1_000)
    assert trail.queue_of(["s1"]) == trail.queue_of(["other", "s2"]) == "q"
    assert trail.queue_of(["other"]) is None
    trail.drained("another", None)
    assert len(trail) == 2
    trail.drained("q", None)
    assert len(trail) == 0


def test_or_until_only_younger_messages_are_left() -> None:
    trail = SessionTrail()
    trail.note(["old"], "q", 1_000)
    trail.note(["new"], "q", 500_000)
    trail.drained("q", 1_000 + CLOCK_SKEW_MS_MAX)
    assert trail.queue_of(["old"]) == "q"
    trail.drained("q", 1_001 + CLOCK_SKEW_MS_MAX)
    assert (trail.queue_of(["old"]), trail.queue_of(["new"])) == (None, "q")


def test_nobody_looks_too_often() -> None:
    trail = SessionTrail()
    assert trail.may_look("q", 0, 1_000)
    assert not trail.may_look("q", 999, 1_000)
    assert trail.may_look("other", 999, 1_000)
    assert trail.may_look("q", 1_000, 1_000)
