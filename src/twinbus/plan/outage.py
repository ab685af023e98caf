"""The course of an outage: held, diverted, back, drained.

Rules:
- The primary goes down at 0 and comes back at `outage_s`. Sends fail at once, and callers' timeouts are long enough.
- Sends are held until the failover interval is over; then the held and all later messages are diverted.
- From the failover on, pings go out at a steady interval; the first after the primary's return succeeds and fails back.
- From then on the syphon drains the backlog at its rate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from twinbus.limits import SYPHON_RECEIVE_S
from twinbus.plan.load import Load

HOUR_S = 3_600
DAY_S = 86_400
MONTH_DAYS = 30


@dataclass(frozen=True, slots=True)
class Outage:
    """What happens when, in seconds from the start of the outage. Without a failover `back_s` is `outage_s`."""

    fails_over: bool
    failover_s: float
    back_s: float
    # Messages that were held for some time, and those that went through the backlog.
    held: int
    diverted: int
    # Per entity and client, and in total.
    pings_each: int
    pings: int
    # Time to empty the backlog at the syphons' full rate.
    drain_s: float
    # The longest delay of a message, if the queues fill evenly.
    latest_s: float

    @property
    def drained_s(self) -> float:
        """When the backlog is empty again."""
        return self.back_s + self.drain_s


def outage_of(load: Load) -> Outage:
    """Compute the course of the outage."""
    # An outage that ends with the interval ends in time: the send succeeds and the timer stops.
    if load.outage_s <= load.failover_interval_s:
        held = round(load.rate * load.outage_s)
        return Outage(False, load.failover_interval_s, load.outage_s, held, 0, 0, 0, 0.0, load.outage_s)
    start_s = load.failover_interval_s
    pings = math.ceil((load.outage_s - start_s) / load.ping_interval_s)
    back_s = start_s + pings * load.ping_interval_s
    diverted = round(load.rate * back_s)
    drain_s = diverted / load.drain_rate
    return Outage(
        fails_over=True,
        failover_s=start_s,
        back_s=back_s,
        held=round(load.rate * start_s),
        diverted=diverted,
        pings_each=pings,
        pings=pings * load.pinged,
        drain_s=drain_s,
        # The first message has waited since 0 and is drained first; the last one waits for the whole drain.
        latest_s=max(back_s, drain_s),
    )


def backlog_at(load: Load, course: Outage, at_s: float) -> float:
    """Return the number of messages in the backlog at a time."""
    if not course.fails_over or at_s < course.failover_s:
        return 0.0
    if at_s <= course.back_s:
        return load.rate * at_s
    return max(course.diverted - (at_s - course.back_s) * load.drain_rate, 0.0)


def idle_polls(queues: int, seconds: float, syphons: int = 1) -> float:
    """Count the empty receives while nothing is diverted: one long receive after another on each queue."""
    return syphons * queues * seconds / SYPHON_RECEIVE_S
