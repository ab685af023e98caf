"""Every figure of the page, recomputed from the ledger's files in plain Python, and the same wherever it appears."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from html import unescape
from typing import TYPE_CHECKING

import pytest

from tests.spark.report.morning import write_morning
from tests.spark.report.recount import Recount
from twinbus.ledger.prices import Sheet
from twinbus.plan.wording import amount, share, size, span
from twinbus.spark.ledger.pipeline import run
from twinbus.spark.ledger.tables import LedgerTables
from twinbus.spark.report.facts import CostReport
from twinbus.spark.report.gather import Question, gather
from twinbus.spark.report.page import page
from twinbus.spark.report.palette import STAGE_WORDS
from twinbus.spark.report.period import clock_text, moment
from twinbus.spark.report.sentence import CAUSED, headline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)

# Every tier is reached within the morning, and everything costs something.
SHEET = Sheet.parse(
    """
name = "steps"
currency = "USD"
[base]
per_hour = "0.0135"
[operations]
per = 1_000
step_bytes = 65_536
refused = false
free_kinds = ["complete"]
tiers = [{ up_to = 100_000, price = "0" }, { up_to = 500_000, price = "0.80" }, { price = "0.50" }]
[connections]
hours = 744
tiers = [{ price = "0.03" }]
[bandwidth]
tiers = [{ up_to = 1, price = "0" }, { price = "0.02" }]
""",
    "the test's sheet",
)
# The price of units once the included ones are used up.
LIST = Fraction("0.80") / 1_000


@dataclass
class Both:
    """The test's own count of a ledger, and the report's page of it."""

    ledger: Recount
    report: CostReport
    text: str

    @property
    def tiles(self) -> dict[str, str]:
        found = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", self.text)
        return {unescape(name): unescape(value) for name, value in found}

    def rows(self, title: str) -> list[dict[str, str]]:
        """A table of the page, row by row."""
        found = re.search(rf'aria-label="{re.escape(title)}">\n<table>(.*?)</table>', self.text, re.DOTALL)
        assert found is not None, title
        head, *plain = (
            [unescape(re.sub(r"<[^>]*>", "", cell)) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)]
            for row in re.findall(r"<tr.*?</tr>", found[1])
        )
        return [dict(zip(head, row, strict=True)) for row in plain]

    def named(self, title: str) -> dict[str, dict[str, str]]:
        """The same by its first column."""
        found = {next(iter(row.values())): row for row in self.rows(title)}
        assert len(found) == len(self.rows(title))
        return found


@pytest.fixture(scope="module", params=[60_000, 1_000], ids=["two hours", "two minutes"])
def both(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Both:
    folder = tmp_path_factory.mktemp("morning")
    write_morning(folder / "ledger", step_ms=request.param)
    run(spark, [folder / "ledger"], folder / "tables", SHEET)
    question = Question(sheet=SHEET, entities=100)
    report = gather(LedgerTables(spark, folder / "tables"), question, [folder / "ledger"])
    return Both(Recount(folder / "ledger", SHEET), report, page(report))


def whole(value: int) -> str:
    return f"{value:,}"


def money(value: Fraction) -> str:
    return amount(Decimal(value.numerator) / Decimal(value.denominator))


def by_second(both: Both) -> bool:
    return both.ledger.last_s - both.ledger.first_s < 3_600


def test_the_period_and_its_pieces(both: Both) -> None:
    period = both.report.period
    assert period is not None
    assert period.start_s == both.ledger.first_s
    assert period.width_s == (1 if by_second(both) else 60)
    # The last record is the syphon's, within the last minute; by the second it is the end.
    assert 0 < period.end_s - both.ledger.last_s <= (1 if by_second(both) else 60)
    form = "%H:%M:%S" if by_second(both) else "%H:%M"
    ends = [moment(each).strftime(form) for each in (period.start_s, period.end_s)]
    assert f"16 Nov 2026 {ends[0]} to {ends[1]} UTC" in both.text


def test_the_figures_at_the_top(both: Both) -> None:
    ledger, shown = both.ledger, both.tiles
    outages = ledger.outages()
    lasted = sum(max(each.end_ms for each in some) - min(each.start_ms for each in some) for some in outages)
    missing = ledger.events["diverted"] - ledger.events["syphoned"] - ledger.events["dead-lettered"]
    bill = sum((ledger.charged(stage=stage).bill for stage in CAUSED), Fraction(0))
    assert shown == {
        "messages sent": whole(ledger.flow("send", "direct", "to-backlog")),
        "deliveries to receivers": whole(ledger.flow("receive", "direct")),
        "messages diverted": whole(ledger.events["diverted"]),
        "brought home": whole(ledger.events["syphoned"]),
        "brought home twice": "0" if missing >= 0 else f"at most {-missing:,}",
        "lost": "0" if missing <= 0 else f"{missing:,} not home yet",
        "failed over": span(lasted / 1000),
        "slowest through the backlog": span(max(each.max_ms for each in ledger.times) / 1000),
        "most in the backlog": whole(max(ledger.held()) if by_second(both) else ledger.deepest_by_minute()),
        "operations": whole(ledger.counts().total()),
        "USD on the bill for outages": money(bill),
        "USD on the bill in all": money(ledger.charged().bill),
    }
    assert bill > 0
    assert ledger.charged().bill > bill


def test_operations_over_time(both: Both) -> None:
    ledger, period = both.ledger, both.report.period
    assert period is not None
    unit, unit_s = ("second", 1) if by_second(both) else ("minute", 60)
    length = Fraction(period.end_s - period.start_s, unit_s)
    counts, billed, pieces = ledger.counts(), ledger.counts(billed=True), ledger.by_piece(unit_s)
    found = both.named("Operations over time")
    assert set(found) == {STAGE_WORDS[stage] for stage in counts}
    for stage, total in counts.items():
        row = found[STAGE_WORDS[stage]]
        assert row["operations"] == whole(total), stage
        assert row["billed"] == whole(billed[stage]), stage
        assert row[f"a {unit}"] == f"{float(total / length):,.1f}", stage
        assert row[f"a {unit} at most"] == f"{max(pieces[stage].values()):,.1f}", stage


def test_cost_by_stage_and_by_entity(both: Both) -> None:
    ledger = both.ledger
    stages = {stage for _, stage, _ in ledger.charges}
    assert stages >= {"bandwidth", "base", *CAUSED}
    found = both.named("Cost by stage")
    assert set(found) == {*(STAGE_WORDS[stage] for stage in stages), "all"}
    listed = Fraction(0)
    for stage in stages:
        row, wanted = found[STAGE_WORDS[stage]], ledger.charged(stage=stage)
        fixed = stage in ("bandwidth", "base", "connections")
        listed += wanted.bill if fixed else wanted.units * LIST
        assert row["billed operations"] == ("" if fixed else whole(wanted.count)), stage
        assert row["units"] == ("" if fixed else whole(wanted.units)), stage
        assert row["USD on the bill"] == money(wanted.bill), stage
        assert row["USD at list price"] == money(wanted.bill if fixed else wanted.units * LIST), stage
    total = ledger.charged()
    assert list(found["all"].values())[1:] == [whole(total.count), whole(total.units), money(total.bill), money(listed)]
    names = {(namespace, entity) for namespace, stage, entity in ledger.charges if stage not in ("bandwidth", "base")}
    rows = {(row["namespace"], row["entity"]): row for row in both.rows("Cost by entity")}
    assert set(rows) == names
    for name, row in rows.items():
        parts = [each for key, each in ledger.charges.items() if (key[0], key[2]) == name and key[1] != "bandwidth"]
        units = sum(each.units for each in parts)
        assert row["billed operations"] == whole(sum(each.count for each in parts)), name
        assert row["units"] == whole(units), name
        assert row["USD on the bill"] == money(sum((each.bill for each in parts), Fraction(0))), name
        assert row["USD at list price"] == money(units * LIST), name


def test_each_outage(both: Both) -> None:
    ledger, rows = both.ledger, both.rows("What each outage cost")
    outages = ledger.outages()
    assert len(rows) == len(outages) == 2
    # An outage's operations are counted by the minute, from its first to the first of the next outage.
    starts = [min(each.start_ms for each in some) // 60_000 * 60 for some in outages]
    for at, (row, some) in enumerate(zip(rows, outages, strict=True)):
        began, ended = min(each.start_ms for each in some), max(each.end_ms for each in some)
        until = starts[at + 1] if at + 1 < len(starts) else 2**40
        billed = ledger.counts(billed=True, since_s=starts[at], until_s=until)
        late = [each.max_ms for each in ledger.times if starts[at] <= each.start_ms // 1000 < until]
        units = sum(
            each.units
            for each, stage, count in ledger.operations
            if stage in CAUSED
            and count > 0
            and starts[at] <= each.start_ms // 1000 < until
            and each.kind not in SHEET.free_kinds
            and each.outcome == "ok"
        )
        assert row == {
            "began (UTC)": clock_text(began / 1000, seconds=True),
            "lasted": span((ended - began) / 1000),
            "entities": whole(len({each.entity for each in some})),
            "diverted": whole(sum(each.messages["diverted"] for each in some)),
            **{STAGE_WORDS[stage]: whole(billed[stage]) for stage in CAUSED},
            "USD at list price": money(units * LIST),
            "slowest": span(max(late) / 1000) if late else "-",
        }


def test_each_failover(both: Both) -> None:
    wanted = [
        {
            "entity": each.entity,
            "began (UTC)": f"16 Nov {moment(each.start_ms / 1000):%H:%M:%S}",
            "lasted": span((each.end_ms - each.start_ms) / 1000),
            "cause": each.cause,
            "diverted": whole(each.messages["diverted"]),
            "brought home": whole(each.messages["syphoned"]),
            "dead-lettered": whole(each.messages["dead-lettered"]),
        }
        for each in both.ledger.spells
    ]
    assert sorted(map(str, both.rows("Failovers"))) == sorted(map(str, wanted))


def test_the_sentence_has_the_figures_of_the_tables(both: Both) -> None:
    ledger, told = both.ledger, headline(both.report)
    assert told in unescape(both.text)
    rows = both.rows("What each outage cost")
    moved = sum(int(row[STAGE_WORDS[stage]].replace(",", "")) for row in rows for stage in CAUSED if stage != "ping")
    pings = sum(int(row[STAGE_WORDS["ping"]].replace(",", "")) for row in rows)
    assert f"{moved:,} billed operations through the backlog and {pings:,} pings" in told
    assert f"{both.tiles['failed over']} of failover diverted {ledger.events['diverted']:,} messages" in told
    assert f"{both.tiles['USD on the bill for outages']} USD on the bill" in told
    assert f"the slowest message took {both.tiles['slowest through the backlog']}" in told
    assert ("Nothing lost" in told) == (both.tiles["lost"] == "0")


def test_backlog_queues(both: Both) -> None:
    ledger, found = both.ledger, both.named("Backlog queues at their fullest")
    queues = {look.entity for look in ledger.looks}
    assert set(found) == queues
    looked = {name: [look for look in ledger.looks if look.entity == name] for name in queues}
    most = {
        name: max(ledger.held(name)) if by_second(both) else max(look.depth for look in looked[name]) for name in queues
    }
    for name, row in found.items():
        assert row["most messages"] == whole(most[name]), name
        assert row["share"] == (share(most[name] / sum(most.values()))), name
        assert row["dead letters"] == whole(max(look.dead for look in looked[name])), name
        seen = max(look.depth_bytes for look in looked[name]), max(look.oldest_ms for look in looked[name]) / 1000
        size_bytes, oldest_s = (ledger.held_bytes(name), ledger.oldest_s(name)) if by_second(both) else seen
        assert row["most bytes"] == size(size_bytes), name
        assert row["oldest"] == span(oldest_s), name


def test_times_through_the_backlog(both: Both) -> None:
    found = both.named("Time through the backlog")
    entities = {each.entity for each in both.ledger.times}
    assert set(found) == {"all entities", *entities}
    for name, row in found.items():
        wanted = both.ledger.latency(None if name == "all entities" else name)
        assert row["messages"] == whole(wanted.count), name
        assert row["mean"] == span(float(wanted.mean_ms) / 1000), name
        for title, part in (("half", "1/2"), ("95 %", "19/20"), ("99 %", "99/100")):
            assert row[f"{title} within"] == span(float(wanted.within_ms(Fraction(part))) / 1000), (name, title)
        assert row["slowest"] == span(wanted.max_ms / 1000), name
