"""Every figure of the page, recomputed from the ledger's files in plain Python, and the same wherever it appears."""

from __future__ import annotations

import re
from collections import Counter
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.report.morning import write_morning
from twinbus.ledger.files import complete_files
from twinbus.ledger.prices import Sheet
from twinbus.ledger.records import Backlog, FailoverEvent, Latency, Operations, decode
from twinbus.plan.bill import list_amount
from twinbus.plan.wording import amount, span
from twinbus.spark.ledger.pipeline import run
from twinbus.spark.ledger.tables import LedgerTables
from twinbus.spark.report.facts import CostReport
from twinbus.spark.report.gather import Question, gather
from twinbus.spark.report.page import page
from twinbus.spark.report.palette import STAGE_WORDS
from twinbus.spark.report.sentence import CAUSED, headline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)

SHEET = Sheet.load("standard")


class Ledger:
    """The content of the files, summed without Spark."""

    def __init__(self, folder: Path) -> None:
        records = [decode(line) for path in complete_files(folder) for line in path.read_bytes().splitlines()]
        told = {each.namespace for each in records if isinstance(each, Operations) and each.source == "broker"}
        self.operations: Counter[str] = Counter()
        self.billed: Counter[str] = Counter()
        self.units: Counter[str] = Counter()
        self.sent = self.received = 0
        self.events: Counter[str] = Counter()
        self.depths: Counter[str] = Counter()
        looks: Counter[tuple[int, str]] = Counter()
        self.times: list[Latency] = []
        for each in records:
            if isinstance(each, Operations):
                self._operation(each, told)
            elif isinstance(each, FailoverEvent):
                self.events[each.event] += each.count
            elif isinstance(each, Latency):
                self.times.append(each)
            elif isinstance(each, Backlog):
                self.depths[each.entity] = max(self.depths[each.entity], each.depth)
                at = (each.start_ms // 60_000, each.entity)
                looks[at] = max(looks[at], each.depth)
        minutes: Counter[int] = Counter()
        for (minute, _), depth in looks.items():
            minutes[minute] += depth
        self.fullest = max(minutes.values())

    def _operation(self, each: Operations, told: set[str]) -> None:
        """A broker saw every operation of its namespace except pings that never came; the syphon knows its own
        sends."""
        broker = each.source == "broker"
        home = each.source == "syphon" and each.stage == "to-primary"
        lost = each.stage == "ping" and each.outcome != "ok"
        if each.namespace in told and not (broker or lost or home):
            return
        assert each.namespace in told, "the morning has a broker's ledger of each namespace"
        self._count(str(each.stage), each, 1)
        if home:
            # The broker recorded the same send as direct.
            self._count("direct", each, -1)

    def _count(self, stage: str, each: Operations, sign: int) -> None:
        self.operations[stage] += sign * each.count
        if each.kind in SHEET.free_kinds or (each.outcome != "ok" and not SHEET.refused):
            return
        self.billed[stage] += sign * each.count
        self.units[stage] += sign * SHEET.units(each.count, each.units)
        if each.outcome == "ok" and each.kind == "send" and stage in ("direct", "to-backlog"):
            self.sent += sign * each.count
        if each.outcome == "ok" and each.kind == "receive" and stage == "direct":
            self.received += sign * each.count


@pytest.fixture(scope="module")
def both(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Ledger, CostReport, str]:
    folder = tmp_path_factory.mktemp("morning")
    write_morning(folder / "ledger")
    run(spark, [folder / "ledger"], folder / "tables", SHEET)
    report = gather(LedgerTables(spark, folder / "tables"), Question(sheet=SHEET, entities=100))
    return Ledger(folder / "ledger"), report, page(report)


def tiles(text: str) -> dict[str, str]:
    return {unescape(name): unescape(value) for name, value in re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", text)}


def rows(text: str, title: str) -> dict[str, dict[str, str]]:
    """A table of the page by its first column."""
    found = re.search(rf'aria-label="{re.escape(title)}">\n<table>(.*?)</table>', text, re.DOTALL)
    assert found is not None, title
    plain = [
        [unescape(re.sub(r"<[^>]*>", "", cell)) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)]
        for row in re.findall(r"<tr.*?</tr>", found[1])
    ]
    return {row[0]: dict(zip(plain[0], row, strict=True)) for row in plain[1:]}


def number(text: str) -> int:
    return int(text.replace(",", ""))


def test_the_figures_at_the_top(both: tuple[Ledger, CostReport, str]) -> None:
    ledger, _, text = both
    shown = tiles(text)
    assert number(shown["messages sent"]) == ledger.sent
    assert number(shown["messages received"]) == ledger.received
    assert number(shown["messages diverted"]) == ledger.events["diverted"]
    assert number(shown["brought home"]) == ledger.events["syphoned"]
    missing = ledger.events["diverted"] - ledger.events["syphoned"] - ledger.events["dead-lettered"]
    assert shown["lost"] == ("0" if missing <= 0 else f"{missing:,} not home yet")
    assert shown["repeated"] == ("0" if missing >= 0 else f"at most {-missing:,}")
    assert number(shown["operations"]) == sum(ledger.operations.values())
    assert number(shown["most in the backlog"]) == ledger.fullest
    assert shown["slowest through the backlog"] == span(max(each.max_ms for each in ledger.times) / 1000)


def test_operations_by_stage_are_the_same_in_every_table(both: tuple[Ledger, CostReport, str]) -> None:
    ledger, _, text = both
    counts, costs = rows(text, "Operations a minute"), rows(text, "Cost by stage")
    for stage, total in ledger.operations.items():
        word = STAGE_WORDS[stage]
        assert number(counts[word]["operations"]) == total, stage
        assert number(counts[word]["billed"]) == ledger.billed[stage], stage
        assert number(costs[word]["billed operations"]) == ledger.billed[stage], stage
        assert number(costs[word]["units"]) == ledger.units[stage], stage
        assert costs[word]["USD at list price"] == amount(list_amount(SHEET, ledger.units[stage])), stage
    outages = rows(text, "What each outage cost").values()
    for stage in CAUSED:
        assert sum(number(each[STAGE_WORDS[stage]]) for each in outages) == ledger.billed[stage], stage
    assert sum(number(each["diverted"]) for each in outages) == ledger.events["diverted"]
    by_entity = rows(text, "Cost by entity").values()
    assert sum(number(each["units"]) for each in by_entity) == sum(ledger.units.values())


def test_the_sentence_has_the_figures_of_the_tables(both: tuple[Ledger, CostReport, str]) -> None:
    ledger, report, text = both
    told = headline(report)
    assert told in unescape(text)
    moved = sum(ledger.billed[stage] for stage in CAUSED if stage != "ping")
    assert f"{moved:,} billed operations through the backlog" in told
    assert f"{ledger.billed['ping']:,} ping" in told
    assert f"{ledger.events['diverted']:,} messages" in told
    assert ("Nothing lost" in told) == (tiles(text)["lost"] == "0")
    bill = tiles(text)["USD on the bill for outages"]
    assert f"{bill} USD on the bill" in told or f"USD {bill} on the bill" in told or "on the bill" not in told


def test_backlog_failovers_and_times(both: tuple[Ledger, CostReport, str]) -> None:
    ledger, report, text = both
    queues = rows(text, "Backlog queues at their fullest")
    assert {name: number(each["most messages"]) for name, each in queues.items()} == dict(ledger.depths)
    failovers = rows(text, "Failovers")
    assert len(failovers) <= len({each.entity for each in report.episodes})
    assert sum(each.diverted for each in report.episodes) == ledger.events["diverted"]
    times = rows(text, "Time through the backlog")["all entities"]
    count = sum(each.count for each in ledger.times)
    assert number(times["messages"]) == count
    assert times["mean"] == span(sum(each.sum_ms for each in ledger.times) / count / 1000)
