"""One backlog queue: what is received, settled, renewed and released, with a scripted secondary."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from twinbus.errors import (
    EntityNotFoundError,
    MessageLockLostError,
    ServerBusyError,
)
from twinbus.limits import SYPHON_BATCH_BYTES, SYPHON_BATCH_MESSAGES, SYPHON_PAUSE_MS_MAX
from twinbus.paired.syphon import intake as module
from twinbus.paired.syphon.bounds import Bounds
from twinbus.paired.syphon.intake import BacklogIntake
from twinbus.paired.syphon.lane import Item

from .scripted_port import LOCK_MS, Stage


def made(stage: Stage, **options: Any) -> BacklogIntake:
    found = BacklogIntake("q", stage.shared, **options)
    stage.shared.intakes = [found]
    return found


async def held(stage: Stage, *handles: str) -> tuple[BacklogIntake, dict[str, Item]]:
    """An intake with messages that no lane takes."""
    intake = made(stage)
    stage.shared.lane = lambda path, make: _Sink()  # type: ignore[method-assign, assignment, return-value]
    stage.put("orders", *handles)
    while len(intake.items) < len(handles):
        await intake._turn()
    return intake, {str(item.held.handle): item for item in intake.items}


class _Sink:
    def put(self, item: Item) -> None:
        pass


# --- receiving --------------------------------------------------------------------------------------------------------


async def test_a_run_with_an_end_moves_everything_and_ends() -> None:
    stage = Stage()
    intake = made(stage, once=True)
    stage.put("orders", "a", "b")
    stage.put("news", "c")
    await intake.run()
    assert intake.drained
    assert intake.outage == ""
    assert not intake.items
    assert {path: len(parcels) for path, parcels in stage.primary.accepted.items()} == {"orders": 2, "news": 1}
    assert sorted(stage.secondary.handles("complete")) == ["a", "b", "c"]
    tally = stage.shared.tally.of("q")
    assert (tally.received, tally.syphoned, tally.repeated, tally.dead_lettered) == (3, 3, 0, 0)
    assert tally.syphoned_bytes == tally.received_bytes > 0
    assert tally.polls == len([1 for _, kind, _ in stage.told.kinds if kind == "empty-poll"]) >= 1
    assert stage.shared.settled == 3
    assert stage.shared.room.messages == stage.shared.room.bytes == 0
    assert sum(fields["count"] for kind, fields in stage.told.events if kind == "syphoned") == 3
    assert {path for path, _, _ in stage.told.latencies} == {"orders", "news"}
    assert stage.secondary.opened == ["q"]


async def test_how_much_it_asks_for() -> None:
    stage = Stage()
    intake = made(stage, receive_s=7.0)
    stage.put("orders", "a", body=b"x" * 200_000)
    await intake._turn()
    size = stage.shared.tally.of("q").received_bytes
    await intake._turn()
    mean = 1024 + (size - 1024) / 4
    assert stage.secondary.asked == [
        (SYPHON_BATCH_MESSAGES, 7.0),
        (int(SYPHON_BATCH_BYTES / mean), 7.0),
    ]
    intake._mean_bytes = 1e9
    await intake._turn()
    assert stage.secondary.asked[-1][0] == 1
    once = made(Stage(), once=True, receive_s=7.0)
    assert once._receive_s == 0.5


async def test_a_queue_with_messages_of_others_is_not_drained() -> None:
    stage = Stage()
    intake = made(stage, once=True)
    stage.secondary.locked_elsewhere = True
    await intake._turn()
    assert not intake.drained
    assert not intake.rests
    stage.secondary.locked_elsewhere = False
    await intake._turn()
    assert intake.drained
    assert [kind for _, kind, _ in stage.told.kinds] == ["empty-poll", "peek"] * 2


async def test_a_brief_run_rests_when_nothing_moves() -> None:
    stage = Stage()
    stage.shared.bounds = Bounds(brief=True)
    intake, items = await held(stage, "a")
    await intake._turn()
    assert not intake.rests, "one is on its way"
    intake.forget(items["a"])
    await intake._turn()
    assert intake.rests
    failing = made(stage, once=True)
    stage.secondary.errors["receive"] = [ServerBusyError()]
    await failing.run()
    assert failing.rests
    assert failing.outage == "com.microsoft:server-busy"


async def test_what_comes_while_the_primary_is_away_goes_back() -> None:
    stage = Stage()
    intake = made(stage)
    stage.put("orders", "a")
    stage.shared.gate.clear()
    await intake._turn()
    stage.shared.gate.set()
    assert stage.secondary.handles("release") == ["a"]
    assert not intake.items
    stage.put("orders", "b")
    stage.shared.stopping.set()
    await intake._turn()
    assert stage.secondary.handles("release") == ["a", "b"]


async def test_when_a_queue_is_known_to_be_empty() -> None:
    stage = Stage()
    intake, items = await held(stage, "a")
    assert not intake.waits
    intake._asked_ms = stage.clock.now_ms()
    stage.clock.step(ms=1_001)
    assert not intake.waits, "it holds one"
    intake.forget(items["a"])
    assert intake.waits
    intake._asked_ms = stage.clock.now_ms() - 1_000
    assert not intake.waits
    intake._asked_ms = None
    assert not intake.waits
    intake.drained = True
    assert intake.waits


# --- settling ---------------------------------------------------------------------------------------------------------


async def test_what_cannot_be_completed_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    intake, items = await held(stage, "a", "b", "c")
    stage.secondary.refused["b"] = MessageLockLostError()
    stage.clock.step(ms=5_000)
    await intake._complete("orders", [items["a"], items["b"]])
    tally = stage.shared.tally.of("q")
    assert (tally.syphoned, tally.repeated, stage.shared.settled) == (1, 1, 1)
    assert tally.syphoned_bytes == items["a"].size
    assert stage.shared.progress_ms == stage.clock.now_ms()
    assert list(intake.items) == [items["c"]]
    assert "1 messages of q could not be completed" in caplog.text
    caplog.clear()
    stage.secondary.errors["complete"] = [ServerBusyError()]
    await intake._complete("orders", [items["c"]])
    assert (tally.syphoned, tally.repeated) == (1, 2)
    assert len(stage.told.latencies) == 1, "none was completed"
    assert intake._idle.is_set()


async def test_all_completed_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    intake, items = await held(stage, "a")
    await intake._complete("orders", [items["a"]])
    assert caplog.text == ""


async def test_an_old_links_message_is_not_completed() -> None:
    stage = Stage()
    intake, items = await held(stage, "a")
    intake.generation += 1
    await intake._complete("orders", [items["a"]])
    assert stage.secondary.handles("complete") == []
    assert stage.shared.tally.of("q").repeated == 1


async def test_what_cannot_be_restored_is_dead_lettered() -> None:
    stage = Stage()
    intake = made(stage, once=True)
    stage.put("$management", "a")
    await intake.run()
    assert stage.secondary.handles("dead-letter CannotBeRestored") == ["a"]
    tally = stage.shared.tally.of("q")
    assert (tally.dead_lettered, tally.syphoned, stage.shared.settled) == (1, 0, 1)
    ((_, fields),) = [event for event in stage.told.events if event[0] == "dead-lettered"]
    assert (fields["count"], fields["queue"], fields["cause"]) == (1, "q", "EnvelopeError")
    assert [kind for _, kind, _ in stage.told.kinds if kind == "dead-letter"] == ["dead-letter"]


@pytest.mark.parametrize("why", ["refused", "lost"])
async def test_a_dead_letter_that_fails_is_received_again(why: str) -> None:
    stage = Stage()
    intake, items = await held(stage, "a")
    if why == "refused":
        stage.secondary.errors["dead_letter"] = [MessageLockLostError()]
    else:
        intake.generation += 1
    await intake._bury(items["a"], module.decide(EntityNotFoundError("no"), "orders"), "orders")
    assert (stage.shared.tally.of("q").dead_lettered, stage.shared.settled) == (0, 0)
    assert not intake.items
    assert stage.told.events == []


async def test_a_batch_counts_its_messages() -> None:
    stage = Stage()
    intake, items = await held(stage, "a", "b")
    for item in items.values():
        item.parcel = (b"1", b"2", b"3")
    await intake._complete("orders", [items["a"]])
    await intake._bury(items["b"], module.decide(EntityNotFoundError("no"), "orders"), "orders")
    tally = stage.shared.tally.of("q")
    assert (tally.syphoned, tally.dead_lettered, stage.shared.settled) == (3, 3, 2)
    assert [fields["count"] for _, fields in stage.told.events] == [3, 3]


# --- aside and back ---------------------------------------------------------------------------------------------------


async def test_what_is_set_aside_is_released_by_destination() -> None:
    stage = Stage()
    intake, items = await held(stage, "a", "b", "c", "d")
    for path, handle in (("orders", "a"), ("orders", "b"), ("news", "c")):
        intake.set_aside(path, items[handle])
    assert intake.aside_count == 3
    assert stage.shared.room.messages == 1
    intake.release_aside("nowhere")
    intake.release_aside("orders")
    await stage.settled()
    assert stage.secondary.handles("release") == ["a", "b"]
    assert intake.aside_count == 1
    intake.release_aside(None)
    await stage.settled()
    assert stage.secondary.handles("release") == ["a", "b", "c"]
    assert len([1 for call, _ in stage.secondary.done if call == "release"]) == 2, "nothing is no request"
    intake.generation += 1
    intake.set_aside("orders", items["d"])
    assert intake.aside_count == 0, "its lock is lost"


async def test_what_is_given_back_is_released_if_it_is_still_ours() -> None:
    stage = Stage()
    intake, items = await held(stage, "a", "b")
    items["b"].generation -= 1
    intake.give_back(list(items.values()))
    await stage.settled()
    assert stage.secondary.handles("release") == ["a"]
    assert stage.shared.room.messages == 0
    intake.forget(items["a"])
    assert stage.shared.room.messages == 0, "only once"


async def test_idle_means_that_nothing_is_held() -> None:
    stage = Stage()
    intake, items = await held(stage, "a", "b")
    assert not intake._idle.is_set()
    intake.forget(items["a"])
    assert not intake._idle.is_set()
    intake.forget(items["b"])
    assert intake._idle.is_set()


# --- the link ---------------------------------------------------------------------------------------------------------


async def test_locks_are_renewed_after_half_of_their_time() -> None:
    stage = Stage()
    intake, items = await held(stage, "a", "b")
    stage.clock.step(ms=LOCK_MS // 2)
    await intake.renew_locks()
    assert stage.secondary.handles("renew") == []
    stage.clock.step(ms=1)
    items["b"].generation -= 1
    await intake.renew_locks()
    assert stage.secondary.handles("renew") == ["a"]
    assert stage.shared.tally.of("q").renewed == 1
    assert [(kind, fields["count"]) for _, kind, fields in stage.told.kinds if kind == "renew"] == [("renew", 1)]


async def test_many_locks_are_renewed_in_several_requests() -> None:
    stage = Stage()
    intake, _ = await held(stage, *map(str, range(SYPHON_BATCH_MESSAGES + 1)))
    stage.clock.step(ms=LOCK_MS)
    await intake.renew_locks()
    assert [len(handles) for call, handles in stage.secondary.done if call == "renew"] == [SYPHON_BATCH_MESSAGES, 1]
    assert stage.shared.tally.of("q").renewed == SYPHON_BATCH_MESSAGES + 1


async def test_locks_that_fail_together_are_renewed_one_by_one() -> None:
    stage = Stage()
    intake, _ = await held(stage, "a", "b")
    stage.clock.step(ms=LOCK_MS)
    stage.secondary.errors["renew"] = [MessageLockLostError(), MessageLockLostError()]
    await intake.renew_locks()
    assert next(sorted(handles) for call, handles in stage.secondary.done if call == "renew") == ["a", "b"]
    assert len(stage.secondary.handles("renew")) == 4
    intake._source = None
    await intake.renew_locks()
    assert len(stage.secondary.handles("renew")) == 4


async def test_a_lost_link_loses_its_messages_and_is_opened_again() -> None:
    stage = Stage()
    intake, _ = await held(stage, "a")
    stage.secondary.errors["receive"] = [ServerBusyError(), ServerBusyError()]
    waits: list[int] = []

    async def pause(pause_ms: int) -> None:
        waits.append(pause_ms)
        assert intake.outage == "com.microsoft:server-busy"
        assert not intake.items
        if len(waits) == 2:
            stage.put("orders", "a")

    stage.shared.pause = pause  # type: ignore[method-assign]
    generation = intake.generation
    running = asyncio.create_task(intake.run())
    while len(waits) < 2 or not intake.items:
        await asyncio.sleep(0)
    assert waits == [100, 200], "of the lengths that the options say"
    assert intake.generation == generation + 2
    assert intake.outage == ""
    assert stage.secondary.opened == ["q", "q", "q"]
    assert stage.secondary.handles("close") == []
    assert len([1 for call, _ in stage.secondary.done if call == "close"]) == 2
    stage.shared.stopping.set()
    await running


@pytest.mark.parametrize("once", [True, False])
async def test_a_queue_that_does_not_exist(once: bool, caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    intake = made(stage, once=once)
    stage.secondary.errors["source"] = [EntityNotFoundError("no") for _ in range(9)]
    waits: list[int] = []

    async def pause(pause_ms: int) -> None:
        waits.append(pause_ms)
        if len(waits) == 2:
            stage.shared.stopping.set()

    stage.shared.pause = pause  # type: ignore[method-assign]
    await intake.run()
    assert intake.drained is once
    assert intake.outage == "amqp:not-found"
    assert waits == ([0] if once else [SYPHON_PAUSE_MS_MAX] * 2)
    assert len([record for record in caplog.records if "cannot be received from" in record.message]) == 1


async def test_too_many_aside_open_another_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SYPHON_ASIDE_MESSAGES_MAX", 2)
    stage = Stage()
    intake, items = await held(stage, "a", "b")
    intake.set_aside("orders", items["a"])
    await intake._turn()
    assert stage.secondary.opened == ["q"]
    intake.set_aside("orders", items["b"])
    await intake._turn()
    assert stage.secondary.opened == ["q", "q"]
    assert intake.aside_count == 0
    assert intake.generation == 1
    await stage.settled()
    assert [call for call, _ in stage.secondary.done if call == "close"] == ["close"]
    assert stage.secondary.handles("release") == [], "their locks expire"


async def test_another_link_waits_for_what_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_QUIET_S", 0.01)
    stage = Stage()
    intake, _ = await held(stage, "a")
    await intake._renew_link()
    await stage.settled()
    assert stage.secondary.handles("release") == ["a"]
    assert not intake.items


async def test_closing_releases_everything() -> None:
    stage = Stage()
    await made(Stage()).close()
    intake, items = await held(stage, "a", "b")
    intake.set_aside("orders", items["a"])
    await intake.close()
    assert sorted(stage.secondary.handles("release")) == ["a", "b"]
    assert stage.secondary.done[-1][0] == "close"


async def test_a_full_run_receives_no_more() -> None:
    stage = Stage()
    intake = made(stage)
    stage.put("orders", "a")
    stage.shared.bounds = Bounds(messages_max=1)
    stage.shared.settled = 1
    await intake.run()
    assert stage.secondary.asked == []
