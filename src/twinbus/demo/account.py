"""The demo's account: what was sent, what was received, and whether the two agree.

Rules:
- A message counts as sent once its send has returned, not before.
- Each place a message must arrive at (a queue, every subscription of a topic) is counted separately.
- Pure: ids in, numbers out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Balance:
    """The figures of one place. `repeated` counts redeliveries; `unexpected` counts ids whose send did not return."""

    sent: int
    received: int
    repeated: int
    lost: int
    unexpected: int


class MessageAccount:
    """Records which messages were sent and which were received."""

    def __init__(self, places: Mapping[str, Iterable[str]]) -> None:
        # Entity -> the places where its messages must arrive.
        self._places = {entity: tuple(found) for entity, found in places.items()}
        # Entity -> ids whose send has returned.
        self._sent: dict[str, set[str]] = {entity: set() for entity in self._places}
        # Place -> how often each id was received.
        self._received: dict[str, Counter[str]] = {p: Counter() for found in self._places.values() for p in found}
        # Sends that raised; their messages may or may not arrive.
        self.raised = 0

    def sent(self, entity: str, message_id: str) -> None:
        self._sent[entity].add(message_id)

    def received(self, place: str, message_id: str) -> None:
        self._received[place][message_id] += 1

    def sent_count(self, entity: str) -> int:
        return len(self._sent[entity])

    def received_count(self, place: str) -> int:
        """Return the number of distinct messages received there."""
        return len(self._received[place])

    def balance(self, place: str) -> Balance:
        (entity,) = (entity for entity, found in self._places.items() if place in found)
        sent, received = self._sent[entity], self._received[place]
        return Balance(
            sent=len(sent),
            received=len(received),
            repeated=received.total() - len(received),
            lost=len(sent - received.keys()),
            unexpected=len(received.keys() - sent),
        )

    def balances(self) -> dict[str, Balance]:
        return {place: self.balance(place) for place in self._received}

    @property
    def lost(self) -> int:
        return sum(each.lost for each in self.balances().values())

    @property
    def share(self) -> float | None:
        """The share of expected messages that has been received, from 0 to 1; None before anything was sent."""
        wanted = sum(len(self._sent[entity]) * len(found) for entity, found in self._places.items())
        missing = self.lost
        return None if not wanted else 1 - missing / wanted
