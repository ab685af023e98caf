"""Whose backlog a queue holds: the name of a primary, its identity, and the mark that a new backlog queue carries.

- An address is not an identity: two sites may both call their primary `localhost:5672`. A Twinbus namespace has an
  identity of its own, Azure's is its host name. The mark in a queue's user metadata remembers it.
- A queue without a mark belongs to the primary of its name, as it always did. One that was named after a guess has no
  home until the operator says whose it is.
- A marked queue belongs to the primary with that identity, whatever the queue's name, and to nobody else.

Pure: what the primary said comes in, decisions go out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final, NamedTuple

from twinbus.ledger.words import BACKLOG_MARK, HOME_MARK
from twinbus.paired.options import NamespaceAddress, backlog_names, check_name

_QUEUE = re.compile(rf"(?P<primary>.+){re.escape(BACKLOG_MARK)}(?P<index>\d+)", re.IGNORECASE)
# As much of an identity as a name shows.
_SHOWN_CHARS: Final = 8


class NameSource(StrEnum):
    """Where the name of a primary comes from."""

    GIVEN = "given"
    HOST = "host"
    TOLD = "told"
    REMEMBERED = "remembered"
    GUESS = "guess"


class Relation(Enum):
    """Whose a backlog queue is, seen from one primary."""

    OWN = "this"
    OTHER = "another"
    # It was named after a guess, so it may be this primary's or another's.
    NONE = "none"
    # The primary has not said who it is.
    UNKNOWN = "unknown"


class NamespaceAnswer(NamedTuple):
    """What a namespace said about itself; None where it said nothing."""

    name: str | None = None
    identity: str | None = None


class HomeMark(NamedTuple):
    """The mark of a backlog queue: the primary's identity, its host if that identifies it, or the place of a guess."""

    identity: str | None = None
    host: str | None = None
    guess: str | None = None

    @classmethod
    def parse(cls, metadata: str | None) -> HomeMark | None:
        """The mark in a queue's user metadata; None if there is none, or it cannot be read."""
        if not metadata or not metadata.startswith(HOME_MARK):
            return None
        parts = dict(part.partition(":")[::2] for part in metadata.removeprefix(HOME_MARK).split(";"))
        mark = cls(parts.get("id") or None, parts.get("host") or None, parts.get("guess") or None)
        return mark if any(mark) else None

    def __str__(self) -> str:
        parts = {"id": self.identity, "host": self.host, "guess": self.guess}
        return HOME_MARK + ";".join(f"{name}:{value}" for name, value in parts.items() if value)


@dataclass(frozen=True, slots=True)
class Home:
    """A primary as its backlog queues know it.

    `identity` is what the namespace said, now or earlier; `host` is its host name if that identifies it. `answered`
    means that the primary has said who it is, or that its host name says so.
    """

    name: str
    address: NamespaceAddress
    source: NameSource
    identity: str | None = None
    answered: bool = False

    @property
    def host(self) -> str | None:
        return self.address.lasting_host

    @property
    def sure(self) -> bool:
        """Whether the name is more than a guess."""
        return self.source is not NameSource.GUESS

    @property
    def mark(self) -> str | None:
        """The user metadata of a new backlog queue; None if nothing but a name is known for sure."""
        if self.identity is not None or self.host is not None:
            return str(HomeMark(identity=self.identity, host=self.host))
        return None if self.sure else str(HomeMark(guess=self.address.place))

    @property
    def other_name(self) -> str:
        """The name to use where another primary has taken this one's."""
        return f"{self.name}-{self.identity[:_SHOWN_CHARS] if self.identity else 'unconfirmed'}"

    def names(self, count: int) -> list[str]:
        return backlog_names(self.name, count)

    def other_names(self, count: int) -> list[str]:
        return backlog_names(self.other_name, count)

    def guessed_names(self, count: int) -> list[str]:
        """The backlog queues of clients that never reached this primary at this address."""
        return backlog_names(self.address.plain_name, count)

    def relation(self, queue: str, metadata: str | None) -> Relation:
        """Whose this backlog queue is."""
        named = self._names(queue)
        undecided = Relation.OTHER if self.answered else Relation.UNKNOWN
        mark = HomeMark.parse(metadata)
        if mark is None:
            if self.sure and named:
                return Relation.OWN
            return Relation.NONE if prefix_of(queue) == self.address.plain_name.lower() else undecided
        if mark.guess is not None:
            return Relation.OWN if named and self.source is NameSource.GIVEN else Relation.NONE
        if mark.identity is not None and self.identity is not None:
            return Relation.OWN if mark.identity == self.identity else Relation.OTHER
        if mark.host is not None and mark.host == self.host and (named or self.identity is None):
            return Relation.OWN
        return undecided

    def may_fill(self, queue: str, metadata: str | None) -> bool:
        """Whether a client of this primary may send to an existing queue of its name."""
        mark = HomeMark.parse(metadata)
        if mark is None:
            return True
        if self.identity is None and mark.host in (None, self.host) and self.source is NameSource.GIVEN:
            # The operator said whose it is, and nobody has said anything else.
            return True
        if not self.sure:
            return mark.guess is not None
        return self.relation(queue, metadata) is Relation.OWN

    def _names(self, queue: str) -> bool:
        return prefix_of(queue) == self.name.lower()


def home_of(
    address: NamespaceAddress,
    *,
    given: str | None = None,
    told: NamespaceAnswer | None = None,
    remembered: NamespaceAnswer | None = None,
) -> Home:
    """Put together what is known about a primary. `told` is None if it did not answer."""
    known = told if told is not None and told.identity is not None else NamespaceAnswer()
    if told is None and remembered is not None:
        known = remembered
    told_name = None if told is None else told.name
    for name, source in (
        (given, NameSource.GIVEN),
        (address.label, NameSource.HOST),
        (told_name, NameSource.TOLD),
        (known.name, NameSource.REMEMBERED),
        (remembered.name if remembered is not None else None, NameSource.REMEMBERED),
    ):
        if name is not None:
            return Home(
                name if source is not NameSource.GIVEN else check_name(name),
                address,
                source,
                known.identity,
                told is not None or address.azure,
            )
    return Home(address.plain_name, address, NameSource.GUESS, known.identity, told is not None)


def prefix_of(queue: str) -> str:
    """The primary in a backlog queue's name, in lower case; empty for another queue."""
    found = _QUEUE.fullmatch(queue)
    return "" if found is None else found["primary"].lower()
