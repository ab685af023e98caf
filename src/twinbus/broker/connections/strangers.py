"""Connections that have not put a token yet: how many there may be, and what a wrong key costs.

Rules:
- A stranger never keeps out somebody with a key: when there is one stranger too many, the oldest goes.
- One address cannot fill the places of all: past its own share, its oldest goes first.
- The right key is accepted at once, whatever came before it. The answer to a wrong one waits, the longer the more
  there were from that address, so that guessing is slow and nobody is locked out.
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
        # Places in all, and for one address.
        self._all_max = all_max
        self._address_max = address_max
        # Everybody, in the order of their coming.
        self._all: OrderedDict[Stranger, None] = OrderedDict()
        self._by_address: dict[str, OrderedDict[Stranger, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, stranger: Stranger) -> None:
        """Take one in, and let the oldest go where that is one too many."""
        neighbours = self._by_address.setdefault(stranger.address, OrderedDict())
        self._all[stranger] = None
        neighbours[stranger] = None
        if len(neighbours) > self._address_max:
            self._evict(next(iter(neighbours)))
        elif len(self._all) > self._all_max:
            self._evict(next(iter(self._all)))

    def remove(self, stranger: Stranger) -> None:
        """It has a token now, or it is gone; one that is not here is left alone."""
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
    """How long the answer to a wrong key waits, by address."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By address: how many there were lately, and when the last one came, on the steady clock; oldest first.
        self._seen: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def pause_ms(self, address: str) -> int:
        """Note a wrong key, and say how long its answer has to wait."""
        now_ms = self._clock.steady_ms()
        count, at_ms = self._seen.pop(address, (0, now_ms))
        # A quiet while takes away as many as would have come in it.
        count = max(count - (now_ms - at_ms) // WRONG_KEY_MEMORY_MS, 0) + 1
        if len(self._seen) >= WRONG_KEY_ADDRESSES_MAX:
            self._seen.popitem(last=False)
        self._seen[address] = (count, now_ms)
        return min(count * WRONG_KEY_PAUSE_MS, WRONG_KEY_PAUSE_MS_MAX)
