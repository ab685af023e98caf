"""The page: complete, self-contained, reproducible, and safe against malicious names."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from tests.spark.report.scenario import NASTY, START_S
from twinbus.spark.report import charts, listing
from twinbus.spark.report.drawing import shown
from twinbus.spark.report.facts import CostReport
from twinbus.spark.report.page import numbers, page
from twinbus.spark.report.period import Period

# The first test that asks for a report waits for it, and for Spark's start.
pytestmark = pytest.mark.timeout(180)

VOID = {"meta", "br", "hr", "img", "link", "input"}


class Reader(HTMLParser):
    """Reads a page as a browser does: tags in order, texts, and whether every tag is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_every_section_has_its_charts_and_tables(outage: CostReport) -> None:
    text = page(outage)
    found = Reader(text)
    headings = re.findall(r"<h2>(.*?)</h2>", text)
    assert headings == [
        "Outages",
        "Backlog",
        "Time through the backlog",
        "Operations over time",
        "Cost by stage",
        "Cost by entity",
    ]
    tags = [tag for tag, _ in found.tags]
    assert (tags.count("figure"), tags.count("svg"), tags.count("figcaption")) == (6, 6, 6)
    assert tags.count("table") == 7
    for tag, attributes in found.tags:
        if tag == "svg":
            assert attributes["role"] == "img"
            for one in str(attributes["aria-labelledby"]).split():
                assert any(each.get("id") == one for _, each in found.tags)
    ids = [str(each["id"]) for _, each in found.tags if "id" in each]
    assert len(ids) == len(set(ids))


def test_nothing_is_loaded_and_nothing_runs(outage: CostReport) -> None:
    text = page(outage)
    found = Reader(text)
    assert not {"script", "link", "img", "iframe", "object", "foreignobject"} & {tag for tag, _ in found.tags}
    for _, attributes in found.tags:
        assert not any(name.startswith("on") for name in attributes)
        for name in ("src", "href", "xlink:href"):
            assert str(attributes.get(name, "#")).startswith("#")
    assert not re.findall(r"url\((?!#)|@import", text)
    assert "default-src &#x27;none&#x27;" in text


def test_names_are_text_and_nothing_else(nasty: CostReport) -> None:
    written = page(nasty)
    found = Reader(written)
    assert "script" not in {tag for tag, _ in found.tags}
    texts = [text.strip() for text in found.texts]
    for name in NASTY:
        # In the tables of failovers, times and costs, and in the charts.
        assert texts.count(shown(name)) >= 3, name
    assert "\x1b" not in written


def test_the_same_facts_give_the_same_bytes(outage: CostReport) -> None:
    first = page(outage, 1_763_200_000)
    assert page(outage, 1_763_200_000) == first
    assert "Written 15 Nov 2025 09:46 UTC." in first
    assert first.replace(" Written 15 Nov 2025 09:46 UTC.", "") == page(outage)


def test_the_large_numbers(outage: CostReport) -> None:
    assert dict(numbers(outage)) == {
        "messages sent": "54,000",
        "deliveries to receivers": "36,000",
        "messages diverted": "18,000",
        "brought home": "18,000",
        "brought home twice": "0",
        "lost": "0",
        "failed over": "9 min 30 s",
        "slowest through the backlog": "10 min",
        "most in the backlog": "15,000",
        "operations": f"{108_000 + 18_000 + 36_000 + 18_000 + 38:,}",
        "USD on the bill for outages": "0.04",
        "USD on the bill in all": "0.69",
    }


def test_empty_tables_give_an_honest_page(empty: CostReport) -> None:
    text = page(empty)
    Reader(text)
    assert "The tables are empty" in text
    assert "<figure" not in text


def test_a_quiet_period_says_so(empty: CostReport) -> None:
    text = page(replace(empty, period=Period.between(START_S, START_S + 600), quarantined=2))
    Reader(text)
    for said in (
        "No failover in this period: every message was sent directly.",
        "No backlog queue was measured",
        "No message came through the backlog",
        "No operation in this period",
        "No charges by the price sheet standard",
        "2 lines of the ledger could not be read",
    ):
        assert said in text
    assert "<figure" not in text


def test_an_outage_that_goes_on_is_drawn_and_said(outage: CostReport) -> None:
    episodes = tuple(replace(each, ended_s=None) for each in outage.episodes)
    outages = tuple(replace(each, ended_s=None) for each in outage.outages)
    text = page(replace(outage, episodes=episodes, outages=outages))
    assert "The outage that began at 15 Nov 2026 09:10:00 UTC and is not over has diverted" in text
    assert text.count("ongoing") >= 3


def test_several_days_are_stacked(outage: CostReport) -> None:
    (day,) = outage.days
    days = tuple(replace(day, start_s=day.start_s + number * 86_400) for number in range(5))
    one, several = (charts.stages(replace(outage, days=each)) for each in (outage.days, days))
    assert one is not None
    assert several is not None
    assert several.count("var(--to-backlog)") > one.count("var(--to-backlog)")


def test_stages_of_tomorrow_have_a_colour_and_no_class(outage: CostReport) -> None:
    wild = '"><script>'
    text = page(replace(outage, stages={**outage.stages, wild: outage.stages["direct"]}))
    assert "script" not in {tag for tag, _ in Reader(text).tags}
    assert "background:var(--other)" in text


def test_one_moment_is_enough_for_every_chart(outage: CostReport) -> None:
    short = Period.between(START_S, START_S + 60)
    assert outage.operations is not None
    assert outage.backlog is not None
    operations = replace(outage.operations, stages={"direct": (1,)})
    names = ("depth", "fullest", "depth_bytes", "oldest_ms", "dead")
    backlog = replace(outage.backlog, **{name: (None if name == "dead" else 0,) for name in names})
    report = replace(outage, period=short, operations=operations, backlog=backlog)
    for make in (charts.operations, charts.backlog, charts.failovers):
        drawn = make(report)
        assert drawn is not None
        assert drawn.startswith("<svg")


def test_tables_say_what_they_leave_out(outage: CostReport) -> None:
    short = replace(outage, episodes_count=50, outages_count=9, queues_count=30, latencies_count=12)
    assert "The 3 that diverted most; 47 others not shown." in listing.failovers(short).note
    assert "8 others not shown" in listing.outages(short).note
    assert "26 other queues not shown." in listing.queues(short).note
    assert "9 other entities not shown" in listing.latency(short).note
