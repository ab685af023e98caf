"""Connections without a token: how many are allowed, and how wrong keys are slowed down.

- A stranger never keeps out a client with a key: when there is one stranger too many, the oldest is dropped.
- One address cannot take all places: beyond its own share, its own oldest is dropped.
- A right key is accepted at once, whatever came before. The answer to a wrong key is delayed, longer with each one from
  the same address, so guessing is slow and nobody is locked out.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Protocol

from twinbus.clock import Clock
from twinbus.limits import (
    STRANGERS_MAX,
    STRANGERS_PER_ADDRESS_MAX,
    WRONG_KEY_ADDRESSES_MAX,
    WRONG_KEY_MEMORY_MS,
    WRONG_KEY_PAUSE_MS,
    WRONG_KEY_PAUSE_MS_MAX,
)

logger = logging.getLogger(__name__)


class Stranger(Protocol):
    """A connection without a token."""

    @property
    def address(self) -> str: ...

    def evict(self) -> None: ...


class Strangers:
    """The strangers of one namespace, oldest first."""

    def __init__(self, all_max: int = STRANGERS_MAX, address_max: int = STRANGERS_PER_ADDRESS_MAX) -> None:
        # The maximum overall and per address.
        self._all_max = all_max
        self._address_max = address_max
        # In order of arrival.
        self._all: OrderedDict[Stranger, None] = OrderedDict()
        self._by_address: dict[str, OrderedDict[Stranger, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, stranger: Stranger) -> None:
        """Add a stranger; drop the oldest if there is one too many."""
        neighbours = self._by_address.setdefault(stranger.address, OrderedDict())
        self._all[stranger] = None
        neighbours[stranger] = None
        if len(neighbours) > self._address_max:
            self._evict(next(iter(neighbours)))
        elif len(self._all) > self._all_max:
            self._evict(next(iter(self._all)))

    def remove(self, stranger: Stranger) -> None:
        """Remove a stranger that has a token now or is gone; does nothing if it is not here."""
        if stranger not in self._all:
            return
        del self._all[stranger]
        neighbours = self._by_address[stranger.address]
        del neighbours[stranger]
        if not neighbours:
            del self._by_address[stranger.address]

    def _evict(self, stranger: Stranger) -> None:
        self.remove(stranger)
        stranger.evict()


class WrongKeys:
    """How long the answer to a wrong key is delayed, by address."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By address: the recent count, and the steady time of the last one; oldest first.
        self._seen: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def pause_ms(self, address: str) -> int:
        """Record a wrong key and return how long to delay the answer."""
        now_ms = self._clock.steady_ms()
        count, at_ms = self._seen.pop(address, (0, now_ms))
        # Each quiet interval forgives one wrong key.
        count = max(count - (now_ms - at_ms) // WRONG_KEY_MEMORY_MS, 0) + 1
        if len(self._seen) >= WRONG_KEY_ADDRESSES_MAX:
            self._seen.popitem(last=False)
        self._seen[address] = (count, now_ms)
        return min(count * WRONG_KEY_PAUSE_MS, WRONG_KEY_PAUSE_MS_MAX)
