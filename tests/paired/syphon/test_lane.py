"""One destination: batches, outcomes, pauses and slow sends, with a scripted primary."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from twinbus.errors import (
    ConnectionForcedError,
    EntityNotFoundError,
    QuotaExceededError,
    ServerBusyError,
    UnauthorizedError,
)
from twinbus.limits import SYPHON_BATCH_MESSAGES, SYPHON_STALLED_MESSAGES_MAX
from twinbus.paired.syphon import lane as module
from twinbus.paired.syphon.intake import BacklogIntake
from twinbus.paired.syphon.lane import DestinationLane, Item
from twinbus.paired.syphon.port import Outcomes, Parcel

from .scripted_port import ScriptedDestination, Stage


async def filled(stage: Stage, *handles: str) -> tuple[DestinationLane, BacklogIntake, list[Item]]:
    """A lane that does not run, with messages."""
    lane = stage.shared.lanes["orders"] = DestinationLane("orders", stage.shared)
    intake = BacklogIntake("q", stage.shared)
    stage.shared.intakes = [intake]
    stage.put("orders", *handles)
    while len(intake.items) < len(handles):
        await intake._turn()
    return lane, intake, list(lane.items)


def names(items: Any) -> list[str]:
    return [item.held.handle for item in items]


# --- batches ----------------------------------------------------------------------------------------------------------


async def test_a_batch_leaves_out_what_has_too_little_time() -> None:
    stage = Stage()
    lane, intake, items = await filled(stage, "a", "b", "c")
    items[0].held.expires_ms = stage.clock.now_ms() + 999
    items[1].held.expires_ms = stage.clock.now_ms() + 1_000
    items[2].generation -= 1
    assert names(lane._next_batch()) == ["b"]
    assert names(intake.items) == ["b"], "the others are received again"


async def test_a_batch_has_its_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    lane, _, items = await filled(stage, *map(str, range(SYPHON_BATCH_MESSAGES + 2)))
    assert len(lane._next_batch()) == SYPHON_BATCH_MESSAGES
    assert len(lane._next_batch()) == 2
    monkeypatch.setattr(module, "SYPHON_BATCH_BYTES", items[0].size + 1)
    lane.items.extend(items[:3])
    assert len(lane._next_batch()) == 2


# --- outcomes ---------------------------------------------------------------------------------------------------------


async def test_what_is_left_keeps_its_order_and_pauses_the_destination() -> None:
    stage = Stage()
    lane, _, items = await filled(stage, "a", "b", "c", "d")
    busy = ServerBusyError()
    batch = [lane.items.popleft() for _ in range(3)]
    lane._settle(batch, [busy, busy, busy])
    assert names(lane.items) == ["a", "b", "c", "d"]
    assert stage.pauses.left_ms("orders") == 100
    assert lane.stalled
    batch = [lane.items.popleft() for _ in range(3)]
    lane._settle(batch, [busy, busy, busy])
    assert stage.pauses.left_ms("orders") == 200
    batch = [lane.items.popleft() for _ in range(3)]
    lane._settle(batch, [None, busy, busy])
    assert stage.pauses.left_ms("orders") == 100, "it accepts some, so they start over"
    assert names(lane.items) == ["b", "c", "d"]
    assert stage.shared.tally.of("q").left == 8
    outcomes = [fields["outcome"] for _, _, fields in stage.told.kinds[-2:]]
    assert outcomes == ["ok", "com.microsoft:server-busy"]
    assert len(items) == 4


async def test_a_refusal_buries_only_its_message() -> None:
    stage = Stage()
    lane, intake, items = await filled(stage, "a", "b")
    lane.items.clear()
    lane._settle(items, [EntityNotFoundError("no"), None])
    await stage.settled()
    assert stage.secondary.handles("dead-letter DestinationNotFound") == ["a"]
    assert not stage.pauses.failing("orders")
    assert not lane.items
    assert names(intake.items) == ["b"], "it is being completed elsewhere"
    ((_, fields),) = stage.told.events
    assert fields["entity"] == "orders"


async def test_an_outage_closes_the_gate_and_gives_everything_back() -> None:
    stage = Stage()
    lane, intake, items = await filled(stage, "a", "b")
    lane.items.popleft()
    lane._settle(items[:1], [ConnectionForcedError("down")])
    assert not stage.shared.gate.is_set()
    assert not stage.pauses.failing("orders"), "it is not this destination's fault"
    stage.shared.stopping.set()
    await stage.settled()
    assert stage.secondary.handles("release") == ["a", "b"]
    assert not intake.items


async def test_a_success_after_failures_releases_what_is_aside() -> None:
    stage = Stage()
    lane, intake, items = await filled(stage, "a", "b", "c")
    lane.items.clear()
    intake.set_aside("orders", items[2])
    lane._settle(items[:1], [None])
    await stage.settled()
    assert intake.aside_count == 1, "nothing had failed"
    lane._was_slow = True
    lane._settle(items[:1], [None])
    await stage.settled()
    assert stage.secondary.handles("release") == ["c"]
    assert not lane._was_slow
    intake.set_aside("orders", items[1])
    stage.pauses.fail("orders")
    lane._settle(items[:1], [None])
    await stage.settled()
    assert stage.secondary.handles("release") == ["c", "b"]
    assert not stage.pauses.failing("orders")


async def test_a_failing_destination_keeps_a_few() -> None:
    stage = Stage()
    most = SYPHON_STALLED_MESSAGES_MAX
    lane, intake, _ = await filled(stage, *map(str, range(most + 2)))
    assert intake.aside_count == 0
    lane._settle([lane.items.popleft()], [QuotaExceededError("full")])
    assert names(lane.items) == list(map(str, range(most))), "the first ones"
    assert intake.aside_count == 2
    stage.put("orders", "late")
    await intake._turn()
    assert intake.aside_count == 3
    lane.items.pop()
    stage.put("orders", "later")
    await intake._turn()
    assert names(lane.items)[-1] == "later"


# --- sending ----------------------------------------------------------------------------------------------------------


async def test_a_lane_sends_in_order_over_one_link() -> None:
    stage = Stage()
    _, _, items = await filled(stage, "a", "b")
    lane = DestinationLane("orders", stage.shared)
    running = asyncio.create_task(lane.run())
    for item in items:
        lane.put(item)
    while len(stage.secondary.handles("complete")) < 2:
        await asyncio.sleep(0)
    assert stage.secondary.handles("complete") == ["a", "b"]
    assert stage.primary.opened == ["orders"]
    stage.shared.stopping.set()
    lane.wake()
    await running
    assert [call for call, _ in stage.primary.done] == ["close orders"]


async def test_a_pause_is_waited_for() -> None:
    stage = Stage()
    lane, _, _ = await filled(stage, "a")
    stage.pauses.fail("orders")
    waits: list[int] = []

    async def pause(pause_ms: int) -> None:
        waits.append(pause_ms)
        stage.clock.step(ms=pause_ms)

    stage.shared.pause = pause  # type: ignore[method-assign]
    running = asyncio.create_task(lane.run())
    while not stage.primary.accepted:
        await asyncio.sleep(0)
    assert waits == [100]
    stage.shared.stopping.set()
    lane.wake()
    await running


@pytest.mark.parametrize("why", ["connection", "link"])
async def test_no_connection_is_everybodys_and_no_link_is_its_own(why: str) -> None:
    stage = Stage()
    lane, _, items = await filled(stage, "a", "b")
    stage.primary.errors["connect" if why == "connection" else "destination"] = [UnauthorizedError("key")]
    (first, second) = await lane._send(items)
    assert type(first) is type(second) is (ConnectionForcedError if why == "connection" else UnauthorizedError)
    assert "key" in str(first)
    assert await lane._send(items) == [None, None]


async def test_a_link_that_broke_is_opened_again() -> None:
    stage = Stage()
    lane, _, items = await filled(stage, "a")
    assert await lane._send(items) == [None]
    assert await lane._send(items) == [None]
    assert stage.primary.opened == ["orders"]
    assert lane._destination is not None
    lane._destination.usable = False  # type: ignore[misc]
    assert await lane._send(items) == [None]
    assert stage.primary.opened == ["orders", "orders"]


class _Slow(ScriptedDestination):
    """Answers when it is let go, or abandoned."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.primary, "orders")
        self.go = asyncio.Event()
        self.error: Any = None

    async def send(self, parcels: Sequence[Parcel], on_accepted: Callable[[int], None]) -> Outcomes:
        await self.go.wait()
        return [self.error] * len(parcels)

    def abandon(self, error: Any) -> None:
        super().abandon(error)
        self.error = error
        self.go.set()


