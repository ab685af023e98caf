"""The plan against known figures, and against a step-by-step simulation with the real rotation."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from random import Random
from statistics import fmean, stdev

import pytest

from twinbus.clock import SteppedClock
from twinbus.errors import ConfigError
from twinbus.ledger.prices import GIGABYTE, Sheet, Tier, Tiers
from twinbus.ledger.words import Stage
from twinbus.limits import PING_BYTES
from twinbus.paired.rotation import Rotation
from twinbus.plan.load import Load
from twinbus.plan.outage import backlog_at, idle_polls, outage_of
from twinbus.plan.plan import plan_of, spread_of

STANDARD = Sheet.load("standard")


def test_ten_idle_queues() -> None:
    assert idle_polls(10, 3_600) == 40
    assert idle_polls(10, 86_400) == 960
    assert idle_polls(10, 30 * 86_400) == 28_800
    plan = plan_of(Load(outage_s=0), STANDARD)
    assert (plan.polls_hour, plan.polls_day, plan.polls_month) == (40, 960, 28_800)
    assert plan.bill.idle_month == 28_800
    assert plan.outage.diverted == plan.outage.pings == plan.bill.count == 0


def test_a_diverted_message_takes_four_operations() -> None:
    plan = plan_of(Load(rate=100, outage_s=600), STANDARD)
    messages = plan.outage.diverted
    assert messages == 60_000
    by_stage = {line.stage: line.count for line in plan.bill.lines}
    assert by_stage == {
        Stage.TO_BACKLOG: messages,
        Stage.FROM_BACKLOG: messages,
        Stage.TO_PRIMARY: messages,
        Stage.DIRECT: messages,
        Stage.PING: 9,
    }
    assert plan.bill.count == 4 * messages + 9
    assert plan.bill.direct_count == 2 * messages
    assert plan.bill.extra_count == 2 * messages + 9


def test_large_messages_count_for_several_units() -> None:
    plan = plan_of(Load(rate=10, outage_s=600, size_bytes=96 * 1024), STANDARD)
    assert plan.load.units == 2
    assert plan.bill.units == 8 * plan.outage.diverted + plan.outage.pings


def test_bandwidth_is_that_of_four_stages_and_of_pings() -> None:
    load = Load(rate=100, outage_s=600, size_bytes=10_000)
    dear = replace(STANDARD, bandwidth=Tiers(GIGABYTE, (Tier(GIGABYTE, Decimal(0)), Tier(None, Decimal("0.02")))))
    bill = plan_of(load, dear).bill
    carried = 60_000 * 2 * (10_000 + load.backlog_bytes) + 9 * PING_BYTES
    assert bill.bandwidth_bytes == carried
    assert bill.bandwidth_list_amount == Decimal("0.02") * carried / GIGABYTE
    assert plan_of(load, STANDARD).bill.bandwidth_list_amount == 0


def test_the_bill_by_the_month_and_at_list_price() -> None:
    load = Load(rate=1_000, outage_s=600)
    cheap, dear = plan_of(load, STANDARD).bill, plan_of(load, STANDARD, used=13_000_000).bill
    assert cheap.amount == cheap.extra_amount == 0
    assert cheap.list_amount == Decimal("0.80") * cheap.units / 1_000_000
    assert dear.amount == dear.list_amount == cheap.list_amount
    # At the border: only what the included units do not cover is charged.
    edge = plan_of(load, STANDARD, used=13_000_000 - cheap.direct_units - 1).bill
    assert edge.extra_amount == Decimal("0.80") * (edge.extra_units - 1) / 1_000_000
    assert plan_of(load, Sheet.load("free")).bill.list_amount == 0


@pytest.mark.parametrize(
    ("outage_s", "interval_s", "ping_s", "pings", "back_s"),
    [(600, 60, 60, 9, 600), (601, 60, 60, 10, 660), (61, 60, 60, 1, 120), (100, 0, 30, 4, 120), (60, 60, 60, 0, 60)],
)
def test_pings_and_the_way_back(outage_s: float, interval_s: float, ping_s: float, pings: int, back_s: float) -> None:
    load = Load(
        clients=3, senders=4, entities=2, outage_s=outage_s, failover_interval_s=interval_s, ping_interval_s=ping_s
    )
    course = outage_of(load)
    assert (course.pings_each, course.back_s) == (pings, back_s)
    # One task per entity and client; four senders serve two entities.
    assert course.pings == pings * 6
    assert course.fails_over == bool(pings)


def test_an_entity_that_no_sender_serves_is_not_pinged() -> None:
    assert Load(clients=3, senders=1, entities=5).pinged == 3


def acted_out(load: Load) -> tuple[int, int, dict[int, int], int]:
    """Simulate second by second; return messages diverted, pings, the backlog at some times, and when it is empty."""
    held = backlog = diverted = pings = 0
    failed_over, due, now = False, 0, 0
    seen = {}
    back = False
    while True:
        down = now < load.outage_s
        if not back and not failed_over and now >= load.failover_interval_s and down:
            failed_over, due = True, now + round(load.ping_interval_s)
            backlog, diverted, held = held, held, 0
        if failed_over and now == due:
            pings += load.pinged
            due += round(load.ping_interval_s)
            if not down:
                failed_over, back = False, True
        seen[now] = backlog
        if back:
            if backlog <= 0:
                return diverted, pings, seen, now
            backlog -= round(load.drain_rate)
        elif failed_over:
            backlog += round(load.rate)
            diverted += round(load.rate)
        elif down:
            held += round(load.rate)
        now += 1


@pytest.mark.parametrize("outage_s", [61, 300, 900, 1_801])
def test_the_outage_acted_out(outage_s: int) -> None:
    load = Load(clients=2, senders=3, entities=3, rate=100, outage_s=outage_s, drain_rate=1_000, ping_interval_s=45)
    course = outage_of(load)
    diverted, pings, seen, empty_s = acted_out(load)
    assert (course.diverted, course.pings) == (diverted, pings)
    assert course.drained_s == pytest.approx(empty_s, abs=1)
    for at, depth in seen.items():
        assert backlog_at(load, course, at) == pytest.approx(max(depth, 0), abs=load.rate + 1), at


def test_the_real_rotation_spreads_as_the_closed_form_says() -> None:
    load = Load(clients=10, senders=4, queues=8)
    rng = Random(11)
    rotation = Rotation(map(str, range(8)), pause_ms=0, clock=SteppedClock(), rng=rng)
    fullest, empty = [], []
    for _ in range(2_000):
        picks = Counter(rotation.pick() for _ in range(load.writers))
        fullest.append(max(picks.values()) / load.writers)
        empty.append(8 - len(picks))
    spread = spread_of(load, 8)
    assert spread.exact
    assert abs(fmean(fullest) - spread.share) < 4 * stdev(fullest) / math.sqrt(2_000)
    assert abs(fmean(empty) - spread.empty) < 4 * stdev(empty) / math.sqrt(2_000)
    assert sum(each <= spread.share_95 for each in fullest) >= 0.94 * 2_000


def test_a_queue_that_fills_up_is_warned_of() -> None:
    plan = plan_of(Load(clients=5, senders=4, rate=2_000, size_bytes=8_000, outage_s=3 * 3_600), STANDARD)
    (warning,) = (each for each in plan.warnings if "full after" in each)
    assert "All 10 backlog queues together are full after" in warning
    # 10 queues of 5 GB, 2,000 messages a second of 8,256 bytes.
    assert plan.fill.all_full_s == pytest.approx(10 * 5 * 1024**3 / (2_000 * 8_256))
    assert plan.fill.full_s < plan.fill.all_full_s


def test_the_number_of_queues_that_is_needed_is_the_least() -> None:
    load = Load(clients=50, senders=4, rate=1_000, size_bytes=4_000, outage_s=2 * 3_600)
    plan = plan_of(load, STANDARD)
    needed = plan.queues_needed
    assert needed is not None
    for queues, safe in ((needed, True), (needed - 1, False)):
        spread = spread_of(load, queues)
        holds = spread.share_95 * plan.outage.diverted * load.backlog_bytes <= load.queue_bytes_max
        assert holds is safe
    assert "may be full" in " ".join(plan.warnings) or plan.load.queues >= needed


def test_one_sender_that_overfills_every_queue_has_no_number() -> None:
    plan = plan_of(Load(rate=1_000, size_bytes=100_000, outage_s=3_600), STANDARD)
    assert plan.queues_needed is None
    # 3,600,000 messages of 100,256 bytes.
    assert plan.queues_least == 68
    assert any("68 queues are the least that hold it)" in each for each in plan.warnings)


def test_a_short_outage_diverts_nothing_and_says_so() -> None:
    plan = plan_of(Load(outage_s=30), STANDARD)
    assert plan.outage.held == 3_000
    assert any("No failover" in each for each in plan.warnings)


def test_unequal_senders_spread_worse_and_are_an_estimate() -> None:
    alike, unlike = (spread_of(Load(clients=50, senders=2, skew=skew), 10) for skew in (0.0, 1.0))
    assert unlike.share > alike.share
    assert unlike.deviation > alike.deviation
    assert alike.exact
    assert not unlike.exact
    assert sum(Load(clients=50, skew=1.0).weights()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"clients": 0}, "clients is 0: it must be from 1 to"),
        ({"queues": 1_000_001}, "queues is 1000001"),
        ({"clients": 2_000, "senders": 2_000}, "4,000,000 senders are too many"),
        ({"rate": math.nan}, "rate is nan"),
        ({"size_bytes": 100 * 1024 * 1024 + 1}, "size_bytes is 104857601"),
        ({"outage_s": 30 * 86_400 + 1}, "outage_s is 2592001"),
        ({"failover_interval_s": 3_601}, "failover_interval_s is 3601"),
        ({"ping_interval_s": 0.5}, "ping_interval_s is 0.5: it must be from 1 to 1,800"),
        ({"drain_rate": 0}, "drain_rate is 0"),
        ({"skew": 4}, "skew is 4"),
    ],
)
def test_what_is_out_of_range_is_refused(wrong: dict[str, float], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Load(**wrong)  # type: ignore[arg-type]


def test_the_envelope_is_not_larger_than_the_plan_says() -> None:
    from azure.servicebus import ServiceBusMessage

    from twinbus.limits import PLAN_ENVELOPE_BYTES
    from twinbus.paired.envelope import encoded, wrap

    (payload,) = encoded(ServiceBusMessage(b"x" * 1_000, session_id="s" * 30, message_id="m"))
    assert len(wrap(payload, "p" * 150)) - len(payload) <= PLAN_ENVELOPE_BYTES
