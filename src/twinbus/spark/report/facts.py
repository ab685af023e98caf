"""What a report says, as plain data: everything on the page and the terminal comes from here.

Times are seconds since 1970 in UTC. Every tuple is bounded, whatever the size of the tables.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

from twinbus.spark.report.period import Period

NOTHING = Decimal(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Operations and what they cost: on the bill, and at list price."""

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
    """An entity's operations; `stages` are their units by stage. The others are summed under an empty name."""

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
    """One entity's failover. `ended_s` is None while it goes on."""

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
    """Episodes that overlap, and what was done because of them until the next outage."""

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
    # The longest time that a message took through the backlog; None: none has come through.
    longest_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationSeries:
    """Operations of each piece of the period, by stage; of the whole period all of them, and those that are billed."""

    stages: dict[str, tuple[int, ...]]
    totals: dict[str, int] = field(default_factory=dict)
    billed: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogSeries:
    """The backlog in each piece of the period; None where nobody looked."""

    depth: tuple[int | None, ...]
    fullest: tuple[int | None, ...]
    depth_bytes: tuple[int | None, ...]
    oldest_ms: tuple[int | None, ...]
    dead: tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePeak:
    """The most that one backlog queue held."""

    namespace: str
    queue: str
    depth: int
    depth_bytes: int
    oldest_ms: int
    dead: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySummary:
    """Time through the backlog. `buckets` go by LATENCY_BOUNDS_MS; an empty entity stands for all."""

    namespace: str
    entity: str
    count: int
    sum_ms: int
    max_ms: int
    buckets: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostReport:
    """All of it."""

    # None: the tables hold nothing.
    period: Period | None
    namespace: str | None
    sheet: str
    currency: str
    # Names of namespaces, the first few, and how many there are.
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
    # Time with at least one entity failed over, of all outages.
    failed_over_s: float = 0.0
    episodes: tuple[Episode, ...] = ()
    episodes_count: int = 0
    episodes_entities: int = 0
    # Messages that were accepted, directly or into the backlog, and deliveries to receivers.
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
        """Messages that came home beyond those told as diverted: repeats, or sends that got no answer."""
        return max(self.syphoned + self.dead_lettered - self.diverted, 0)

    @property
    def missing(self) -> int:
        """Diverted messages of which nothing more is told: in the backlog still, or lost."""
        return max(self.diverted - self.syphoned - self.dead_lettered, 0)

    @property
    def cost(self) -> Cost:
        """Of everything."""
        return sum(self.stages.values(), Cost())
