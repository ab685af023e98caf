"""Judges a log of a client's operations and answers against what the broker holds at the end. Pure.

- Lost: an accepted message that is neither settled nor found.
- Resurrected: a message whose completion (or dead-lettering) was confirmed, and which came back.
- Unexpected: a message nobody sent, or one that exists twice.

What was under way when the broker died is in doubt: both outcomes are allowed.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field


class Did(enum.StrEnum):
    """One line of the log: something happened to one message."""

    SENT = "sent"  # handed to the socket
    ACCEPTED = "accepted"  # the broker confirmed it
    RECEIVED = "received"
    COMPLETING = "completing"  # settlement handed to the socket
    COMPLETED = "completed"  # the broker confirmed the completion
    BURYING = "burying"
    BURIED = "buried"  # the broker confirmed that it is dead-lettered
    FOUND = "found"  # in the queue at the end
    FOUND_DEAD = "found-dead"  # in the dead-letter queue at the end


@dataclass
class Life:
    """What is known of one message so far."""

    sent: bool = False
    accepted: bool = False
    received: int = 0
    # A settlement was sent and not yet answered.
    in_doubt: bool = False
    completed: bool = False
    buried: bool = False
    found: int = 0
    found_dead: int = 0
    came_back: bool = False


@dataclass
class Report:
    """The figures of one run."""

    sent: int = 0
    accepted: int = 0
    received: int = 0
    completed: int = 0
    buried: int = 0
    found: int = 0
    # Neither found nor confirmed, but a settlement or the send itself was under way: allowed.
    in_doubt: int = 0
    lost: list[str] = field(default_factory=list)
    resurrected: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not (self.lost or self.resurrected or self.unexpected)

    def __str__(self) -> str:
        return (
            f"sent {self.sent}, accepted {self.accepted}, received {self.received}, completed {self.completed}, "
            f"dead-lettered {self.buried}, found at the end {self.found}, in doubt {self.in_doubt}; "
            f"LOST {len(self.lost)}, RESURRECTED {len(self.resurrected)}, UNEXPECTED {len(self.unexpected)}"
        )


def check(log: Iterable[tuple[Did, str]]) -> Report:
    """Replay the log in order; one entry is (what, message id)."""
    lives: dict[str, Life] = {}
    for did, message in log:
        _note(lives.setdefault(message, Life()), did)
    report = Report()
    for message, life in lives.items():
        _judge(report, message, life)
    return report


def _note(life: Life, did: Did) -> None:
    match did:
        case Did.SENT:
            life.sent = True
        case Did.ACCEPTED:
            life.accepted = True
        case Did.RECEIVED:
            life.received += 1
            # It came again, so the settlement that was under way did not happen.
            life.in_doubt = False
            life.came_back |= life.completed or life.buried
        case Did.COMPLETING | Did.BURYING:
            life.in_doubt = True
        case Did.COMPLETED:
            life.completed, life.in_doubt = True, False
        case Did.BURIED:
            life.buried, life.in_doubt = True, False
        case Did.FOUND:
            life.found += 1
            life.came_back |= life.completed or life.buried
        case Did.FOUND_DEAD:
            life.found_dead += 1
            life.came_back |= life.completed


def _judge(report: Report, message: str, life: Life) -> None:
    report.sent += life.sent
    report.accepted += life.accepted
    report.received += life.received
    report.completed += life.completed
    report.buried += life.buried
    places = life.found + life.found_dead
    report.found += places
    if not life.sent or places > 1:
        report.unexpected.append(message)
    if life.came_back:
        report.resurrected.append(message)
    # Nobody receives from the dead-letter queue before the end, so a dead-lettered message must be found there.
    gone = places == 0 and not life.completed
    if gone and (life.buried or (life.accepted and not life.in_doubt)):
        report.lost.append(message)
    elif gone and life.sent:
        report.in_doubt += 1
