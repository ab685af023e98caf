"""Computes a report from the tables.

- Spark aggregates; what reaches the driver is bounded by pieces, stages or a limit, never by the size of the tables.
- Costs use the requested price sheet. Charges are daily, so they cover every day that the period touches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from twinbus.limits import REPORT_ENTITIES, REPORT_FAILOVERS, REPORT_POINTS_MAX
from twinbus.plan.bill import list_amount
from twinbus.spark.report import by_second, queries
from twinbus.spark.report.depth import depths
from twinbus.spark.report.facts import (
    BacklogSeries,
    Cost,
    CostReport,
    DayCost,
    EntityCost,
    Episode,
    LatencySummary,
    OperationSeries,
    OutageSummary,
    QueuePeak,
)
from twinbus.spark.report.palette import FIXED
from twinbus.spark.report.period import FINE_S_MAX, MINUTE_S, Period, day
from twinbus.spark.report.sentence import CAUSED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from twinbus.ledger.prices import Sheet
    from twinbus.spark.ledger.tables import LedgerTables
    from twinbus.spark.store_path import AnyPath

_NAMESPACES_SHOWN = 5
_DAYS = (1, 7, 28, 84, 364)
_SETTINGS = {"spark.sql.adaptive.enabled": "false", "spark.sql.codegen.wholeStage": "false"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What to report; a time of None means the start or end of the tables."""

    sheet: Sheet
    start_s: int | None = None
    end_s: int | None = None
    namespace: str | None = None
    entities: int = REPORT_ENTITIES


