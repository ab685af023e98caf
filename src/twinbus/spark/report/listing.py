"""The tables of a report, the same on the page and in the terminal.

- A cell is text for people, not yet escaped.
- Number columns are right-aligned; a row may have a stage, whose colour it gets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from twinbus.plan.wording import amount, plural, share, size, span
from twinbus.spark.report.drawing import shown
from twinbus.spark.report.facts import Cost, CostReport, LatencySummary
from twinbus.spark.report.palette import FIXED, STAGE_WORDS, STAGES
from twinbus.spark.report.percentiles import percentile_ms
from twinbus.spark.report.period import clock_text, moment
from twinbus.spark.report.sentence import CAUSED

# Shown wherever the operations of diverted messages are counted.
FOUR_OPERATIONS = (
    "A diverted message takes four billed operations where a direct one takes two: it is sent to the backlog, received "
    "from it, sent to the primary, and received by its receiver."
)


@dataclass(frozen=True, slots=True)
class Listing:
    """A table. `stages` has each row's stage or an empty string; `last_is_sum` sets the last row apart."""

    key: str
    title: str
    columns: tuple[str, ...]
    numbers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    stages: tuple[str, ...] = ()
    last_is_sum: bool = False
    note: str = ""
    # Shown instead if there are no rows.
    nothing: str = field(default="Nothing in this period.")


def listings(report: CostReport) -> Iterator[Listing]:
    """All tables, in the order of the page."""
    yield stages(report)
    yield entities(report)
    yield outages(report)
    yield failovers(report)
    yield queues(report)
    yield operations(report)
    yield latency(report)


def ordered(names: Iterator[str] | list[str] | dict[str, object]) -> list[str]:
    """Stages in their usual order; unknown ones come last."""
    return sorted(names, key=lambda name: (STAGES.index(name) if name in STAGES else len(STAGES), name))


def word(stage: str) -> str:
    return STAGE_WORDS.get(stage, shown(stage))


def _money(cost: Cost, *, counted: bool = True) -> tuple[str, ...]:
    numbers = (f"{cost.count:,}", f"{cost.units:,}") if counted else ("", "")
    return *numbers, amount(cost.amount), amount(cost.list_amount)


def stages(report: CostReport) -> Listing:
    """Cost by stage."""
    names = ordered(list(report.stages))
    rows = [(word(name), *_money(report.stages[name], counted=name not in FIXED)) for name in names]
    if rows:
        rows.append(("all", *_money(report.cost)))
    numbers = ("billed operations", "units", f"{report.currency} on the bill", f"{report.currency} at list price")
    return Listing(
        key="stages",
        title="Cost by stage",
        columns=("stage", *numbers),
        numbers=numbers,
        rows=tuple(rows),
        stages=(*names, ""),
        last_is_sum=True,
        note="Costs are those of whole days. At list price: what the units cost once the included ones are used up.",
        nothing=f"No charges by the price sheet {report.sheet} in this period.",
    )


def entities(report: CostReport) -> Listing:
    """Cost by entity."""
    rows = [(shown(each.entity), shown(each.namespace, 30), *_money(each.cost)) for each in report.entities]
    if report.others is not None:
        left = report.entities_count - len(report.entities)
        rows.append((f"{plural(left, 'other', 'others')}", "", *_money(report.others.cost)))
    numbers = ("billed operations", "units", f"{report.currency} on the bill", f"{report.currency} at list price")
    return Listing(
        key="entities",
        title="Cost by entity",
        columns=("entity", "namespace", *numbers),
        numbers=numbers,
        rows=tuple(rows),
        last_is_sum=report.others is not None,
        nothing=f"No charges by the price sheet {report.sheet} in this period.",
    )


def outages(report: CostReport) -> Listing:
    """Outages: failovers that overlap."""
    rows = []
    for each in report.outages:
        done = each.operations
        lasted = "ongoing" if each.ended_s is None else span(each.ended_s - each.started_s)
        rows.append(
            (
                clock_text(each.started_s, seconds=True),
                lasted,
                f"{each.entities:,}",
                f"{each.diverted:,}",
                *(f"{done.get(stage, 0):,}" for stage in CAUSED),
                amount(each.list_amount),
                "-" if each.longest_ms is None else span(each.longest_ms / 1000),
            )
        )
    words = tuple(word(stage) for stage in CAUSED)
    numbers = ("lasted", "entities", "diverted", *words, f"{report.currency} at list price", "slowest")
    left = report.outages_count - len(report.outages)
    return Listing(
        key="outages",
        title="What each outage cost",
        columns=("began (UTC)", *numbers),
        numbers=numbers,
        rows=tuple(rows),
        note="Billed operations. "
        + FOUR_OPERATIONS
        + (f" The {len(rows)} that diverted most; {plural(left, 'other')} not shown." if left > 0 else ""),
        nothing="No failover in this period.",
    )


