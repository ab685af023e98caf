"""Listeners may be async and slow: they get every event in order, and no send waits for them."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from tests.paired.pairs import Pair, call
from twinbus.clock import SteppedClock
from twinbus.ledger.words import Event
from twinbus.paired.events import Events, PairedEvent


async def test_a_slow_listener_delays_no_send(pair: Pair) -> None:
    release = threading.Event()
    heard: list[str] = []

    def slow(event: PairedEvent) -> None:
        release.wait(50)
        heard.append(event.kind)

    async with pair.sender(failover_interval=0, on_event=slow) as sender:
        with pair.primary.fault("refusing", "orders"):
            for _ in range(3):
                await call(sender.send_messages, ServiceBusMessage("x"))
            assert heard == [], "the listener still waits, and the sends are through"
            release.set()
    assert heard == ["failed-over", "diverted", "diverted", "diverted"]
    await pair.in_backlog(3)


async def test_an_async_listener_is_awaited(pair: Pair) -> None:
    heard: list[str] = []
    loops: set[Any] = set()

    async def listen(event: PairedEvent) -> None:
        await asyncio.sleep(0)
        loops.add(asyncio.get_running_loop())
        heard.append(event.kind)

    async with pair.sender(failover_interval=0, on_event=[listen]) as sender:
        with pair.primary.fault("refusing", "orders"):
            await call(sender.send_messages, ServiceBusMessage("x"))
    for _ in range(12_000):
        if len(heard) == 2:
            break
        await asyncio.sleep(0.01)
    assert heard == ["failed-over", "diverted"]
    if asyncio.iscoroutinefunction(sender.send_messages):
        assert loops == {asyncio.get_running_loop()}, "the application's own loop"
    await pair.in_backlog(1)


def test_what_listeners_raise_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(_: PairedEvent) -> None:
        raise RuntimeError("mine")

    heard: list[PairedEvent] = []
    events = Events("a", "b", clock=SteppedClock(), listeners=[fail, heard.append], journal=None)
    events.emit(Event.FAILED_OVER)
    assert events.flush(5)
    events.close()
    assert len(heard) == 1
    assert "a listener of paired events failed on failed-over" in caplog.text


def test_a_listener_that_hangs_forever_fills_no_memory(caplog: pytest.LogCaptureFixture) -> None:
    release = threading.Event()
    events = Events("a", "b", clock=SteppedClock(), listeners=[lambda _: release.wait(30)], journal=None)
    for _ in range(12_000):
        events.emit(Event.DIVERTED)
    assert "events were dropped" in caplog.text
    release.set()
    events.close()


def test_events_that_come_after_dropped_ones_are_told(caplog: pytest.LogCaptureFixture) -> None:
    others = set(threading.enumerate())
    release = threading.Event()
    heard: list[PairedEvent] = []

    def slow(event: PairedEvent) -> None:
        release.wait(30)
        heard.append(event)

    events = Events("a", "b", clock=SteppedClock(), listeners=[slow], journal=None)
    assert events.flush(0) is True, "nobody has anything to hear"
    for _ in range(2):
        for _ in range(10_005):
            events.emit(Event.DIVERTED)
        release.set()
        assert events.flush(20)
        release.clear()
    events.emit(Event.FAILED_BACK)
    release.set()
    events.close()
    assert heard[-1].kind == Event.FAILED_BACK
    assert sum("events were dropped" in record.message for record in caplog.records) == 2
    started = set(threading.enumerate()) - others
    assert not [thread for thread in started if thread.name == "twinbus-events"]


@pytest.mark.parametrize("reason", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_a_listener_that_wants_to_end_it_all_ends_nothing(
    reason: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []

    def quit_all(_: PairedEvent) -> None:
        raise reason

    async def quit_later(_: PairedEvent) -> None:
        raise reason

    listeners = [quit_all, quit_later, lambda event: heard.append(event.entity)]
    events = Events("a", "b", clock=SteppedClock(), listeners=listeners, journal=None)
    for entity in ("1", "2"):
        events.emit(Event.FAILED_OVER, entity=entity)
    assert events.flush(5)
    assert heard == ["1", "2"]
    assert sum("a listener of paired events failed" in record.getMessage() for record in caplog.records) == 4
    events.close()


def test_after_closing_nothing_is_told_and_no_thread_begins() -> None:
    heard: list[str] = []
    events = Events("a", "b", clock=SteppedClock(), listeners=[lambda event: heard.append(event.entity)], journal=None)
    events.emit(Event.FAILED_OVER, entity="1")
    events.close()
    before = threading.active_count()
    # A send that is held and ends after its client.
    events.emit(Event.FAILED_OVER, entity="2")
    assert threading.active_count() == before
    assert heard == ["1"]


def test_an_async_listener_whose_loop_is_closed_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    closed = threading.Event()

    async def listen(_: PairedEvent) -> None:
        pass

    events = Events(
        "a", "b", clock=SteppedClock(), listeners=[lambda event: closed.wait(50) and None, listen], journal=None
    )

    async def emit() -> None:
        events.emit(Event.FAILED_OVER, entity="1")

    asyncio.run(emit())
    closed.set()
    assert events.flush(5)
    events.close()
    gc.collect()
    assert "a listener of paired events failed on failed-over" in caplog.text


def test_a_listener_may_close_the_client(caplog: pytest.LogCaptureFixture) -> None:
    closed = threading.Event()
    threads: list[threading.Thread] = []

    def close(_: PairedEvent) -> None:
        threads.append(threading.current_thread())
        events.close()
        closed.set()

    events = Events("a", "b", clock=SteppedClock(), listeners=[close], journal=None)
    events.emit(Event.FAILED_OVER, entity="1")
    assert closed.wait(50)
    threads[0].join(50)
    assert not threads[0].is_alive()
    assert "a listener of paired events failed" not in caplog.text