async def test_a_slow_send_keeps_a_few_and_is_given_up_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SYPHON_SLOW_S", 0.01)
    monkeypatch.setattr(module, "SYPHON_SEND_TIMEOUT_S", 0.02)
    stage = Stage()
    lane, intake, items = await filled(stage, *map(str, range(SYPHON_STALLED_MESSAGES_MAX + 2)))
    lane._destination = _Slow(stage)
    lane.items.popleft()
    (error,) = await lane._send(items[:1])
    assert "orders did not answer within 0 s" in str(error)
    assert intake.aside_count == 1
    assert not lane.stalled, "for the moment of the send only"
    assert lane._was_slow
    assert lane._destination is None, "it is abandoned"


async def test_a_slow_send_that_is_answered() -> None:
    stage = Stage()
    lane, intake, items = await filled(stage, "a")
    slow = lane._destination = _Slow(stage)
    sending = asyncio.create_task(lane._send(items))
    await asyncio.sleep(0)
    slow.go.set()
    assert await sending == [None]
    assert not lane._was_slow
    assert lane._destination is slow
    assert intake.aside_count == 0


async def test_an_opening_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SYPHON_SLOW_S", 0.01)
    monkeypatch.setattr(module, "SYPHON_SEND_TIMEOUT_S", 0.02)
    stage = Stage()
    lane, _, items = await filled(stage, "a", "b")

    async def hang(path: str) -> Any:
        await asyncio.sleep(60)

    stage.primary.destination = hang  # type: ignore[method-assign]
    outcomes = await lane._send(items)
    assert ["did not answer" in str(error) for error in outcomes] == [True, True]


