from __future__ import annotations

from twinbus.spelling import did_you_mean, nearest


def test_the_nearest_name_has_its_own_case() -> None:
    assert nearest("lockduratoin", ["LockDuration", "Status"]) == "LockDuration"
    assert nearest("zzz", ["LockDuration", "Status"]) is None
    assert nearest("zzz", ["LockDuration", "Status"], 0.0) in ("LockDuration", "Status")
    assert nearest("a", []) is None


def test_the_question_behind_an_error() -> None:
    assert did_you_mean("statsu", ["status"]) == " Did you mean 'status'?"
    assert did_you_mean("x", ["status"]) == ""
    assert did_you_mean("x", ["status"], "There is status.") == " There is status."
