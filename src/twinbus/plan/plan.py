"""The plan: a load and its outage, computed, with warnings.

Rules:
- The fullest queue decides when a limit is reached, so the plan is based on it, not on the average.
- A warning states a number and what can be done.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from twinbus.ledger.prices import Sheet
from twinbus.plan import chance
from twinbus.plan.bill import Bill, bill_of
from twinbus.plan.load import Load
from twinbus.plan.outage import DAY_S, HOUR_S, MONTH_DAYS, Outage, idle_polls, outage_of
from twinbus.plan.wording import plural, span

# The level called safe: the fullest queue stays within it 19 times out of 20.
SAFE: Final = 0.95
_QUEUES_MAX: Final = 10_000
_ALTERNATIVES: Final = (1, 2, 5, 10, 20, 50, 100)


@dataclass(frozen=True, slots=True)
class Spread:
    """The random spread of senders over the queues. Shares are of all messages; `even` is a queue's share if all are
    equal.

    `writers` is the number of senders; for unequal senders, the number of equal ones with the same variance.
    """

    queues: int
    writers: int
    even: float
    share: float
    share_95: float
    share_99: float
    deviation: float
    empty: float
    exact: bool
    probabilities: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Fill:
    """How full the fullest queue gets: messages, bytes, and when it reaches the limit, from the start of the outage."""

    messages: int
    messages_95: int
    size_bytes: int
    size_bytes_95: int
    full_s: float
    full_95_s: float
    # When all queues together are full.
    all_full_s: float


@dataclass(frozen=True, slots=True)
class Plan:
    load: Load
    outage: Outage
    spread: Spread
    fill: Fill
    bill: Bill
    # Time to drain the fullest queue if each queue gets only its share of the drain rate.
    drain_uneven_s: float
    # The fewest queues that hold this backlog at all, if senders move on from full queues.
    queues_least: int
    # The fewest queues of which even the fullest stays safely below its limit; None if no number is enough.
    queues_needed: int | None
    alternatives: tuple[tuple[Spread, Fill], ...]
    polls_hour: float
    polls_day: float
    polls_month: float
    warnings: tuple[str, ...]


def plan_of(load: Load, sheet: Sheet, used: int = 0) -> Plan:
    """Compute the plan."""
    course = outage_of(load)
    spread = spread_of(load, load.queues)
    fill = fill_of(load, course, spread)
    others = sorted({*_ALTERNATIVES, load.queues})
    spreads = [spread_of(load, queues) for queues in others]
    needed = _queues_needed(load, course)
    return Plan(
        load=load,
        outage=course,
        spread=spread,
        fill=fill,
        bill=bill_of(load, course, sheet, used),
        drain_uneven_s=course.drain_s * spread.share * load.queues,
        queues_least=_least(load, course),
        queues_needed=needed,
        alternatives=tuple((each, fill_of(load, course, each)) for each in spreads),
        polls_hour=idle_polls(load.queues, HOUR_S, load.syphons),
        polls_day=idle_polls(load.queues, DAY_S, load.syphons),
        polls_month=idle_polls(load.queues, MONTH_DAYS * DAY_S, load.syphons),
        warnings=tuple(_warnings(load, course, spread, fill, needed)),
    )


def spread_of(load: Load, queues: int) -> Spread:
    """Compute the spread over this many queues."""
    writers = max(round(load.equals), 1)
    fullest = chance.fullest(writers, queues)
    return Spread(
        queues=queues,
        writers=writers,
        even=1 / queues,
        share=fullest.mean / writers,
        share_95=fullest.in_95 / writers,
        share_99=fullest.in_99 / writers,
        deviation=math.sqrt((1 / queues) * (1 - 1 / queues) / load.equals),
        empty=chance.empty(load.writers, queues),
        exact=fullest.exact and not load.skew,
        probabilities=tuple((count / writers, probability) for count, probability in fullest.probabilities),
    )


def fill_of(load: Load, course: Outage, spread: Spread) -> Fill:
    """Compute how this spread fills the fullest queue."""
    a_second = load.rate * load.backlog_bytes

    def full_s(share: float) -> float:
        return load.queue_bytes_max / (a_second * share) if a_second else math.inf

    messages, messages_95 = (round(course.diverted * share) for share in (spread.share, spread.share_95))
    return Fill(
        messages=messages,
        messages_95=messages_95,
        size_bytes=messages * load.backlog_bytes,
        size_bytes_95=messages_95 * load.backlog_bytes,
        full_s=full_s(spread.share),
        full_95_s=full_s(spread.share_95),
        all_full_s=full_s(spread.even),
    )


def _least(load: Load, course: Outage) -> int:
    return max(-(-course.diverted * load.backlog_bytes // load.queue_bytes_max), 1)


def _queues_needed(load: Load, course: Outage) -> int | None:
    total_bytes = course.diverted * load.backlog_bytes
    if not total_bytes:
        return 1
    writers = max(round(load.equals), 1)
    # The number of senders whose messages fit into one queue.
    most = load.queue_bytes_max * writers // total_bytes
    if most < 1 or chance.within(writers, _QUEUES_MAX, most) < SAFE:
        return None
    low, high = 1, _QUEUES_MAX
    while low < high:
        middle = (low + high) // 2
        if chance.within(writers, middle, most) >= SAFE:
            high = middle
        else:
            low = middle + 1
    return low


def _warnings(load: Load, course: Outage, spread: Spread, fill: Fill, needed: int | None) -> list[str]:
    found = []
    limit = f"{load.queue_bytes_max / 1024**3:g} GB"
    advice = f"{_least(load, course):,} queues are the least that hold it"
    if needed is not None:
        advice += f", {needed:,} do it safely"
    if course.diverted and fill.all_full_s < course.back_s:
        found.append(
            f"All {load.queues} backlog queues together are full after {span(fill.all_full_s)}, {limit} each: from "
            f"then on sends fail ({advice})."
        )
    elif course.diverted and fill.full_95_s < course.back_s:
        found.append(
            f"The fullest backlog queue may be full after {span(fill.full_95_s)} ({limit}): its senders then go over "
            f"to other queues ({advice})."
        )
    if load.writers < load.queues and course.fails_over:
        found.append(
            f"{plural(load.writers, 'sender')} can use no more than {load.writers:,} of {load.queues:,} backlog "
            "queues; each of the others still costs 4 receives an hour."
        )
    if not course.fails_over and load.outage_s:
        found.append(
            f"No failover: the outage of {span(load.outage_s)} does not outlast the failover interval of "
            f"{span(load.failover_interval_s)}. Sends are held that long, and nothing is diverted."
        )
    if spread.writers != load.writers:
        found.append(
            f"The senders are not alike: for the fullest queue they count as {spread.writers:,} equal ones, which is "
            "an estimate. --trials draws them as they are."
        )
    if course.drain_s > load.outage_s > 0:
        found.append(
            f"Draining takes {span(course.drain_s)}, longer than the outage. More syphons, or a higher --drain-rate."
        )
    return found
