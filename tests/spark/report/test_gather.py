"""From tables to facts: every number is in the tables, and there are never too many of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from tests.spark.report import scenario
from tests.spark.report.scenario import START_S, backlog, charge, failover, frames, latency, operation
from twinbus.limits import REPORT_FAILOVERS, REPORT_POINTS_MAX
from twinbus.spark.report.facts import CostReport
from twinbus.spark.report.gather import Question, gather

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The first test that asks for a report waits for it, and for Spark's start.
pytestmark = pytest.mark.timeout(180)


def test_the_period_is_what_the_tables_tell_of(outage: CostReport) -> None:
    assert outage.period is not None
    assert (outage.period.start_s, outage.period.end_s, outage.period.width_s) == (START_S, START_S + 30 * 60, 60)
    assert outage.namespaces == ("contoso", "contoso-dr")


def test_operations_are_counted_once_and_what_came_home_has_its_own_stage(outage: CostReport) -> None:
    assert outage.operations is not None
    stages = outage.operations.stages
    assert set(stages) == {"direct", "to-backlog", "from-backlog", "to-primary", "ping", "poll"}
    # Three entities, 20 minutes of 600 sends, receives and completions; the syphon's sends are not direct.
    assert sum(stages["direct"]) == 3 * 20 * 600 * 3
    assert stages["direct"][20] == 3 * 600 * 3
    assert stages["to-primary"][20] == 9_000
    assert sum(stages["to-backlog"]) == 18_000
    assert (sum(stages["ping"]), sum(stages["poll"])) == (30, 8)
    assert stages["direct"][10:20] == (0,) * 10


def test_costs_are_those_of_the_sheet(outage: CostReport) -> None:
    assert {stage: cost.units for stage, cost in outage.stages.items()} == {
        "direct": 72_000,
        "to-backlog": 18_000,
        "from-backlog": 18_000,
        "to-primary": 18_000,
        "ping": 3,
        "poll": 8,
        "base": 0,
    }
    assert outage.stages["base"].amount == outage.stages["base"].list_amount == Decimal("0.648")
    assert outage.stages["direct"].list_amount == Decimal("0.0576")
    assert outage.cost.amount == sum(cost.amount for cost in outage.stages.values())
    assert outage.others is None
    assert [each.entity for each in outage.entities][:1] == ["contoso/x-servicebus-transfer/0"]
    assert {each.entity: each.stages for each in outage.entities}["orders"] == {
        "direct": 24_000,
        "to-primary": 6_000,
        "ping": 1,
    }


def test_the_outage_and_what_was_done_for_it(outage: CostReport) -> None:
    (found,) = outage.outages
    assert (found.started_s, found.ended_s) == (START_S + 600, START_S + 1_170)
    assert (found.entities, found.diverted, found.syphoned) == (3, 18_000, 18_000)
    # Billed: completions are free, and a failed ping costs nothing.
    assert found.operations == {"to-backlog": 18_000, "from-backlog": 18_000, "to-primary": 18_000, "ping": 3}
    assert found.list_amount == Decimal("0.80") * 54_003 / 1_000_000
    assert found.longest_ms == 600_000
    assert outage.failed_over_s == 570
    assert len(outage.episodes) == outage.episodes_count == 3


def test_backlog_and_times_through_it(outage: CostReport) -> None:
    assert outage.backlog is not None
    assert max(each or 0 for each in outage.backlog.depth) == 10 * 150 * (1 + 2 + 3 + 4)
    assert max(each or 0 for each in outage.backlog.fullest) == 6_000
    assert [each.depth for each in outage.queues] == [6_000, 4_500, 3_000, 1_500]
    assert outage.latency is not None
    assert (outage.latency.count, outage.latency.max_ms) == (3_600, 600_000)
    assert sum(outage.latency.buckets) == 3_600
    assert {each.entity for each in outage.latencies} == {"orders", "invoices", "events"}


def test_the_same_tables_give_the_same_report(spark: SparkSession, question: Question, outage: CostReport) -> None:
    # As text, so that a different order would show.
    assert repr(gather(scenario.outage(spark), question)) == repr(outage)


def test_empty_tables(empty: CostReport) -> None:
    assert empty.period is None
    assert empty.cost.units == empty.outages_count == empty.diverted == 0


def test_without_a_brokers_ledger_clients_and_syphons_count(spark: SparkSession, question: Question) -> None:
    tables = frames(
        spark,
        operations=[
            operation(0, "orders", "send", "direct", 5, source="client"),
            operation(0, "orders", "send", "to-primary", 7, source="syphon"),
            operation(0, "orders", "ping", "ping", 2, source="client", outcome="amqp:timeout"),
            # This namespace has a broker's ledger: it contains the client's operations, except for failed pings.
            operation(0, "mail", "send", "direct", 11, namespace="other"),
            operation(0, "mail", "send", "direct", 11, namespace="other", source="client"),
            operation(0, "mail", "ping", "ping", 1, namespace="other"),
            operation(0, "mail", "ping", "ping", 1, namespace="other", source="client"),
            operation(0, "mail", "ping", "ping", 3, namespace="other", source="client", outcome="amqp:timeout"),
        ],
    )
    found = gather(tables, question)
    assert found.operations is not None
    assert found.operations.stages == {"direct": (16,), "to-primary": (7,), "ping": (6,)}
    one = gather(tables, replace(question, namespace="other"))
    assert one.operations is not None
    assert one.operations.stages == {"direct": (11,), "ping": (4,)}


def test_outages_are_episodes_that_overlap(spark: SparkSession, question: Question) -> None:
    tables = frames(
        spark,
        operations=[operation(at, "q", "send", "to-backlog", 1, namespace="dr") for at in range(0, 120, 2)],
        failovers=[
            failover("a", 10, 20, 5),
            failover("b", 15, 30, 6),
            failover("c", 30, 31, 1),  # touches
            failover("a", 50, 55, 3),
            failover("d", 100, None, 2),
        ],
        latency=[latency(25, "a", [1_000]), latency(60, "a", [9_000])],
    )
    found = gather(tables, question)
    assert [(each.started_s - START_S) / 60 for each in found.outages] == [10, 50, 100]
    assert [each.diverted for each in found.outages] == [12, 3, 2]
    assert [each.entities for each in found.outages] == [3, 1, 1]
    # From the start of each outage to the next; operations before the first belong to none.
    assert [each.operations["to-backlog"] for each in found.outages] == [20, 25, 10]
    assert [each.longest_ms for each in found.outages] == [1_000, 9_000, None]
    assert found.outages[-1].ended_s is None
    # 21 and 5 minutes, and the last until the period's end.
    assert found.failed_over_s == (21 + 5 + 19) * 60
    part = gather(tables, replace(question, start_s=START_S + 50 * 60, end_s=START_S + 60 * 60))
    assert [each.diverted for each in part.outages] == [3]
    assert part.failed_over_s == 300


def test_however_much_there_is_the_report_is_bounded(spark: SparkSession, question: Question) -> None:
    days = 400
    first = date(2025, 1, 1)
    minutes = [-(day * 1_440) for day in range(days)]
    tables = frames(
        spark,
        operations=[operation(at, f"queue-{at}", "send", "direct", 1) for at in minutes],
        charges=[
            *(
                charge("direct", f"queue-{number}", number + 1, day=first + timedelta(days=400))
                for number in range(3_000)
            ),
            *(charge("direct", "queue-0", 1, day=first + timedelta(days=day)) for day in range(days)),
        ],
        failovers=[failover(f"queue-{number}", -number * 5 - 4, -number * 5, number) for number in range(1_000)],
        backlog=[backlog(at, at // 1_440 % 50, 1, 1) for at in minutes],
        latency=[latency(at, f"queue-{at}", [1_000]) for at in minutes],
    )
    found = gather(tables, replace(question, entities=7))
    assert found.period is not None
    assert found.operations is not None
    assert found.backlog is not None
    assert len(found.period.pieces) <= REPORT_POINTS_MAX
    assert len(found.backlog.depth) == len(found.operations.stages["direct"]) == len(found.period.pieces)
    assert sum(found.operations.stages["direct"]) == days
    assert (len(found.entities), found.entities_count) == (7, 3_000)
    assert found.others is not None
    assert found.others.cost.units + sum(each.cost.units for each in found.entities) == found.stages["direct"].units
    assert found.others.stages == {"direct": found.others.cost.units}
    assert (len(found.episodes), found.episodes_count) == (REPORT_FAILOVERS, 1_000)
    assert (len(found.outages), found.outages_count) == (REPORT_FAILOVERS, 1_000)
    assert (len(found.latencies), len(found.queues)) == (7, 7)
    assert len(found.days) <= 62


def test_the_sessions_settings_are_as_they_were(spark: SparkSession, question: Question) -> None:
    names = ("spark.sql.adaptive.enabled", "spark.sql.codegen.wholeStage")
    before = [spark.conf.get(name) for name in names]
    gather(frames(spark), question)
    assert [spark.conf.get(name) for name in names] == before


def test_a_time_without_anything_is_a_period_all_the_same(spark: SparkSession, question: Question) -> None:
    found = gather(scenario.frames(spark), replace(question, start_s=START_S, end_s=START_S + 600))
    assert found.period is not None
    assert found.period.length_s == 600
    assert found.operations is found.backlog is found.latency is None


def test_lines_that_could_not_be_read_are_counted(spark: SparkSession, question: Question) -> None:
    rows = [("broker-1.jsonl", None, "not JSON", "x", scenario.minute(0))] * 3
    assert gather(frames(spark, quarantine=rows), question).quarantined == 3
