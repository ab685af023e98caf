"""What an outage cost, in one sentence."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from twinbus.spark.report.facts import Cost, CostReport, OutageSummary
from twinbus.spark.report.period import Period, instant
from twinbus.spark.report.sentence import account, headline, sentence

START_S = instant("2026-11-15T10:02Z")
OUTAGE = OutageSummary(
    started_s=START_S,
    ended_s=START_S + 740,
    entities=6,
    episodes=7,
    diverted=37_000,
    syphoned=37_000,
    dead_lettered=0,
    operations={"to-backlog": 37_000, "from-backlog": 37_000, "to-primary": 37_000, "ping": 54},
    units=111_054,
    list_amount=Decimal("0.0888432"),
    longest_ms=843_000,
)
REPORT = CostReport(
    period=Period.between(START_S - 3_600, START_S + 3_600),
    namespace=None,
    sheet="standard",
    currency="USD",
    outages=(OUTAGE,),
    outages_count=1,
    diverted=37_000,
    syphoned=37_000,
    failed_over_s=740,
    stages={"to-backlog": Cost(units=37_000), "direct": Cost(units=10**8, amount=Decimal(50))},
)


def test_one_outage_inside_the_included_operations() -> None:
    assert headline(REPORT) == (
        "The outage of 15 Nov 2026 10:02:00 to 10:14:20 UTC (12 min 20 s) diverted 37,000 messages of 6 entities: "
        "111,000 billed operations through the backlog and 54 pings, where direct sends would have taken 37,000; "
        "that is 0.09 USD at list price and 0.00 USD on the bill, which the included operations cover; "
        "the slowest message took 14 min 03 s through the backlog. "
        "Nothing lost: 37,000 of 37,000 diverted messages were brought home."
    )


def test_what_became_of_the_diverted_messages() -> None:
    assert account(replace(REPORT, diverted=0, syphoned=0)) == "Nothing lost: no message was diverted."
    assert account(replace(REPORT, syphoned=36_998, dead_lettered=2)) == (
        "Nothing lost: 36,998 of 37,000 diverted messages were brought home, and 2 are dead letters."
    )
    missing = account(replace(REPORT, syphoned=36_999))
    assert missing.startswith("36,999 of 37,000 diverted messages were brought home; 1 not yet")
    assert "Nothing lost" not in missing
    assert account(replace(REPORT, syphoned=37_003)).endswith(
        " 3 more came home: repeats, or sends that got no answer."
    )


def test_the_bill_is_not_repeated_when_it_is_the_list_price() -> None:
    text = sentence(OUTAGE, "EUR", OUTAGE.list_amount)
    assert "0.09 EUR at list price; the slowest" in text
    assert "on the bill" not in text
    assert "0.05 EUR on the bill; the slowest" in sentence(OUTAGE, "EUR", Decimal("0.05"))


def test_one_that_goes_on_and_has_brought_nothing_home() -> None:
    going = replace(OUTAGE, ended_s=None, longest_ms=None, operations={"to-backlog": 1}, diverted=1, entities=1)
    assert sentence(going, "USD") == (
        "The outage that began at 15 Nov 2026 10:02:00 UTC and is not over has diverted 1 message of 1 entity: "
        "1 billed operation "
        "through the backlog, where direct sends would have taken 1; that is 0.09 USD at list price."
    )


def test_one_that_diverted_nothing() -> None:
    idle = replace(OUTAGE, diverted=0, operations={"ping": 3}, longest_ms=None, list_amount=Decimal("0.0000024"))
    assert "diverted 0 messages of 6 entities: 3 pings; that is 0.0000024 USD at list price." in sentence(idle, "USD")


def test_several_outages_are_added_up() -> None:
    second = replace(OUTAGE, started_s=START_S + 3_000, ended_s=START_S + 3_060, longest_ms=900_000)
    text = headline(replace(REPORT, outages=(OUTAGE, second), outages_count=2, diverted=74_000, failed_over_s=800))
    assert text.startswith("2 outages with 13 min 20 s of failover diverted 74,000 messages: 222,000 billed operations")
    assert "108 pings" in text
    assert "0.18 USD at list price" in text
    assert "15 min through the backlog" in text
    unknown = headline(replace(REPORT, outages=(OUTAGE, second), outages_count=2, stages={}))
    assert "on the bill" not in unknown
    more = headline(replace(REPORT, outages=(OUTAGE, second), outages_count=50, diverted=10**6))
    assert "50 outages" in more
    assert "of the 2 largest, 222,000 billed operations" in more


def test_no_failover_and_no_tables() -> None:
    assert headline(replace(REPORT, outages=(), outages_count=0)).startswith("No failover in this period")
    assert headline(replace(REPORT, period=None)).startswith("The tables are empty")
