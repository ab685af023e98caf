"""Messages per second, from the growth of counters."""

from __future__ import annotations

from twinbus.broker.metering.rates import OTHERS, Rates
from twinbus.ledger.words import OK, Kind
from twinbus.limits import METRICS_ENTITIES_MAX, RATES_SAMPLES


def test_a_rate_is_the_average_of_the_last_seconds() -> None:
    rates = Rates()
    for count in (100, 10, 20, 30, 40, 50):
        rates.begin(1_000)
        rates.add("q", Kind.SEND, OK, count)
    assert rates.recent() == {"q": {"sent": 30.0, "received": 0.0, "completed": 0.0}}


def test_an_interval_that_lasted_longer_counts_as_such() -> None:
    rates = Rates()
    rates.begin(10_000)
    rates.add("q", Kind.RECEIVE, OK, 50)
    assert rates.recent()["q"]["received"] == 5
    assert rates.history("q") == {"span_ms": [10_000], "sent": [0], "received": [5], "completed": [0]}


def test_failures_and_questions_are_no_messages() -> None:
    rates = Rates()
    rates.begin(0)
    rates.add("q", Kind.SEND, "amqp:not-allowed", 5)
    rates.add("q", Kind.PEEK, OK, 5)
    assert rates.recent() == {}


def test_what_is_kept_is_bounded() -> None:
    rates = Rates()
    for _ in range(RATES_SAMPLES + 5):
        rates.begin(1_000)
    for number in range(METRICS_ENTITIES_MAX + 3):
        rates.add(f"q{number}", Kind.SEND, OK, 1)
    recent = rates.recent()
    assert len(recent) == METRICS_ENTITIES_MAX + 1
    assert sum(each["sent"] for each in recent.values()) > recent["q0"]["sent"] * METRICS_ENTITIES_MAX
    assert recent[OTHERS]["sent"] > recent["q0"]["sent"]
    assert len(rates.history("q0")["sent"]) == RATES_SAMPLES
