"""Judges the logs of one outage: the application's sends and answers, the syphon's work, the messages received. Pure.

- Lost: a send that returned, and was not received from the primary.
- Unexpected: received, but not sent like this: another id, body, property or entity.
- Repeated: received more than once. This is allowed once for each doubt about the send's outcome, and if the entity has
  no duplicate detection. "Undoubted" repeats exceed the doubts; "visible" ones should have been hidden by duplicate
  detection.
- Hung: a send that neither returned nor raised.
- Error: a send that raised. Every caller here has more time than the failover interval.

A doubt is an attempt without an answer: one of the application's, to the primary or to the backlog, or one of the
syphon's, which ends only when the backlog has confirmed the completion. A message that comes again with the same
sequence number is one message: its receiver was disconnected before it could complete it.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field


class Did(enum.StrEnum):
    """One line of a log: something happened to one message, or to an entity."""

    SENT = "sent"  # the application calls
    RETURNED = "returned"
    RAISED = "raised"
    TRIED = "tried"  # handed to the SDK, for the primary or for the backlog
    ANSWERED = "answered"  # the attempt was accepted
    CARRIED = "carried"  # handed to the primary by the syphon
    SETTLED = "settled"  # the backlog confirmed its completion
    RECEIVED = "received"  # from the primary; with its sequence number
    SPOILED = "spoiled"  # received, but not as it was sent
    FAILED_OVER = "failed-over"  # an entity
    FAILED_BACK = "failed-back"
    DIVERTED = "diverted"


Entry = tuple[Did, str, int]


@dataclass
class Life:
    """What is known about one message."""

    counts: Counter[Did] = field(default_factory=Counter)
    # Sequence numbers under which it was received.
    copies: set[int] = field(default_factory=set)

    @property
    def doubts(self) -> int:
        """How many additional copies are allowed."""
        counts = self.counts
        tries = counts[Did.TRIED] - counts[Did.ANSWERED]
        return max(tries, 0) + max(counts[Did.CARRIED] - counts[Did.SETTLED], 0)


@dataclass
class Report:
    """The figures of one outage."""

    sent: int = 0
    returned: int = 0
    received: int = 0
    # Sends with an unanswered attempt.
    in_doubt: int = 0
    failovers: int = 0
    failbacks: int = 0
    diverted: int = 0
    carried: int = 0
    lost: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    undoubted: list[str] = field(default_factory=list)
    visible: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    hung: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not (self.lost or self.unexpected or self.undoubted or self.visible or self.errors or self.hung)

    def __str__(self) -> str:
        return (
            f"sent {self.sent}, returned {self.returned}, received {self.received}, in doubt {self.in_doubt}, "
            f"failovers {self.failovers}, fail-backs {self.failbacks}, diverted {self.diverted}, "
            f"carried home {self.carried}; LOST {len(self.lost)}, UNEXPECTED {len(self.unexpected)}, "
            f"REPEATED {len(self.repeated)} (without doubt {len(self.undoubted)}, "
            f"in spite of duplicate detection {len(self.visible)}), ERRORS {len(self.errors)}, HUNG {len(self.hung)}"
        )


def check(log: Iterable[Entry], detecting: Iterable[str]) -> Report:
    """One entry is (what, message id or entity, sequence number or 0); ids begin with their entity and a slash.

    `detecting` are the entities that have duplicate detection.
    """
    report = Report()
    lives: dict[str, Life] = {}
    for did, name, number in log:
        match did:
            case Did.FAILED_OVER:
                report.failovers += 1
            case Did.FAILED_BACK:
                report.failbacks += 1
            case Did.DIVERTED:
                report.diverted += 1
            case _:
                life = lives.setdefault(name, Life())
                life.counts[did] += 1
                if did in (Did.RECEIVED, Did.SPOILED):
                    life.copies.add(number)
    hiding = frozenset(detecting)
    for name, life in lives.items():
        _judge(report, name, life, name.partition("/")[0] in hiding)
    return report


def _judge(report: Report, name: str, life: Life, detects: bool) -> None:
    counts = life.counts
    copies = len(life.copies)
    report.sent += counts[Did.SENT]
    report.returned += counts[Did.RETURNED]
    report.received += copies
    report.carried += counts[Did.CARRIED] > 0
    report.in_doubt += life.doubts > 0
    if counts[Did.RETURNED] and not counts[Did.RECEIVED]:
        report.lost.append(name)
    # A name is sent once: a second send under it would make every count here worthless.
    if counts[Did.SENT] != 1 or counts[Did.SPOILED]:
        report.unexpected.append(name)
    if counts[Did.RAISED]:
        report.errors.append(name)
    if counts[Did.SENT] and not (counts[Did.RETURNED] or counts[Did.RAISED]):
        report.hung.append(name)
    if copies > 1:
        report.repeated.append(name)
        if detects:
            report.visible.append(name)
        if copies - 1 > life.doubts:
            report.undoubted.append(name)
