"""Judges what readers and senders of every kind did against what the broker holds at the end. Pure.

Each accepted message is received, or left, or was in an entity when that was deleted, or was damaged on purpose. Also:

- Receive-and-delete has no answer. A reader that reads to the end loses nothing, over AMQP and over HTTP, but its last
  messages may come again after a kill or a stop. A reader that vanishes may lose as many bytes as its socket held.
- What was sent or settled when the broker died is in doubt: both outcomes are allowed.
- A transaction's messages are sent and settled all or none. If the broker died before it answered, what it sent tells
  whether it was done: if nothing of that is there, nothing that it settled may be missing.
- A refusal, a needless disconnection and an incomplete body are faults, whatever became of the message.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple


class Did(enum.StrEnum):
    """What happened to a message or to an entity."""

    SENT = "sent"  # handed to the socket
    ACCEPTED = "accepted"  # the broker confirmed it
    RECEIVED = "received"  # under a lock
    COMPLETING = "completing"
    COMPLETED = "completed"  # the broker confirmed the completion
    BURYING = "burying"
    BURIED = "buried"  # the broker confirmed that it is dead-lettered
    TAKEN = "taken"  # received and deleted
    GLIMPSED = "glimpsed"  # received and deleted by a reader that vanished
    FOUND = "found"  # in the entity at the end
    FOUND_DEAD = "found-dead"  # in the dead-letter queue at the end
    DAMAGED = "damaged"  # a bit of its body was flipped on disk
    BOUND = "bound"  # settled or sent in the transaction whose number is `amount`
    ROLLED_BACK = "rolled-back"  # the transaction whose number is `amount`
    # Happened to an entity.
    VANISHED = "vanished"  # a reader left with up to `amount` bytes unread
    DELETING = "deleting"
    DELETED = "deleted"
    # Happened to the broker.
    KILLED = "killed"
    STOPPED = "stopped"  # by SIGTERM
    # Faults, described in words.
    BROKEN = "broken"  # a body that is not what was sent
    REFUSED = "refused"
    CUT = "cut"


FAULTS = (Did.BROKEN, Did.REFUSED, Did.CUT)
OF_ALL = (Did.KILLED, Did.STOPPED)
OF_PLACES = (Did.DELETING, Did.DELETED)
HISTORIES_MAX = 5


class Entry(NamedTuple):
    """One line of the log."""

    did: Did
    # The path of an entity.
    place: str = ""
    # The message's name, or the description of a fault.
    name: str = ""
    # For a message sent or unread, its bytes; for one received, how many times the broker had ended before.
    amount: int = 0


@dataclass
class Fate:
    """What is known of one message so far."""

    place: str = ""
    sent_at: int = -1
    accepted_at: int = -1
    # In which run of the broker it was received and deleted.
    taken_in: int = -1
    size: int = 0
    received: int = 0
    in_doubt: bool = False
    completed: bool = False
    buried: bool = False
    glimpsed: bool = False
    damaged: bool = False
    found: int = 0
    found_dead: int = 0
    came_back: bool = False
    # The number of the last transaction that settled it, or of the one that sent it; 0 for none.
    settled_in: int = 0
    sent_in: int = 0


@dataclass
class MixedReport:
    """The figures of one run."""

    accepted: int = 0
    received: int = 0
    completed: int = 0
    taken: int = 0
    buried: int = 0
    left: int = 0
    deleted: int = 0
    damaged: int = 0
    in_doubt: int = 0
    # Unread by readers that vanished: allowed, up to what their sockets held.
    unread: int = 0
    kills: int = 0
    stops: int = 0
    # Transactions of which it is known whether they were done.
    transactions: int = 0
    lost: list[str] = field(default_factory=list)
    resurrected: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    # What happened to the first messages of the lists, with the deaths of the broker in between.
    histories: dict[str, str] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        return not (self.lost or self.resurrected or self.unexpected or self.faults)

    def to_json(self) -> dict[str, Any]:
        return {"good": self.good, **asdict(self)}

    def __str__(self) -> str:
        return (
            f"accepted {self.accepted} = completed {self.completed} + taken {self.taken} + left {self.left} + deleted "
            f"with their entity {self.deleted} + damaged {self.damaged} + in doubt {self.in_doubt} + unread "
            f"{self.unread}; "
            f"deliveries {self.received}, dead-lettered {self.buried}, kills {self.kills}, "
            f"stops {self.stops}, transactions {self.transactions}; LOST {len(self.lost)}, "
            f"RESURRECTED {len(self.resurrected)}, UNEXPECTED {len(self.unexpected)}, FAULTS {len(self.faults)}"
        )


class Replay:
    """The log so far."""

    def __init__(self) -> None:
        self.fates: dict[str, Fate] = {}
        # By entity: when each deletion began and ended.
        self.deletions: dict[str, list[tuple[int, int]]] = {}
        self._deleting: dict[str, int] = {}
        # By entity: the bytes that readers may have lost when they vanished.
        self.unread_bytes: dict[str, int] = {}
        self.report = MixedReport()
        # Transactions of which something was done, and of which something was not.
        self._done: set[int] = set()
        self._undone: set[int] = set()

    def note(self, at: int, entry: Entry) -> None:
        did, place, name, amount = entry
        match did:
            case Did.KILLED:
                self.report.kills += 1
            case Did.STOPPED:
                self.report.stops += 1
            case Did.VANISHED:
                self.unread_bytes[place] = self.unread_bytes.get(place, 0) + amount
            case Did.DELETING:
                self._deleting[place] = at
            case Did.DELETED:
                self.deletions.setdefault(place, []).append((self._deleting.pop(place), at))
            case Did.ROLLED_BACK:
                self._undone.add(amount)
            case Did.BROKEN | Did.REFUSED | Did.CUT:
                self.report.faults.append(f"{did} {place}: {name}")
            case _:
                fate = self.fates.setdefault(name, Fate())
                self._note(fate, at, entry)

    def _note(self, fate: Fate, at: int, entry: Entry) -> None:
        match entry.did:
            case Did.SENT:
                fate.place, fate.size = entry.place, entry.amount
                fate.sent_at = at if fate.sent_at < 0 else fate.sent_at
            case Did.ACCEPTED:
                fate.accepted_at = at if fate.accepted_at < 0 else fate.accepted_at
            case Did.DAMAGED:
                fate.damaged = True
            case Did.BOUND:
                if fate.in_doubt:
                    fate.settled_in = entry.amount
                else:
                    fate.sent_in = entry.amount
            case Did.COMPLETING | Did.BURYING:
                fate.in_doubt, fate.settled_in = True, 0
            case Did.COMPLETED:
                fate.completed, fate.in_doubt = True, False
            case Did.BURIED:
                fate.buried, fate.in_doubt = True, False
            case Did.FOUND_DEAD:
                fate.found_dead += 1
                fate.came_back |= fate.completed or self._taken_for_good(fate)
            case _:
                fate.came_back |= fate.completed or fate.buried or self._taken_for_good(fate)
                fate.in_doubt = False
                self._note_transactions(fate)
                if entry.did is Did.RECEIVED:
                    fate.received += 1
                elif entry.did is Did.TAKEN:
                    fate.taken_in = entry.amount
                elif entry.did is Did.GLIMPSED:
                    fate.glimpsed = True
                else:
                    fate.found += 1

    def _note_transactions(self, fate: Fate) -> None:
        """A message arrived: what sent it was done, what settled it was not."""
        if fate.sent_in:
            self._done.add(fate.sent_in)
        if fate.settled_in:
            self._undone.add(fate.settled_in)
            fate.settled_in = 0

    def _taken_for_good(self, fate: Fate) -> bool:
        """Only within one run of the broker: across its end, the messages written last may be delivered once more."""
        return fate.taken_in == self.report.kills + self.report.stops

    def judge(self) -> MixedReport:
        self.report.transactions = len(self._done | self._undone)
        self.report.faults += [f"torn transaction {number}" for number in sorted(self._done & self._undone)]
        missing: dict[str, list[tuple[str, Fate]]] = {}
        for name, fate in self.fates.items():
            if self._count(name, fate):
                missing.setdefault(fate.place, []).append((name, fate))
        for place, some in missing.items():
            size = sum(fate.size for _, fate in some)
            if size <= self.unread_bytes.get(place, 0):
                self.report.unread += len(some)
            else:
                self.report.lost += [name for name, _ in some]
        return self.report

    def _count(self, name: str, fate: Fate) -> bool:
        """Add one message to the report; returns True if nobody knows where it is."""
        report = self.report
        places = fate.found + fate.found_dead
        report.received += fate.received
        report.buried += fate.buried
        if fate.sent_at < 0 or places > 1:
            report.unexpected.append(name)
        over = any(began > fate.accepted_at >= 0 for began, _ in self.deletions.get(fate.place, ()))
        if fate.came_back or (places and over):
            report.resurrected.append(name)
        if fate.accepted_at < 0:
            return False
        report.accepted += 1
        if fate.completed:
            report.completed += 1
        elif fate.taken_in >= 0 and not places:
            report.taken += 1
        elif places:
            report.left += 1
        elif any(ended > fate.sent_at for _, ended in self.deletions.get(fate.place, ())):
            report.deleted += 1
        elif fate.damaged:
            report.damaged += 1
        elif fate.glimpsed:
            report.taken += 1
        elif fate.in_doubt and not fate.buried and (not fate.settled_in or fate.settled_in in self._done):
            report.in_doubt += 1
        else:
            return True
        return False


def check(log: Iterable[Entry]) -> MixedReport:
    """Replay the log in order."""
    replay = Replay()
    entries = list(log)
    for at, entry in enumerate(entries):
        replay.note(at, entry)
    report = replay.judge()
    for name in [*report.lost, *report.resurrected, *report.unexpected][:HISTORIES_MAX]:
        place = replay.fates[name].place
        told = [
            f"{at} {entry.did} {entry.amount or ''}".strip()
            for at, entry in enumerate(entries)
            if entry.name == name or entry.did in OF_ALL or (entry.place == place and entry.did in OF_PLACES)
        ]
        report.histories[name] = ", ".join(told)
    return report
