"""The checker of the kill test fails on every planted fault, and only on those."""

from __future__ import annotations

import pytest
from kill_checker import Did, check

# A log with one message for every allowed end: left, completed, dead-lettered, and three in doubt.
GOOD = [
    *((Did.SENT, name) for name in ("left", "done", "dead", "unanswered", "settling", "back")),
    *((Did.ACCEPTED, name) for name in ("left", "done", "dead", "settling", "back")),
    *((Did.RECEIVED, name) for name in ("done", "dead", "settling", "back")),
    *((Did.COMPLETING, name) for name in ("done", "settling", "back")),
    (Did.BURYING, "dead"),
    (Did.COMPLETED, "done"),
    (Did.BURIED, "dead"),
    # Here the broker was killed and restarted without the settlement that it had not received.
    (Did.RECEIVED, "back"),
    (Did.FOUND, "left"),
    (Did.FOUND, "back"),
    (Did.FOUND_DEAD, "dead"),
]


def test_a_good_log_is_good() -> None:
    report = check(GOOD)
    assert report.good
    assert (report.sent, report.accepted, report.completed, report.buried, report.found) == (6, 5, 1, 1, 3)
    assert report.in_doubt == 2  # unanswered, settling


@pytest.mark.parametrize(
    ("planted", "removed", "lost", "resurrected", "unexpected"),
    [
        pytest.param([], [(Did.FOUND, "left")], ["left"], [], [], id="accepted message vanished"),
        pytest.param([], [(Did.FOUND, "back")], ["back"], [], [], id="received again and then vanished"),
        pytest.param([], [(Did.FOUND_DEAD, "dead")], ["dead"], [], [], id="dead-lettered message vanished"),
        pytest.param([(Did.FOUND, "done")], [], [], ["done"], [], id="completed message in the queue"),
        pytest.param([(Did.FOUND_DEAD, "done")], [], [], ["done"], [], id="completed message dead-lettered"),
        pytest.param([(Did.RECEIVED, "done")], [], [], ["done"], [], id="completed message delivered again"),
        pytest.param([(Did.RECEIVED, "dead")], [], [], ["dead"], [], id="dead-lettered message delivered again"),
        pytest.param(
            [(Did.FOUND, "dead")], [], [], ["dead"], ["dead"], id="dead-lettered message is in the queue as well"
        ),
        pytest.param([(Did.FOUND, "left")], [], [], [], ["left"], id="message there twice"),
        pytest.param([(Did.FOUND, "ghost")], [], [], [], ["ghost"], id="message nobody sent"),
        pytest.param([(Did.RECEIVED, "ghost")], [], [], [], ["ghost"], id="delivery nobody sent"),
    ],
)
def test_a_doctored_log_is_red(
    planted: list[tuple[Did, str]],
    removed: list[tuple[Did, str]],
    lost: list[str],
    resurrected: list[str],
    unexpected: list[str],
) -> None:
    report = check([entry for entry in GOOD if entry not in removed] + planted)
    assert not report.good
    assert (report.lost, report.resurrected, report.unexpected) == (lost, resurrected, unexpected)


def test_the_figures_are_told() -> None:
    assert "LOST 0, RESURRECTED 0, UNEXPECTED 0" in str(check(GOOD))