def failovers(report: CostReport) -> Listing:
    """Failovers of single entities."""
    # A column with the same name in every row tells nothing.
    several = len({each.namespace for each in report.episodes}) > 1
    rows = [
        (
            shown(each.entity),
            *([shown(each.namespace, 30)] if several else []),
            _second(each.started_s),
            "ongoing" if each.ended_s is None else span(each.ended_s - each.started_s),
            shown(each.cause, 40) if each.cause else "-",
            f"{each.diverted:,}",
            f"{each.syphoned:,}",
            f"{each.dead_lettered:,}",
        )
        for each in report.episodes
    ]
    left = report.episodes_count - len(rows)
    numbers = ("lasted", "diverted", "brought home", "dead-lettered")
    return Listing(
        key="failovers",
        title="Failovers",
        columns=("entity", *(["namespace"] if several else []), "began (UTC)", "lasted", "cause", *numbers[1:]),
        numbers=numbers,
        rows=tuple(rows),
        note=f"The {len(rows)} that diverted most; {plural(left, 'other')} not shown." if left > 0 else "",
        nothing="No failover in this period.",
    )


def queues(report: CostReport) -> Listing:
    """The backlog queues at their fullest."""
    total = sum(each.depth for each in report.queues)
    rows = [
        (
            shown(each.queue),
            f"{each.depth:,}",
            share(each.depth / total) if total else "-",
            size(each.depth_bytes),
            span(each.oldest_ms / 1000),
            f"{each.dead:,}",
        )
        for each in report.queues
    ]
    left = report.queues_count - len(rows)
    numbers = ("most messages", "share", "most bytes", "oldest", "dead letters")
    return Listing(
        key="queues",
        title="Backlog queues at their fullest",
        columns=("backlog queue", *numbers),
        numbers=numbers,
        rows=tuple(rows),
        note=f"{plural(left, 'other queue')} not shown." if left > 0 else "",
        nothing="No backlog queue was measured in this period.",
    )


def operations(report: CostReport) -> Listing:
    """Operations by stage: total, average rate, and rate in the busiest piece."""
    rows, names = [], []
    unit = "minute" if report.period is None else report.period.unit
    if report.operations is not None and report.period is not None:
        length = report.period.length_s / report.period.unit_s
        piece = report.period.width_s / report.period.unit_s
        for name in ordered(list(report.operations.stages)):
            total, most = report.operations.totals.get(name, 0), max(report.operations.stages[name])
            billed = report.operations.billed.get(name, 0)
            names.append(name)
            rows.append((word(name), f"{total:,}", f"{billed:,}", f"{total / length:,.1f}", f"{most / piece:,.1f}"))
    numbers = ("operations", "billed", f"a {unit}", f"a {unit} at most")
    return Listing(
        key="operations",
        title="Operations over time",
        columns=("stage", *numbers),
        numbers=numbers,
        rows=tuple(rows),
        stages=tuple(names),
        note="Settlements, and pings that did not reach the primary, are operations that are not billed.",
        nothing="No operation in this period.",
    )


def latency(report: CostReport) -> Listing:
    """Times through the backlog, overall and by entity."""
    rows = []
    if report.latency is not None:
        rows = [("all entities", *_times(report.latency))]
        rows += [(shown(each.entity), *_times(each)) for each in report.latencies]
    left = report.latencies_count - len(report.latencies)
    numbers = ("messages", "mean", "half within", "95 % within", "99 % within", "slowest")
    return Listing(
        key="latency",
        title="Time through the backlog",
        columns=("entity", *numbers),
        numbers=numbers,
        rows=tuple(rows),
        note="Percentiles are estimates (histogram buckets double in size)."
        + (f" {plural(left, 'other entity', 'other entities')} not shown." if left > 0 else ""),
        nothing="No message came through the backlog in this period.",
    )


def _times(each: LatencySummary) -> tuple[str, ...]:
    parts = (percentile_ms(each.buckets, each.max_ms, part) for part in (0.5, 0.95, 0.99))
    mean = each.sum_ms / each.count if each.count else 0
    return (f"{each.count:,}", span(mean / 1000), *(span(part / 1000) for part in parts), span(each.max_ms / 1000))


def _second(at_s: float) -> str:
    at = moment(at_s)
    return f"{at.day} {at:%b %H:%M:%S}"
