"""Time in which the process did not run does not count, and is reported when it matters."""

from __future__ import annotations

import asyncio
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus._pyamqp import sender as sdk_sender
from azure.servicebus._pyamqp.aio import _sender_async as sdk_sender_async

from tests.paired.pairs import Pair, call
from twinbus.limits import BEAT_S, BEAT_SLACK_S, STARVED_PAUSE_S, STARVED_S_MIN
from twinbus.paired import starvation
from twinbus.paired.starvation import FairClock, LagMeter, StarvationReport, async_meter, meter


class Stopwatch:
    """A clock that is set by hand."""

    now_s = 100.0

    def steady_s(self) -> float:
        return self.now_s


def measured() -> tuple[Any, LagMeter]:
    clock: Any = Stopwatch()
    return clock, LagMeter(clock)


def test_without_a_beat_all_time_counts() -> None:
    clock, lag = measured()
    clock.now_s += 1000
    assert lag.fair_s() == 1100
    lag.start()
    lag.stop()
    clock.now_s += 1000
    assert lag.fair_s() == 2100
    assert lag.lost_s == 0


def test_a_beat_that_is_late_takes_time_away() -> None:
    clock, lag = measured()
    lag.start()
    for _ in range(10):
        clock.now_s += BEAT_S + BEAT_SLACK_S
        lag.beat()
    assert lag.lost_s == pytest.approx(0), "not late"
    before = lag.fair_s()
    clock.now_s += 5
    stopped = lag.fair_s()
    assert stopped == pytest.approx(before + BEAT_S + BEAT_SLACK_S), "it stands while the beat is overdue"
    lag.beat()
    assert lag.fair_s() == pytest.approx(stopped), "it does not jump"
    assert lag.lost_s == pytest.approx(5 - BEAT_S - BEAT_SLACK_S)
    clock.now_s += 0.1
    assert lag.fair_s() == pytest.approx(stopped + 0.1)


def test_two_pairs_beat_one_meter() -> None:
    clock, lag = measured()
    lag.start()
    clock.now_s += 0.1
    lag.start()
    lag.stop()
    clock.now_s += 10
    assert lag.fair_s() < 101, "the other one still beats"
    lag.stop()
    lost_s = lag.lost_s
    clock.now_s += 10
    assert lag.fair_s() == pytest.approx(clock.now_s - lost_s)


def test_a_forked_child_beats_nothing() -> None:
    clock, lag = measured()
    lag.start()
    lag.reset()
    clock.now_s += 60
    assert lag.fair_s() == 160


def test_starvation_is_told_when_somebody_waits_and_not_too_often() -> None:
    clock, lag = measured()
    lag.start()
    report = StarvationReport(lag, clock)

    def starve(seconds: float) -> None:
        clock.now_s += BEAT_S + BEAT_SLACK_S + seconds
        lag.beat()

    starve(STARVED_S_MIN / 2)
    assert report.due(waiting=True) == 0, "too short"
    starve(STARVED_S_MIN / 2)
    assert report.due(waiting=True) == pytest.approx(1000 * STARVED_S_MIN, abs=1), "together it is long enough"
    starve(2)
    assert report.due(waiting=True) == 0, "told a moment ago"
    clock.now_s += STARVED_PAUSE_S
    lag.beat()
    assert report.due(waiting=True) > 2000
    starve(5)
    assert report.due(waiting=False) == 0, "nobody has noticed"
    clock.now_s += STARVED_PAUSE_S
    assert report.due(waiting=True) == 0


async def test_each_loop_has_its_meter_and_all_threads_have_one() -> None:
    assert async_meter() is async_meter()
    assert await asyncio.to_thread(meter) is meter()
    other: list[LagMeter] = []

    async def note() -> None:
        other.append(async_meter())

    await asyncio.to_thread(lambda: asyncio.run(note()))
    assert other[0] is not async_meter()
    outside: list[LagMeter] = []
    thread = threading.Thread(target=lambda: outside.append(async_meter()))
    thread.start()
    thread.join()
    assert outside == [starvation._IDLE]


async def test_the_sdk_measures_a_send_with_the_fair_clock() -> None:
    for lag, module in ((async_meter(), sdk_sender_async), (meter(), sdk_sender)):
        before = lag.lost_s
        lag.lost_s += 1000
        try:
            assert module.time.time() == pytest.approx(time.monotonic() - lag.lost_s, abs=30)  # type: ignore[attr-defined]
        finally:
            lag.lost_s = before


def test_a_fair_clock_is_fair_only_where_it_should_be() -> None:
    _, lag = measured()
    lag.lost_s = 40.0
    fair = FairClock(lag)
    assert fair.now_ms() == fair.steady_ms() == 60_000
    assert fair.steady_s() == pytest.approx(time.monotonic(), abs=30)
    assert fair.follow() == 0


@pytest.mark.parametrize("pair", ["aio"], indirect=True)
async def test_a_loop_that_was_blocked_is_not_the_primarys_fault(pair: Pair) -> None:
    """The loop stands still for longer than the interval and an attempt together, while a send is held."""
    async with pair.sender(failover_interval=2, try_timeout=2) as sender:
        await sender.send_messages(ServiceBusMessage("before"))
        with pair.primary.fault("refusing", "orders"):
            sending = asyncio.create_task(sender.send_messages(ServiceBusMessage("held")))
            while sender.paired_client.entity_states["orders"] != "suspect":
                await asyncio.sleep(0.001)
            time.sleep(4.5)
            assert not sender._entity.failed_over
        await sending
        assert pair.told("failed-over") == []
        (event,) = pair.told("starved")
        assert event.count >= 3_000
    await pair.in_primary(2)


async def test_a_pair_beats_while_it_is_open(pair: Pair) -> None:
    async with pair.sender() as sender:
        lag = sender.paired_client._pair.clock.meter
        beating = lag.beating
        await call(sender.send_messages, ServiceBusMessage("x"))
        assert beating >= 1
        assert isinstance(sender.paired_client._pair.clock, FairClock)
    for _ in range(1000):
        if lag.beating == beating - 1:
            break
        await asyncio.sleep(0.01)
    assert lag.beating == beating - 1
    await pair.in_primary(1)


def test_who_waits(pair: Pair) -> None:
    made = pair.make()._pair
    assert not made._is_waiting()
    gate = next(iter(made._gates.values()))
    gate.running = 1
    assert made._is_waiting()
    gate.running = 0
    made._links["x"] = SimpleNamespace(pool=SimpleNamespace(waiting=[1]))
    assert made._is_waiting()
    made._links.clear()
    made.entity("orders")._machine.failed()
    assert made._is_waiting()
