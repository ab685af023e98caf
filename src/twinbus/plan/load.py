"""The input of a plan: who sends how much, how long the primary is down, and the settings of the pair.

Rules:
- Every client has the same senders, which serve the entities in turn; an entity without a sender is never pinged.
- All messages have the same size, and all senders the same rate unless `skew` says otherwise.
- A value out of range is a ConfigError with the value and the range.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from twinbus.errors import ConfigError
from twinbus.ledger.records import units_of
from twinbus.limits import (
    BACKLOG_QUEUE_MEGABYTES,
    BACKLOG_QUEUES_DEFAULT,
    FAILOVER_INTERVAL_S_DEFAULT,
    FAILOVER_INTERVAL_S_MAX,
    MESSAGE_BYTES_MAX,
    PING_INTERVAL_S_DEFAULT,
    PING_INTERVAL_S_MAX,
    PING_INTERVAL_S_MIN,
    PLAN_COUNT_MAX,
    PLAN_ENVELOPE_BYTES,
    PLAN_OUTAGE_S_MAX,
    PLAN_RATE_MAX,
    SYPHON_DRAIN_RATE,
)

_SKEW_MAX: Final = 3.0
_MEGABYTE: Final = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Load:
    """The load. `senders` is per client; `rate` is messages per second across all clients."""

    clients: int = 1
    senders: int = 1
    entities: int = 1
    rate: float = 100.0
    size_bytes: int = 1_024
    outage_s: float = 600.0
    queues: int = BACKLOG_QUEUES_DEFAULT
    failover_interval_s: float = FAILOVER_INTERVAL_S_DEFAULT
    ping_interval_s: float = PING_INTERVAL_S_DEFAULT
    drain_rate: float = SYPHON_DRAIN_RATE
    syphons: int = 1
    # The n-th sender sends n^-skew times what the first sends (Zipf's law); 0 for equal senders.
    skew: float = 0.0

    def __post_init__(self) -> None:
        for name in ("clients", "senders", "entities", "queues", "syphons"):
            self._check(name, 1, PLAN_COUNT_MAX)
        if self.clients * self.senders > PLAN_COUNT_MAX:
            raise ConfigError(f"{self.clients * self.senders:,} senders are too many: at most {PLAN_COUNT_MAX:,}.")
        self._check("rate", 0, PLAN_RATE_MAX)
        self._check("size_bytes", 0, MESSAGE_BYTES_MAX)
        self._check("outage_s", 0, PLAN_OUTAGE_S_MAX)
        self._check("failover_interval_s", 0, FAILOVER_INTERVAL_S_MAX)
        self._check("ping_interval_s", PING_INTERVAL_S_MIN, PING_INTERVAL_S_MAX)
        self._check("skew", 0, _SKEW_MAX)
        if not 0 < self.drain_rate <= PLAN_RATE_MAX:
            raise ConfigError(f"drain_rate is {self.drain_rate!r}: it must be above 0, at most {PLAN_RATE_MAX:g}.")

    def _check(self, name: str, least: float, most: float) -> None:
        value = getattr(self, name)
        if not math.isfinite(value) or not least <= value <= most:
            raise ConfigError(f"{name} is {value!r}: it must be from {least:,g} to {most:,.15g}.")

    @cached_property
    def writers(self) -> int:
        """Senders across all clients."""
        return self.clients * self.senders

    @cached_property
    def pinged(self) -> int:
        """Ping tasks while everything is failed over: one per entity and client."""
        return self.clients * min(self.senders, self.entities)

    @cached_property
    def units(self) -> int:
        """Units of one operation on a message."""
        return units_of(self.size_bytes)

    @cached_property
    def backlog_bytes(self) -> int:
        """Size of a message in the backlog."""
        return self.size_bytes + PLAN_ENVELOPE_BYTES

    @property
    def queue_bytes_max(self) -> int:
        """Capacity of a backlog queue."""
        return BACKLOG_QUEUE_MEGABYTES * _MEGABYTE

    @cached_property
    def equals(self) -> float:
        """The number of equal senders with the same variance."""
        return 1 / math.fsum(weight * weight for weight in self.weights()) if self.skew else float(self.writers)

    def weights(self) -> list[float]:
        """Return each sender's share of the messages."""
        raw = [float(number) ** -self.skew for number in range(1, self.writers + 1)]
        total = math.fsum(raw)
        return [each / total for each in raw]
