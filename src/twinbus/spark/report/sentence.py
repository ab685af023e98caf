"""What an outage cost, in one sentence.

- It names the operations that were counted: to the backlog, from it, to the primary, and pings. The direct sends of the
  same messages are given for comparison, because they would have been made anyway.
- The amount is at list price; the billed amount is added if it differs.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from twinbus.plan.wording import money, plural, span
from twinbus.spark.report.facts import NOTHING, CostReport, OutageSummary
from twinbus.spark.report.period import clock_text, range_text

# Stages that only an outage causes.
CAUSED: Final = ("to-backlog", "from-backlog", "to-primary", "ping")


def headline(report: CostReport) -> str:
    """The sentence for the whole period."""
    if report.period is None:
        return "The tables are empty: nothing to report yet."
    if not report.outages_count:
        return "No failover in this period: every message was sent directly."
    known = outage_bill(report)
    if report.outages_count == 1 and len(report.outages) == 1:
        return f"{sentence(report.outages[0], report.currency, known)} {account(report)}"
    operations: dict[str, int] = {}
    for outage in report.outages:
        for stage, count in outage.operations.items():
            operations[stage] = operations.get(stage, 0) + count
    shown = "" if len(report.outages) == report.outages_count else f", of the {len(report.outages)} largest,"
    longest = max((each.longest_ms for each in report.outages if each.longest_ms is not None), default=None)
    return (
        f"{plural(report.outages_count, 'outage')} with {span(report.failed_over_s)} of failover diverted "
        f"{plural(report.diverted, 'message')}"
        + _through(operations, report.diverted, shown)
        + _amount(sum((each.list_amount for each in report.outages), NOTHING), report.currency, known)
        + _longest(longest)
        + f". {account(report)}"
    )


def outage_bill(report: CostReport) -> Decimal | None:
    """What the outages added to the bill; None without charges."""
    if not report.stages:
        return None
    return sum((report.stages[stage].amount for stage in CAUSED if stage in report.stages), NOTHING)


def account(report: CostReport) -> str:
    """What became of the diverted messages."""
    if not report.diverted:
        return "Nothing lost: no message was diverted."
    dead = (
        f", and {plural(report.dead_lettered, 'is a dead letter', 'are dead letters')}" if report.dead_lettered else ""
    )
    if not report.missing:
        text = f"Nothing lost: {report.syphoned:,} of {report.diverted:,} diverted messages were brought home{dead}"
    else:
        text = (
            f"{report.syphoned:,} of {report.diverted:,} diverted messages were brought home{dead}; "
            f"{report.missing:,} not yet: they are in the backlog, or the ledger of their syphon is not here"
        )
    # A send whose answer was lost is not recorded as diverted, but may still be in the backlog.
    more = f" {report.repeated:,} more came home: repeats, or sends that got no answer." if report.repeated else ""
    return f"{text}.{more}"


def sentence(outage: OutageSummary, currency: str, billed: Decimal | None = None) -> str:
    """The sentence for one outage; `billed` is what it added to the bill, if known."""
    entities = plural(outage.entities, "entity", "entities")
    if outage.ended_s is None:
        when = f"The outage that began at {clock_text(outage.started_s, seconds=True)} UTC and is not over has diverted"
    else:
        length = span(outage.ended_s - outage.started_s)
        when = f"The outage of {range_text(outage.started_s, outage.ended_s)} UTC ({length}) diverted"
    return (
        f"{when} {plural(outage.diverted, 'message')} of {entities}"
        + _through(outage.operations, outage.diverted, "")
        + _amount(outage.list_amount, currency, billed)
        + _longest(outage.longest_ms)
        + "."
    )


def _through(operations: dict[str, int], diverted: int, shown: str) -> str:
    pings = operations.get("ping", 0)
    moved = sum(operations.get(stage, 0) for stage in CAUSED) - pings
    parts = [plural(moved, "billed operation") + " through the backlog"] if moved or diverted else []
    if pings:
        parts.append(plural(pings, "ping"))
    if not parts:
        return ""
    beside = f", where direct sends would have taken {diverted:,}" if diverted and moved else ""
    return f":{shown} {' and '.join(parts)}{beside}"


def _amount(listed: Decimal, currency: str, billed: Decimal | None) -> str:
    text = f"; that is {money(listed, currency)} at list price"
    if billed is not None and billed != listed:
        text += f" and {money(billed, currency)} on the bill"
        if not billed:
            text += ", which the included operations cover"
    return text


def _longest(longest_ms: int | None) -> str:
    return "" if longest_ms is None else f"; the slowest message took {span(longest_ms / 1000)} through the backlog"
