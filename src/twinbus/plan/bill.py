"""What the outage costs: its operations by stage, beside those that the same messages take without it.

Rules:
- A diverted message takes four operations (to the backlog, from it, to the primary, and its receiver's), a direct one
  two.
- An operation counts for one unit for each 64 KB begun. Pings and idle polls are one unit each.
- Bandwidth is every byte of the four stages and of the pings; what the backlog adds to a message counts there.
- Two amounts: what the month's bill grows by, given what was used before, and the same units at the list price, the one
  that is paid once the included units are used up.
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
    """Operations of one stage, and what they are."""

    stage: Stage
    what: str
    count: int
    units: int
    list_amount: Decimal


@dataclass(frozen=True, slots=True)
class Bill:
    """The operations of the outage. `extra` is above what the same messages take when sent directly."""

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
    # What all of it carries, and what that costs at the list price.
    bandwidth_bytes: int
    bandwidth_list_amount: Decimal
    # Idle polls of thirty days, outage or none.
    idle_month: int
    idle_list_amount: Decimal


def list_amount(sheet: Sheet, units: int) -> Decimal:
    """What units cost at the list price: the first of the sheet's that is above nothing."""
    price = next((tier.price for tier in sheet.operations.steps if tier.price), Decimal(0))
    return price * units / sheet.operations.per


def bandwidth_list_amount(sheet: Sheet, size_bytes: int) -> Decimal:
    """What bytes cost at the list price."""
    price = next((tier.price for tier in sheet.bandwidth.steps if tier.price), Decimal(0))
    return price * size_bytes / sheet.bandwidth.per


def bill_of(load: Load, course: Outage, sheet: Sheet, used: int = 0) -> Bill:
    """The bill; `used` are the units that the month has had already."""
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
