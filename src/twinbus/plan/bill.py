"""The cost of an outage: its operations by stage, compared with sending the same messages directly.

Rules:
- A diverted message takes four operations (to the backlog, from it, to the primary, and its receiver's); a direct one
  takes two.
- An operation counts one unit per started 64 KB. Pings and idle polls are one unit each.
- Bandwidth is every byte of the four stages and of the pings, including what the backlog envelope adds.
- There are two amounts: the increase of the month's bill, given the units used before, and the same units at the list
  price, which applies once the included units are used up.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from twinbus.ledger.prices import Sheet
from twinbus.ledger.words import Stage
from twinbus.limits import PING_BYTES
from twinbus.plan.load import Load
from twinbus.plan.outage import DAY_S, MONTH_DAYS, Outage, idle_polls


@dataclass(frozen=True, slots=True)
class BillLine:
    """The operations of one stage."""

    stage: Stage
    what: str
    count: int
    units: int
    list_amount: Decimal


@dataclass(frozen=True, slots=True)
class Bill:
    """The operations of the outage. `extra` is what exceeds sending the same messages directly."""

    sheet: str
    currency: str
    used: int
    lines: tuple[BillLine, ...]
    count: int
    units: int
    amount: Decimal
    list_amount: Decimal
    direct_count: int
    direct_units: int
    extra_count: int
    extra_units: int
    extra_amount: Decimal
    extra_list_amount: Decimal
    # Bytes transferred, and their cost at the list price.
    bandwidth_bytes: int
    bandwidth_list_amount: Decimal
    # Idle polls in thirty days, with or without an outage.
    idle_month: int
    idle_list_amount: Decimal


def list_amount(sheet: Sheet, units: int) -> Decimal:
    """Price units at the list price, the sheet's first price above zero."""
    price = next((tier.price for tier in sheet.operations.steps if tier.price), Decimal(0))
    return price * units / sheet.operations.per


def bandwidth_list_amount(sheet: Sheet, size_bytes: int) -> Decimal:
    """Price bytes at the list price."""
    price = next((tier.price for tier in sheet.bandwidth.steps if tier.price), Decimal(0))
    return price * size_bytes / sheet.bandwidth.per


def bill_of(load: Load, course: Outage, sheet: Sheet, used: int = 0) -> Bill:
    """Compute the bill; `used` is the number of units already used in the month."""
    messages = course.diverted
    each = load.units if sheet.step_bytes else 1
    plan = (
        (Stage.TO_BACKLOG, "send to the backlog", messages, each),
        (Stage.FROM_BACKLOG, "receive from the backlog", messages, each),
        (Stage.TO_PRIMARY, "send to the primary", messages, each),
        (Stage.DIRECT, "receive from the primary", messages, each),
        (Stage.PING, "pings, at most", course.pings, 1),
    )
    lines = tuple(
        BillLine(stage, what, count, count * units, list_amount(sheet, count * units))
        for stage, what, count, units in plan
    )
    units = sum(line.units for line in lines)
    direct_units = 2 * messages * each
    extra_units = units - direct_units
    carried = messages * 2 * (load.size_bytes + load.backlog_bytes) + course.pings * PING_BYTES
    idle = round(idle_polls(load.queues, MONTH_DAYS * DAY_S, load.syphons))
    return Bill(
        sheet=sheet.name,
        currency=sheet.currency,
        used=used,
        lines=lines,
        count=sum(line.count for line in lines),
        units=units,
        amount=sheet.operations_cost(used, units),
        list_amount=list_amount(sheet, units),
        direct_count=2 * messages,
        direct_units=direct_units,
        extra_count=2 * messages + course.pings,
        extra_units=extra_units,
        extra_amount=sheet.operations_cost(used + direct_units, extra_units),
        extra_list_amount=list_amount(sheet, extra_units),
        bandwidth_bytes=carried,
        bandwidth_list_amount=bandwidth_list_amount(sheet, carried),
        idle_month=idle,
        idle_list_amount=list_amount(sheet, idle),
    )
