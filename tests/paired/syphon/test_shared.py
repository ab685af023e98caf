"""What the parts of a syphon share: the gate, background work, the ledger."""

from __future__ import annotations

import asyncio

import pytest

from twinbus.errors import ServerBusyError, UnauthorizedError
from twinbus.ledger.words import Kind
from twinbus.ledger.words import Stage as LedgerStage
from twinbus.limits import OPERATION_STEP_BYTES
from twinbus.paired.syphon.bounds import Bounds
from twinbus.paired.syphon.intake import BacklogIntake
from twinbus.paired.syphon.lane import DestinationLane

from .scripted_port import Stage


async def test_a_part_that_fails_is_logged_and_no_other(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()

    async def fine() -> None:
        pass

    async def broken() -> None:
        raise RuntimeError("bug")

    async def slow() -> None:
        await asyncio.sleep(60)

    for work in (fine, broken, slow):
        stage.shared.spawn(work())
    await stage.shared.finish(0.01)
    assert not stage.shared._tasks, "what is left is cancelled"
    assert [record.message for record in caplog.records] == ["a part of the syphon failed: RuntimeError"]


async def test_what_takes_its_time_is_waited_for() -> None:
    stage = Stage()
    ended = []

    async def slow() -> None:
        await asyncio.sleep(0.01)
        ended.append(1)

    stage.shared.spawn(slow())
    await stage.shared.finish(30)
    assert ended == [1]


async def test_the_gate_closes_once_and_opens_when_the_primary_answers() -> None:
    stage = Stage()
    shared = stage.shared
    waits: list[int] = []

    async def pause(pause_ms: int) -> None:
        waits.append(pause_ms)

    shared.pause = pause  # type: ignore[method-assign]
    stage.primary.errors["connect"] = [ServerBusyError(), UnauthorizedError("no right")]
    shared.close_gate("first")
    shared.close_gate("second")
    assert (shared.gate.is_set(), shared.outage) == (False, "first")
    await stage.settled()
    assert waits == [100, 200, 400], "one task knocks, with growing pauses"
    assert (shared.gate.is_set(), shared.outage) == (True, "")
    assert not stage.pauses.failing(), "the next outage starts with short pauses"


async def test_a_syphon_that_stops_knocks_no_more() -> None:
    stage = Stage()
    shared = stage.shared

    async def pause(pause_ms: int) -> None:
        shared.stopping.set()

    shared.pause = pause  # type: ignore[method-assign]
    stage.primary.errors["connect"] = [ServerBusyError()]
    shared.close_gate("down")
    await stage.settled()
    assert len(stage.primary.errors["connect"]) == 1, "not asked"
    assert not shared.gate.is_set()
    shared.gate.set()
    shared.close_gate("again")
    assert shared.gate.is_set(), "it is ending anyway"


async def test_a_pause_is_as_long_as_it_says_and_ends_with_the_syphon(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = Stage().shared
    pauses: list[float] = []
    timeout = asyncio.timeout

    def noted(seconds: float) -> asyncio.Timeout:
        pauses.append(seconds)
        return timeout(0.001)

    monkeypatch.setattr(asyncio, "timeout", noted)
    await shared.pause(1500)
    shared.stopping.set()
    await shared.pause(250)
    assert pauses == [1.5, 0.25]


async def test_a_closed_gate_releases_what_is_held() -> None:
    stage = Stage()
    intake = BacklogIntake("q", stage.shared)
    stage.shared.intakes = [intake]
    stage.put("orders", "a", "b")
    await intake._turn()
    intake.set_aside("news", stage.shared.lanes["orders"].items.popleft())
    stage.shared.close_gate("down")
    await stage.settled()
    assert sorted(stage.secondary.handles("release")) == ["a", "b"]
    assert stage.shared.room.messages == 0


async def test_messages_for_failing_destinations_do_not_move() -> None:
    stage = Stage()
    shared = stage.shared
    intake = BacklogIntake("q", shared)
    for path, handles in (("orders", "ab"), ("news", "c")):
        lane = shared.lanes[path] = DestinationLane(path, shared)
        stage.put(path, *handles)
        del lane
    await intake._turn()
    assert shared.moving == 3
    stage.pauses.fail("orders")
    assert shared.moving == 1


async def test_need_ends_with_the_bound() -> None:
    stage = Stage()
    shared = stage.shared
    assert not shared.full
    await shared.wait_for_need()
    shared.bounds = Bounds(messages_max=3)
    shared.settled = 2
    assert not shared.full
    shared.room.take(1)
    waiting = asyncio.create_task(shared.wait_for_need())
    await asyncio.sleep(0.03)
    assert not waiting.done(), "the held one may be the last"
    shared.room.give(1)
    await waiting
    shared.room.take(1)
    shared.settled = 3
    assert shared.full
    await shared.wait_for_need()
    shared.settled = 2
    shared.stopping.set()
    await shared.wait_for_need()


def test_large_messages_are_recorded_on_their_own() -> None:
    stage = Stage()
    step = OPERATION_STEP_BYTES
    stage.shared.count("a", "orders", Kind.SEND, LedgerStage.TO_PRIMARY, [1, step, step + 1, 2 * step], "busy")
    fields = [fields for _, _, fields in stage.told.kinds]
    assert fields == [
        {"outcome": "busy", "count": 2, "size_bytes": step + 1},
        {"outcome": "busy", "size_bytes": step + 1},
        {"outcome": "busy", "size_bytes": 2 * step},
    ]
    stage.shared.count("a", "orders", Kind.SEND, LedgerStage.TO_PRIMARY, [])
    assert len(stage.told.kinds) == 3


def test_times_are_recorded_and_never_negative() -> None:
    stage = Stage()
    stage.shared.time("orders", "q", [None])
    assert stage.told.latencies == []
    now_ms = stage.shared._wall.now_ms()
    stage.shared.time("orders", "q", [now_ms - 5_000, None, now_ms + 100_000])
    ((path, queue, (first, second)),) = stage.told.latencies
    assert (path, queue, second) == ("orders", "q", 0)
    assert first >= 5_000
