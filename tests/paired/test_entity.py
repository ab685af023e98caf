"""An entity of the primary as its senders share it: what `direct` says, who is woken, which events, and who watches."""

from __future__ import annotations

from typing import Any

from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusError

from twinbus.clock import SteppedClock
from twinbus.paired.entity import PairedEntity
from twinbus.paired.events import Events, PairedEvent
from twinbus.paired.state import EntityState
from twinbus.paired.synchronization import Signal


class CountedSignal(Signal):
    """A signal that counts its pulses."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def pulse(self) -> None:
        self.count += 1
        super().pulse()


class Stage:
    """An entity, its clock, and what it did."""

    def __init__(self, interval_s: float = 10) -> None:
        self.clock = SteppedClock(1_000)
        self.told: list[PairedEvent] = []
        self.watched: list[Any] = []
        self.events = Events("contoso", "fabrikam", clock=self.clock, listeners=[self.told.append], journal=None)
        self.changed = CountedSignal()
        self.entity = PairedEntity(
            "Orders",
            changed=self.changed,
            interval_s=interval_s,
            clock=self.clock,
            events=self.events,
            on_trouble=self.watched.append,
        )

    def kinds(self) -> list[tuple[str, str | None, str | None]]:
        self.events.flush(5)
        return [(event.kind, event.entity, event.cause) for event in self.told]

    def fail(self) -> None:
        self.entity.failed(ServiceBusConnectionError())


def test_a_new_entity_is_direct() -> None:
    stage = Stage()
    entity = stage.entity
    assert (entity.path, entity.direct, entity.state, entity.left_s) == ("Orders", True, EntityState.HEALTHY, None)
    assert (entity.failed_over, entity.closed, entity.fault) == (False, False, None)
    entity.succeeded()
    assert stage.changed.count == 0


def test_a_failure_starts_the_timer_and_one_watcher() -> None:
    stage = Stage()
    stage.fail()
    assert (stage.entity.state, stage.entity.direct, stage.entity.left_s) == (EntityState.SUSPECT, False, 10.0)
    assert (stage.watched, stage.changed.count, stage.kinds()) == ([stage.entity], 1, [])
    stage.clock.step(ms=4_000)
    stage.fail()
    assert stage.entity.left_s == 6.0
    assert (stage.watched, stage.changed.count) == ([stage.entity], 1), "nothing has changed"


def test_a_success_stops_the_timer_and_the_watcher_goes() -> None:
    stage = Stage()
    stage.fail()
    assert not stage.entity.unwatch(), "it is still needed"
    stage.entity.succeeded()
    assert (stage.entity.state, stage.entity.direct, stage.changed.count) == (EntityState.HEALTHY, True, 2)
    assert stage.entity.unwatch()
    assert stage.kinds() == []
    stage.fail()
    assert len(stage.watched) == 2, "the next trouble has another watcher"


def test_trouble_before_the_watcher_went_needs_no_other() -> None:
    stage = Stage()
    stage.fail()
    stage.entity.succeeded()
    stage.fail()
    assert len(stage.watched) == 1


def test_it_fails_over_when_the_interval_has_passed() -> None:
    stage = Stage()
    stage.entity.failed(ServiceBusError("no", condition=b"amqp:internal-error"))
    stage.clock.step(ms=9_999)
    stage.entity.elapse()
    assert not stage.entity.failed_over
    stage.clock.step(ms=1)
    assert stage.entity.failed_over, "whoever asks looks at the time"
    assert (stage.entity.state, stage.entity.direct, stage.entity.left_s) == (EntityState.FAILED_OVER, False, None)
    assert stage.changed.count == 2
    stage.entity.elapse()
    assert stage.kinds() == [("failed-over", "Orders", "amqp:internal-error")]


def test_the_last_cause_is_told() -> None:
    stage = Stage()
    stage.fail()
    stage.clock.step(ms=10_000)
    stage.entity.failed(TimeoutError())
    assert stage.kinds() == [("failed-over", "Orders", "TimeoutError")]
    assert stage.changed.count == 2


def test_without_an_interval_the_first_failure_fails_over() -> None:
    stage = Stage(interval_s=0)
    stage.fail()
    assert stage.entity.failed_over
    assert stage.kinds() == [("failed-over", "Orders", "ServiceBusConnectionError")]
    assert stage.watched == [stage.entity]
    stage.fail()
    assert len(stage.kinds()) == 1, "told once"


def test_a_ping_brings_it_back() -> None:
    stage = Stage(interval_s=0)
    stage.fail()
    stage.entity.succeeded()
    assert stage.entity.failed_over, "a send that began before proves nothing"
    stage.entity.pinged()
    stage.entity.pinged()
    assert (stage.entity.direct, stage.changed.count) == (True, 2)
    assert stage.kinds()[1:] == [("failed-back", "Orders", None)]


def test_refused_pings_bring_it_back_with_a_cause() -> None:
    stage = Stage(interval_s=0)
    stage.fail()
    stage.entity.refused("amqp:not-found")
    stage.entity.refused("amqp:not-found")
    assert (stage.entity.direct, stage.changed.count) == (True, 2)
    assert stage.kinds()[1:] == [("failed-back", "Orders", "amqp:not-found")]


def test_a_session_in_the_backlog_is_not_direct() -> None:
    stage = Stage()
    stage.entity.trail.note(["s"], "q")
    stage.entity.refresh()
    assert not stage.entity.direct
    stage.entity.trail.drained(stage.entity.trail.in_queue("q"), None)
    stage.entity.refresh()
    assert (stage.entity.direct, stage.changed.count) == (True, 2)


def test_a_closed_entity_wakes_everybody_and_needs_no_watcher() -> None:
    stage = Stage(interval_s=0)
    stage.fail()
    stage.entity.close()
    assert (stage.entity.closed, stage.entity.direct, stage.entity.fault) == (True, False, None)
    assert stage.changed.count == 2
    assert stage.entity.unwatch()
    stage.entity.close("first reason")
    stage.entity.close("second reason")
    assert stage.entity.fault == "first reason"


def test_a_faulted_entity_is_not_direct() -> None:
    stage = Stage()
    stage.entity.fault = "why"
    stage.entity.refresh()
    assert not stage.entity.direct