def gather(
    tables: LedgerTables,
    question: Question,
    ledgers: Sequence[AnyPath] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> CostReport:
    """Compute the report, by the second for a short period if the ledgers of the tables are given.

    `progress` is called before each part.
    """
    with _settings(tables.operations.sparkSession):
        report = _Gathering(tables, question).report(progress)
    return _by_second(report, question, ledgers) if ledgers else report


def _by_second(report: CostReport, question: Question, ledgers: Sequence[AnyPath]) -> CostReport:
    """The same report with charts by the second, if the ledger files still agree with the tables."""
    period, operations = report.period, report.operations
    if period is None or operations is None or period.length_s > FINE_S_MAX + MINUTE_S:
        return report
    counts = by_second.count(ledgers, period, question.namespace)
    if counts is None or counts.first_s is None or counts.last_s is None:
        return report
    if {stage: total for stage, each in counts.stages.items() if (total := each.total())} != operations.totals:
        return report
    fine = Period.fine(
        counts.first_s if question.start_s is None else period.start_s,
        counts.last_s + 1 if question.end_s is None else period.end_s,
    )
    if fine is None:
        return report
    stages = {
        stage: by_second.settled([sum(each[at] for at in range(start, start + fine.width_s)) for start in fine.pieces])
        for stage, each in sorted(counts.stages.items())
    }
    series = replace(operations, stages={stage: found for stage, found in stages.items() if any(found)})
    report = replace(report, period=fine, operations=series)
    if (found := depths(counts.queues, fine)) is None:
        return report
    backlog, peaks = found
    return replace(report, backlog=backlog, queues=tuple(peaks[: question.entities]), queues_count=len(peaks))


@contextmanager
def _settings(spark: SparkSession) -> Iterator[None]:
    """Settings for two dozen small queries: adaptive planning and code generation would take longer than the
    queries."""
    before = {name: spark.conf.get(name) for name in _SETTINGS}
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, known in before.items():
            spark.conf.set(name, str(known))


class _Gathering:
    def __init__(self, tables: LedgerTables, question: Question) -> None:
        self._question = question
        self._sheet = question.sheet
        self._operations = self._of(tables.operations)
        self._charges = self._of(tables.charges)
        self._failovers = self._of(tables.failovers, "target")
        self._backlog = self._of(tables.backlog)
        self._latency = self._of(tables.latency)
        self._quarantine = tables.quarantine

    def _of(self, frame: DataFrame, *other: str) -> DataFrame:
        name = self._question.namespace
        if name is None:
            return frame
        return frame.where(reduce(lambda a, b: a | b, (F.col(each) == name for each in ("namespace", *other))))

    def report(self, progress: Callable[[str], None]) -> CostReport:
        progress("adding up: the period")
        period = self._period()
        blank: dict[str, Any] = {
            "period": period,
            "namespace": self._question.namespace,
            "sheet": self._sheet.name,
            "currency": self._sheet.currency,
            "quarantined": self._quarantine.count(),
        }
        if period is None:
            return CostReport(**blank)
        self._keep(period)
        try:
            parts: dict[str, Any] = {}
            for name, part in {
                "namespaces": self._named,
                "costs": self._costs,
                "failovers": self._episodes,
                "operations": self._pieces,
                "the backlog": self._backlogs,
                "times": self._latencies,
            }.items():
                progress(f"adding up: {name}")
                parts |= part(period)
            return CostReport(**blank, **parts)
        finally:
            for frame in (self._operations, self._charges, self._failovers, self._backlog, self._latency):
                frame.unpersist()

    def _keep(self, period: Period) -> None:
        """Restrict the tables to the period and cache the rest."""
        dates = F.col("date").between(day(period.start_s), day(period.end_s - 1))
        self._operations = queries.once(self._operations, period).persist()
        self._charges = self._charges.where(dates & (F.col("sheet") == self._sheet.name)).persist()
        self._failovers = queries.overlapping(self._failovers, period).persist()
        self._backlog = queries.inside(self._backlog, period).persist()
        self._latency = queries.inside(self._latency, period).persist()

    def _period(self) -> Period | None:
        given = self._question
        ends = [
            queries.extent(self._operations, "minute", "minute"),
            queries.extent(self._backlog, "minute", "minute"),
            queries.extent(self._latency, "minute", "minute"),
            queries.extent(
                self._failovers.select("started", F.coalesce("ended", "started").alias("ended")), "started", "ended"
            ),
        ]
        found = reduce(lambda a, b: a.unionByName(b), ends).agg(
            F.min("first").alias("first"), F.max("last").alias("last")
        )
        row = _only(found)
        if row["first"] is None:
            if given.start_s is None or given.end_s is None:
                return None
            return Period.between(given.start_s, given.end_s)
        # A row covers its whole minute.
        first, last = math.floor(row["first"]), math.floor(row["last"]) // 60 * 60 + 60
        start_s = first if given.start_s is None else given.start_s
        return Period.between(start_s, max(last if given.end_s is None else given.end_s, start_s))

    def _named(self, _: Period) -> dict[str, Any]:
        names = self._operations.select("namespace").distinct()
        shown = [row["namespace"] for row in names.orderBy("namespace").limit(_NAMESPACES_SHOWN).collect()]
        count = len(shown) if len(shown) < _NAMESPACES_SHOWN else names.count()
        return {"namespaces": tuple(shown), "namespaces_count": count}

    def _costs(self, period: Period) -> dict[str, Any]:
        charges = self._charges
        by_name = queries.costs(charges, "stage").orderBy("stage").collect()
        stages = {row["stage"]: self._cost(row, row["stage"]) for row in by_name}
        work = charges.where(~F.col("stage").isin(*FIXED))
        top = queries.dearest(work, self._question.entities)
        tops = top.collect()
        by_stage: dict[tuple[str, str], dict[str, int]] = {}
        named = queries.costs(queries.of_those(work, top), "namespace", "entity", "stage").orderBy("stage")
        for row in named.collect():
            by_stage.setdefault((row["namespace"], row["entity"]), {})[row["stage"]] = row["units"]
        entities = tuple(
            EntityCost(
                namespace=row["namespace"],
                entity=row["entity"],
                cost=self._cost(row),
                stages=by_stage.get((row["namespace"], row["entity"]), {}),
            )
            for row in tops
        )
        count = work.where(F.col("entity") != "").select("namespace", "entity").distinct().count()
        length = (day(period.end_s - 1) - day(period.start_s)).days + 1
        width = next((days for days in _DAYS if length / days <= 62), length // REPORT_POINTS_MAX + 1)
        days: dict[int, dict[str, int]] = {}
        for row in queries.by_day(work, width).orderBy("start", "stage").collect():
            days.setdefault(row["start"], {})[row["stage"]] = row["units"]
        return {
            "stages": stages,
            "entities": entities,
            "entities_count": count,
            "others": _others(stages, entities) if count > len(entities) else None,
            "days": tuple(DayCost(start_s=start, stages=days[start]) for start in sorted(days)),
            "days_width": width,
        }

    def _cost(self, row: Row, stage: str = "") -> Cost:
        amount = Decimal(row["amount"] or 0)
        units = row["units"] or 0
        if stage in FIXED:
            # Their units are hours or bytes, not operations.
            return Cost(amount=amount, list_amount=amount)
        return Cost(count=row["count"] or 0, units=units, amount=amount, list_amount=list_amount(self._sheet, units))

    def _episodes(self, period: Period) -> dict[str, Any]:
        episodes = self._failovers
        sums = _only(
            episodes.agg(
                F.count("*").alias("count"),
                F.countDistinct("namespace", "entity").alias("entities"),
                *(F.sum(name).alias(name) for name in ("diverted", "syphoned", "dead_lettered")),
            )
        )
        if not sums["count"]:
            return {}
        order = (F.desc("diverted"), "started", "namespace", "entity")
        named = episodes.withColumns({"from": queries.seconds("started"), "until": queries.seconds("ended")})
        shown = [_episode(row) for row in named.orderBy(*order).limit(REPORT_FAILOVERS).collect()]
        found = queries.outages(episodes)
        until = F.least("until", F.lit(float(period.end_s)))
        from_s = F.greatest("from", F.lit(float(period.start_s)))
        totals = _only(found.agg(F.count("*").alias("count"), F.sum(until - from_s).alias("length")))
        return {
            "episodes": tuple(sorted(shown, key=lambda each: (each.started_s, each.namespace, each.entity))),
            "episodes_count": sums["count"],
            "episodes_entities": sums["entities"],
            **{name: sums[name] or 0 for name in ("diverted", "syphoned", "dead_lettered")},
            "outages": self._outages(found),
            "outages_count": totals["count"],
            "failed_over_s": max(float(totals["length"] or 0), 0.0),
        }

    def _outages(self, found: DataFrame) -> tuple[OutageSummary, ...]:
        top = found.orderBy(F.desc("diverted"), "from").limit(REPORT_FAILOVERS)
        rows = top.collect()
        work = queries.billed(self._operations, self._sheet).where(F.col("stage").isin(*CAUSED))
        done: dict[int, dict[str, Row]] = {}
        sums = queries.during(work, top).groupBy("outage", "stage")
        for row in sums.agg(F.sum("count").alias("count"), F.sum("units").alias("units")).collect():
            done.setdefault(row["outage"], {})[row["stage"]] = row
        late = queries.during(self._latency, top).groupBy("outage").agg(F.max("max_ms").alias("ms"))
        longest = {row["outage"]: row["ms"] for row in late.collect()}
        made = []
        for row in sorted(rows, key=lambda each: each["from"]):
            stages = done.get(row["outage"], {})
            units = sum(self._sheet.units(each["count"], each["units"]) for each in stages.values())
            made.append(
                OutageSummary(
                    started_s=row["from"],
                    ended_s=None if math.isinf(row["until"]) else row["until"],
                    entities=row["entities"],
                    episodes=row["episodes"],
                    diverted=row["diverted"] or 0,
                    syphoned=row["syphoned"] or 0,
                    dead_lettered=row["dead_lettered"] or 0,
                    operations={stage: stages[stage]["count"] for stage in CAUSED if stage in stages},
                    units=units,
                    list_amount=list_amount(self._sheet, units),
                    longest_ms=longest.get(row["outage"]),
                )
            )
        return tuple(made)

    def _pieces(self, period: Period) -> dict[str, Any]:
        found: dict[str, dict[int, int]] = {}
        for row in queries.by_piece(self._operations, period.width_s).collect():
            found.setdefault(row["stage"], {})[row["piece"]] = row["count"]
        if not found:
            return {}
        operations = self._operations
        totals = queries.counts_by_stage(operations)
        billed = queries.counts_by_stage(queries.billed(operations, self._sheet))
        flows = _only(queries.flows(operations))
        stages = {
            stage: by_second.settled([found[stage].get(at, 0) for at in period.pieces]) for stage in sorted(found)
        }
        return {
            "operations": OperationSeries(
                stages={stage: counts for stage, counts in stages.items() if any(counts)},
                totals={row["stage"]: row["count"] for row in totals.collect()},
                billed={row["stage"]: row["count"] for row in billed.collect()},
            ),
            "sent": flows["sent"] or 0,
            "received": flows["received"] or 0,
        }

    def _backlogs(self, period: Period) -> dict[str, Any]:
        backlog = self._backlog
        rows = {row["piece"]: row for row in queries.backlog_by_piece(backlog, period.width_s).collect()}
        if not rows:
            return {}
        names = ("depth", "fullest", "depth_bytes", "oldest_ms", "dead")
        series = {name: tuple(rows[at][name] if at in rows else None for at in period.pieces) for name in names}
        series["depth"] = self._counted_depth(period, series["depth"])
        peaks = queries.queue_peaks(backlog, self._question.entities).collect()
        return {
            "backlog": BacklogSeries(**series),
            "queues": tuple(QueuePeak(**row.asDict()) for row in peaks),
            "queues_count": backlog.select("namespace", "queue").distinct().count(),
        }

    def _counted_depth(self, period: Period, seen: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """The measured depth; before the first measurement, what went into the backlog and had not left it."""
        moves = {row["piece"]: row for row in queries.moves_by_piece(self._operations, period.width_s).collect()}
        depth, held, looked = list(seen), 0, False
        for at, start_s in enumerate(period.pieces):
            moved = moves.get(start_s)
            held = max(held + (moved["into"] - moved["out_of"] if moved else 0), 0)
            looked = looked or seen[at] is not None
            if not looked and held:
                depth[at] = held
        return tuple(depth)

    def _latencies(self, _: Period) -> dict[str, Any]:
        latency = self._latency
        everything = queries.latencies(latency).collect()
        if not everything or not everything[0]["count"]:
            return {}
        by_entity = queries.latencies(latency, "namespace", "entity")
        order = (F.desc("max_ms"), F.desc("count"), "namespace", "entity")
        rows = by_entity.orderBy(*order).limit(self._question.entities).collect()
        return {
            "latency": _latency(everything[0], "", ""),
            "latencies": tuple(_latency(row, row["namespace"], row["entity"]) for row in rows),
            "latencies_count": by_entity.count(),
        }


def _only(frame: DataFrame) -> Row:
    """The single row of an aggregate without groups."""
    row = frame.first()
    if row is None:
        raise AssertionError("a sum without groups has a row")
    return row


def _others(stages: dict[str, Cost], entities: Iterable[EntityCost]) -> EntityCost:
    """The sum of the entities that are not shown."""
    rest = sum((cost for stage, cost in stages.items() if stage not in FIXED), Cost())
    by_stage = {stage: cost.units for stage, cost in stages.items() if stage not in FIXED}
    for each in entities:
        rest -= each.cost
        for stage, units in each.stages.items():
            by_stage[stage] -= units
    return EntityCost(
        namespace="", entity="", cost=rest, stages={name: units for name, units in by_stage.items() if units}
    )


def _episode(row: Row) -> Episode:
    return Episode(
        namespace=row["namespace"] or "",
        entity=row["entity"] or "",
        started_s=row["from"],
        ended_s=row["until"],
        target=row["target"] or "",
        cause=row["cause"] or "",
        diverted=row["diverted"] or 0,
        syphoned=row["syphoned"] or 0,
        dead_lettered=row["dead_lettered"] or 0,
    )


def _latency(row: Row, namespace: str, entity: str) -> LatencySummary:
    return LatencySummary(
        namespace=namespace,
        entity=entity,
        count=row["count"],
        sum_ms=row["sum_ms"],
        max_ms=row["max_ms"],
        buckets=tuple(row["buckets"]),
    )
