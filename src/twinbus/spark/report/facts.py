"""The content of a report as plain data, for both the page and the terminal.

Times are seconds since 1970 in UTC. Every tuple is bounded, whatever the size of the tables.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

from twinbus.spark.report.period import Period

NOTHING = Decimal(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Operations and their cost: on the bill, and at list price."""

    count: int = 0
    units: int = 0
    amount: Decimal = NOTHING
    list_amount: Decimal = NOTHING

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            count=self.count + other.count,
            units=self.units + other.units,
            amount=self.amount + other.amount,
            list_amount=self.list_amount + other.list_amount,
        )

    def __sub__(self, other: Cost) -> Cost:
        return Cost(
            count=self.count - other.count,
            units=self.units - other.units,
            amount=self.amount - other.amount,
            list_amount=self.list_amount - other.list_amount,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityCost:
    """An entity's operations; `stages` are its units by stage. The remaining entities are summed under an empty
    name."""

    namespace: str
    entity: str
    cost: Cost
    stages: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DayCost:
    """Units by stage of one day, or of the days from `start_s` on."""

    start_s: int
    stages: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One entity's failover. `ended_s` is None while it lasts."""

    namespace: str
    entity: str
    started_s: float
    ended_s: float | None
    target: str
    cause: str
    diverted: int
    syphoned: int
    dead_lettered: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageSummary:
    """Overlapping episodes, and what they caused until the next outage."""

    started_s: float
    ended_s: float | None
    entities: int
    episodes: int
    diverted: int
    syphoned: int
    dead_lettered: int
    operations: dict[str, int]
    units: int
    list_amount: Decimal
    # The longest time a message took through the backlog; None if none came through.
    longest_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationSeries:
    """Operations in each piece of the period by stage, and the totals of all and of billed ones."""

    stages: dict[str, tuple[int, ...]]
    totals: dict[str, int] = field(default_factory=dict)
    billed: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogSeries:
    """The backlog in each piece of the period; None if it was not measured."""

    depth: tuple[int | None, ...]
    fullest: tuple[int | None, ...]
    depth_bytes: tuple[int | None, ...]
    oldest_ms: tuple[int | None, ...]
    dead: tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePeak:
    """The peak of one backlog queue."""

    namespace: str
    queue: str
    depth: int
    depth_bytes: int
    oldest_ms: int
    dead: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySummary:
    """Times through the backlog. `buckets` follow LATENCY_BOUNDS_MS; an empty entity stands for all."""

    namespace: str
    entity: str
    count: int
    sum_ms: int
    max_ms: int
    buckets: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostReport:
    """A complete report."""

    # None if the tables are empty.
    period: Period | None
    namespace: str | None
    sheet: str
    currency: str
    # The first few namespaces, and how many there are.
    namespaces: tuple[str, ...] = ()
    namespaces_count: int = 0
    stages: dict[str, Cost] = field(default_factory=dict)
    days: tuple[DayCost, ...] = ()
    days_width: int = 1
    entities: tuple[EntityCost, ...] = ()
    entities_count: int = 0
    others: EntityCost | None = None
    outages: tuple[OutageSummary, ...] = ()
    outages_count: int = 0
    # Time with at least one entity failed over, over all outages.
    failed_over_s: float = 0.0
    episodes: tuple[Episode, ...] = ()
    episodes_count: int = 0
    episodes_entities: int = 0
    # Messages accepted, directly or into the backlog, and deliveries to receivers.
    sent: int = 0
    received: int = 0
    diverted: int = 0
    syphoned: int = 0
    dead_lettered: int = 0
    operations: OperationSeries | None = None
    backlog: BacklogSeries | None = None
    queues: tuple[QueuePeak, ...] = ()
    queues_count: int = 0
    latency: LatencySummary | None = None
    latencies: tuple[LatencySummary, ...] = ()
    latencies_count: int = 0
    quarantined: int = 0

    @property
    def repeated(self) -> int:
        """Messages that were syphoned beyond those recorded as diverted: repeats, or sends that got no answer."""
        return max(self.syphoned + self.dead_lettered - self.diverted, 0)

    @property
    def missing(self) -> int:
        """Diverted messages without a further record: still in the backlog, or lost."""
        return max(self.diverted - self.syphoned - self.dead_lettered, 0)

    @property
    def cost(self) -> Cost:
        """The total cost."""
        return sum(self.stages.values(), Cost())