async def test_a_send_that_is_cancelled_abandons_its_link() -> None:
    stage = Stage()
    lane, _, items = await filled(stage, "a")
    slow = lane._destination = _Slow(stage)
    sending = asyncio.create_task(lane._send(items))
    await asyncio.sleep(0)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert "was stopped" in str(slow.error)
    assert lane._destination is None


# --- the end ----------------------------------------------------------------------------------------------------------


async def test_an_idle_lane_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SYPHON_LANE_IDLE_S", 0.01)
    stage = Stage()
    lane, _, _ = await filled(stage, "a")
    await lane.run()
    assert stage.shared.lanes == {}
    assert [call for call, _ in stage.primary.done] == ["close orders"]
    assert stage.secondary.handles("complete") == ["a"]


async def test_a_lane_that_could_send_nothing_ends_at_once() -> None:
    stage = Stage()
    lane, _, _ = await filled(stage, "a")
    stage.primary.errors["destination"] = [EntityNotFoundError("no")]
    await lane.run()
    assert stage.shared.lanes == {}
    await stage.settled()
    assert stage.secondary.handles("dead-letter DestinationNotFound") == ["a"]


async def test_a_lane_that_ends_gives_back() -> None:
    stage = Stage()
    lane, intake, _ = await filled(stage, "a", "b")
    stage.shared.stopping.set()
    await lane.run()
    await stage.settled()
    assert stage.secondary.handles("release") == ["a", "b"]
    assert not intake.items
