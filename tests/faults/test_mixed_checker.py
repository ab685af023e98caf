"""The checker of the mixed run fails on every planted fault, and only on those."""

from __future__ import annotations

import pytest
from mixed_checker import Did, Entry, check


def sent(name: str, place: str = "q", size: int = 100) -> list[Entry]:
    return [Entry(Did.SENT, place, name, size), Entry(Did.ACCEPTED, place, name)]


# A log with one message for every allowed end.
GOOD = [
    *sent("left"),
    *sent("done"),
    Entry(Did.RECEIVED, "q", "done", 0),
    Entry(Did.COMPLETING, "q", "done"),
    Entry(Did.COMPLETED, "q", "done"),
    *sent("dead"),
    Entry(Did.BURYING, "q", "dead"),
    Entry(Did.BURIED, "q", "dead"),
    *sent("taken"),
    Entry(Did.TAKEN, "q", "taken", 0),
    *sent("twice"),
    Entry(Did.TAKEN, "q", "twice", 0),
    *sent("settling"),
    Entry(Did.RECEIVED, "q", "settling", 0),
    Entry(Did.COMPLETING, "q", "settling"),
    Entry(Did.SENT, "q", "unanswered", 100),
    *sent("flipped"),
    *sent("gone", "c"),
    Entry(Did.SENT, "c", "between", 100),
    Entry(Did.DELETING, "c"),
    Entry(Did.DELETED, "c"),
    Entry(Did.ACCEPTED, "c", "between"),
    *sent("glimpsed", "v"),
    *sent("unread", "v"),
    Entry(Did.GLIMPSED, "v", "glimpsed"),
    Entry(Did.VANISHED, "v", "", 150),
    Entry(Did.KILLED),
    Entry(Did.DAMAGED, "q", "flipped"),
    # The kill came before its removal was on disk.
    Entry(Did.TAKEN, "q", "twice", 1),
    Entry(Did.FOUND, "q", "left", 1),
    Entry(Did.FOUND_DEAD, "q", "dead", 1),
]


def test_a_good_log_is_good() -> None:
    report = check(GOOD)
    assert report.good, report
    assert (report.accepted, report.completed, report.taken, report.left) == (11, 1, 3, 2)
    assert (report.deleted, report.damaged, report.in_doubt, report.unread, report.kills) == (2, 1, 1, 1, 1)
    assert "LOST 0, RESURRECTED 0, UNEXPECTED 0, FAULTS 0" in str(report)
    assert report.to_json()["good"] is True


def transaction(settled: str, out: str, number: int) -> list[Entry]:
    """A transaction that completes one message and sends another, and to which nobody answered."""
    return [
        *sent(settled),
        Entry(Did.RECEIVED, "q", settled, 0),
        Entry(Did.COMPLETING, "q", settled),
        Entry(Did.BOUND, "q", settled, number),
        Entry(Did.SENT, "q", out, 100),
        Entry(Did.BOUND, "q", out, number),
    ]


@pytest.mark.parametrize(("found", "good"), [(["out"], True), (["in"], True), ([], False), (["in", "out"], False)])
def test_a_transaction_without_an_answer_is_done_or_not(found: list[str], good: bool) -> None:
    seen = [Entry(Did.FOUND, "q", name, 1) for name in found]
    report = check([*transaction("in", "out", 7), Entry(Did.KILLED), *seen])
    assert report.good is good, report
    assert (report.lost == ["in"]) is (not found)
    assert (report.faults == ["torn transaction 7"]) is (len(found) == 2)


def test_what_a_transaction_that_was_rolled_back_sent_is_torn() -> None:
    rolled_back = [*transaction("in", "out", 7), Entry(Did.ROLLED_BACK, "q", "", 7)]
    assert check([*rolled_back, Entry(Did.FOUND, "q", "in", 0)]).good
    assert check([*rolled_back, Entry(Did.FOUND, "q", "out", 0)]).faults == ["torn transaction 7"]


@pytest.mark.parametrize(
    ("planted", "kind", "name"),
    [
        pytest.param(sent("x"), "lost", "x", id="accepted message vanished"),
        pytest.param([*sent("x"), Entry(Did.BURYING, "q", "x"), Entry(Did.BURIED, "q", "x")], "lost", "x", id="buried"),
        pytest.param(sent("x", "c"), "lost", "x", id="sent after the deletion"),
        pytest.param(sent("x", "v", 51), "lost", "x", id="more than the sockets held"),
        pytest.param([Entry(Did.FOUND, "q", "done", 1)], "resurrected", "done", id="completed message found"),
        pytest.param([Entry(Did.RECEIVED, "q", "dead", 1)], "resurrected", "dead", id="buried message delivered"),
        pytest.param([Entry(Did.FOUND, "q", "twice", 1)], "resurrected", "twice", id="taken message, no kill since"),
        pytest.param([Entry(Did.FOUND, "c", "gone", 1)], "resurrected", "gone", id="message of a deleted entity"),
        pytest.param([Entry(Did.FOUND, "q", "left", 1)], "unexpected", "left", id="message there twice"),
        pytest.param([Entry(Did.FOUND, "q", "ghost", 1)], "unexpected", "ghost", id="message nobody sent"),
        pytest.param([Entry(Did.BROKEN, "q", "done")], "faults", "broken q: done", id="body not whole"),
        pytest.param([Entry(Did.REFUSED, "q", "no")], "faults", "refused q: no", id="refusal"),
        pytest.param([Entry(Did.CUT, "q", "no")], "faults", "cut q: no", id="connection cut"),
    ],
)
def test_a_doctored_log_is_red(planted: list[Entry], kind: str, name: str) -> None:
    report = check([*GOOD, *planted])
    assert not report.good
    assert name in getattr(report, kind)
