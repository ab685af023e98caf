"""Diverting into the backlog, on a stepped clock: how long an attempt has, how often one is made, and when it ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusConnectionError,
)

from tests.paired.scripted import NoJitter, Recorder, Script, ScriptedLinks, SteppedSignal
from twinbus.clock import SteppedClock
from twinbus.paired._async.diverter import AsyncDiverter
from twinbus.paired.envelope import encoded
from twinbus.paired.events import Events
from twinbus.paired.options import PairingOptions
from twinbus.paired.rotation import Rotation
from twinbus.paired.synchronization import NoLinkYet

PAYLOADS = encoded(ServiceBusMessage("x"))
AWAY = ServiceBusConnectionError(message="away")


class Backlog:
    """Queues of a secondary, and a diverter into them."""

    def __init__(self, *names: str, **options: Any) -> None:
        self.clock = SteppedClock()
        self.script = Script(self.clock)
        self.closing = SteppedSignal(self.clock, self._waited)
        self.changed = SteppedSignal(self.clock, self._waited)
        self.told: list[str] = []
        self.missed = 0
        # How many waits pass until the pair is ready, or the primary is back.
        self.paired_after = self.needed_for = 0
        self._waits = 0
        settings = PairingOptions(**{"backlog_pause": 1000, "max_in_flight": 1, **options})
        self.rotation = Rotation(names, pause_ms=1_000_000, clock=self.clock, rng=NoJitter(1))
        self.diverter = AsyncDiverter(
            "orders",
            pairing=self,  # type: ignore[arg-type]
            links=lambda name: ScriptedLinks(name, self.script, settings),  # type: ignore[arg-type, return-value]
            leave=self._leave,
            options=settings,
            clock=self.clock,
            events=Events("a", "b", clock=self.clock, listeners=[], journal=None),
            closing=self.closing,  # type: ignore[arg-type]
        )

    def _waited(self) -> None:
        self._waits += 1

    async def _leave(self, links: Any) -> None:
        links.left += 1

    def usable(self, left_s: float, *, hold: bool) -> Rotation | None:
        assert hold
        return self.rotation if self._waits >= self.paired_after else None

    def missing(self) -> None:
        self.missed += 1

    def needed(self) -> bool:
        return not self.needed_for or self._waits < self.needed_for

    async def send(self, seconds: float) -> str | None:
        return await self.diverter.send(PAYLOADS, self.clock.now_ms() + round(seconds * 1000), self.needed)

    async def batch(self, seconds: float) -> Any:
        return await self.diverter.create_batch(None, self.clock.now_ms() + round(seconds * 1000), self.needed)

    def passed_s(self) -> float:
        return self.clock.steady_ms() / 1000


@pytest.mark.parametrize(
    ("left_s", "try_s"), [(100, 10), (16, 8), (10, 5), (3, 2), (1.5, 1.5)], ids=["long", "half", "ten", "least", "all"]
)
async def test_one_try_has_half_of_the_time_that_is_left(left_s: float, try_s: float) -> None:
    backlog = Backlog("q0")
    backlog.script.plan("q0", "open", (0.5, None))
    assert await backlog.send(left_s) == "q0"
    assert backlog.script.made("open") == [("q0", try_s)]
    assert backlog.script.made("send") == [("q0", min(try_s, left_s - 0.5))], "opening does not count against sending"


async def test_a_send_always_has_a_moment() -> None:
    backlog = Backlog("q0")
    backlog.script.plan("q0", "open", (100, None))
    assert await backlog.send(1.5) == "q0"
    assert backlog.script.made("send") == [("q0", 0.01)]


async def test_while_all_queues_are_out_the_pauses_double_until_the_time_is_up() -> None:
    backlog = Backlog("q0", "q1")
    for name in ("q0", "q1"):
        backlog.script.plan(name, "open", (0.01, AWAY))
    with pytest.raises(ServiceBusConnectionError, match="away"):
        await backlog.send(5)
    assert 5 <= backlog.passed_s() < 5.1
    # The first failure leaves another queue to try: no pause.
    assert backlog.closing.waits[:5] == [0.1, 0.2, 0.4, 0.8, 1.6]


async def test_no_pause_outlasts_the_callers_time() -> None:
    backlog = Backlog("q0")
    backlog.script.plan("q0", "open", (0, AWAY), (0, AWAY), (0, AWAY), (0, AWAY), (2, AWAY))
    with pytest.raises(ServiceBusConnectionError, match="away"):
        await backlog.send(4)
    assert backlog.passed_s() == pytest.approx(4, abs=0.01)


async def test_a_queue_that_is_out_is_not_tried_while_another_works() -> None:
    backlog = Backlog("q0", "q1")
    backlog.diverter._queue = "q0"
    backlog.script.plan("q0", "open", (0.01, AWAY))
    assert [await backlog.send(5) for _ in range(3)] == ["q1"] * 3
    assert [name for name, _ in backlog.script.made("open")] == ["q0", "q1"]
    assert backlog.closing.waits == []


async def test_a_stale_link_has_one_fresh_try_in_what_is_left() -> None:
    backlog = Backlog("q0")
    await backlog.send(100)
    backlog.script.plan("q0", "send", (4, AWAY), (0, None))
    assert await backlog.send(100) == "q0"
    assert backlog.script.made("open")[1:] == [("q0", 6)]
    assert backlog.script.made("send")[1:] == [("q0", 10), ("q0", 6)]
    assert backlog.closing.waits == [], "its queue did not fail"


@pytest.mark.parametrize("took_s", [9.9, 10])
async def test_a_stale_link_has_no_second_try_without_time(took_s: float) -> None:
    backlog = Backlog("q0", "q1")
    backlog.diverter._queue = "q0"
    await backlog.send(100)
    backlog.script.plan("q0", "send", (took_s, AWAY))
    assert await backlog.send(100) == "q1"
    assert [name for name, _ in backlog.script.made("send")] == ["q0", "q0", "q1"]


async def test_a_fresh_link_has_no_second_try() -> None:
    backlog = Backlog("q0", "q1")
    backlog.diverter._queue = "q0"
    backlog.script.plan("q0", "send", (0, AWAY))
    assert await backlog.send(100) == "q1"
    assert [name for name, _ in backlog.script.made("send")] == ["q0", "q1"]


async def test_what_the_message_causes_is_not_tried_again() -> None:
    backlog = Backlog("q0", "q1")
    backlog.diverter._queue = "q0"
    await backlog.send(100)
    backlog.script.plan("q0", "send", (0, MessageSizeExceededError(message="large")))
    with pytest.raises(MessageSizeExceededError):
        await backlog.send(100)
    assert len(backlog.script.made("send")) == 2
    assert not backlog.rotation.all_out()
    backlog.script.plan("q0", "send", (0, None))
    assert await backlog.send(100) == "q0", "its connection is free again"


async def test_a_queue_that_is_gone_is_looked_for() -> None:
    gone = MessagingEntityNotFoundError(message="gone")
    backlog = Backlog("q0")
    backlog.script.plan("q0", "open", (0, gone), (0, None))
    assert await backlog.send(5) == "q0"
    assert backlog.missed == 1
    again = Backlog("q0")
    again.script.plan("q0", "open", (0, gone), (0, None))
    assert (await again.batch(5)).max_size_in_bytes == 1000
    assert again.missed == 1


@pytest.mark.parametrize("what", ["send", "batch"])
async def test_it_waits_for_the_pair_inside_the_time(what: str) -> None:
    backlog = Backlog("q0")
    backlog.paired_after = 3
    assert await getattr(backlog, what)(5) is not None
    assert backlog.changed.waits == [0.1] * 3
    late = Backlog("q0")
    late.paired_after = 3
    with pytest.raises(OperationTimeoutError):
        await getattr(late, what)(0.25)
    assert late.changed.waits == [0.1, 0.1, 0.05]


@pytest.mark.parametrize("what", ["send", "batch"])
async def test_it_ends_when_the_primary_is_back(what: str) -> None:
    backlog = Backlog("q0")
    backlog.script.plan("q0", "open", (0, AWAY))
    backlog.needed_for = 2
    assert await getattr(backlog, what)(60) is None
    assert len(backlog.closing.waits) == 2


async def test_a_batch_ends_with_the_time() -> None:
    backlog = Backlog("q0", "q1")
    for name in ("q0", "q1"):
        backlog.script.plan(name, "open", (0, AWAY))
    with pytest.raises(OperationTimeoutError, match="No backlog queue answered in time"):
        await backlog.batch(2)
    assert backlog.passed_s() == pytest.approx(2, abs=0.1)
    assert {name for name, _ in backlog.script.made("open")} == {"q0", "q1"}
    assert backlog.rotation.all_out()


async def test_a_batch_gives_its_connection_back() -> None:
    backlog = Backlog("q0")
    for _ in range(3):
        assert await backlog.batch(15) is not None
    assert backlog.script.made("open") == [("q0", 10)], "one, which stays open"
    backlog.script.plan("q0", "batch", (0, ValueError("larger than the queue takes")), (0, AWAY), (0, None))
    with pytest.raises(ValueError, match="larger"):
        await backlog.batch(5)
    assert not backlog.rotation.all_out(), "the caller's own mistake"
    assert await backlog.batch(5) is not None
    assert backlog.script.made("open")[1:] == [("q0", 4.9)], "what failed is not used again"


async def test_a_connection_that_others_use_is_nobodys_failure() -> None:
    backlog = Backlog("q0", try_timeout=2)
    await backlog.send(5)
    links: Any = backlog.diverter._links_to("q0")
    used = await links.take(0)
    links.take = lambda seconds: _busy(backlog, seconds)
    with pytest.raises(OperationTimeoutError):
        await backlog.send(3)
    with pytest.raises(OperationTimeoutError):
        await backlog.batch(3)
    assert not backlog.rotation.all_out()
    assert not links.pool.free
    assert used.opened


async def _busy(backlog: Backlog, seconds: float) -> Any:
    assert seconds > 0
    backlog.clock.step(seconds=seconds)
    raise NoLinkYet


@pytest.mark.parametrize("what", ["send", "batch"])
async def test_the_wait_for_a_connection_counts(what: str) -> None:
    backlog = Backlog("q0", try_timeout=2)
    links: Any = backlog.diverter._links_to("q0")
    take = links.take

    async def late(seconds: float) -> Any:
        backlog.clock.step(seconds=1.4)
        return await take(seconds - 1.4)

    links.take = late
    backlog.script.plan("q0", "open", (100, AWAY))
    with pytest.raises((OperationTimeoutError, ServiceBusConnectionError)):
        await getattr(backlog, what)(1.5)
    assert backlog.passed_s() == pytest.approx(1.5, abs=0.02)


@pytest.mark.parametrize("what", ["send", "batch"])
async def test_a_queue_that_fails_is_told_once(what: str) -> None:
    backlog = Backlog("q0", "q1")
    backlog.diverter._queue = "q0"
    recorder = backlog.diverter._events = Recorder()  # type: ignore[assignment]
    backlog.script.plan("q0", "open", (0, AWAY))
    for _ in range(2):
        assert await getattr(backlog, what)(5) is not None
    assert [(kind, fields["queue"]) for kind, fields in recorder.events] == [("backlog-queue-out", "q0")]
    backlog.clock.step(seconds=1_001)
    backlog.diverter._queue = "q0"
    backlog.script.plan("q0", "open", (0, None))
    assert await backlog.send(5) == "q0"
    assert [kind for kind, _ in recorder.events][1:] == ["backlog-queue-in"]
    await backlog.send(5)
    assert len(recorder.events) == 2


async def test_what_rests_can_be_used_again() -> None:
    backlog = Backlog("q0")
    await backlog.send(5)
    links: Any = backlog.diverter._links_to("q0")
    await backlog.diverter.rest()
    assert list(links.pool.free) == []
    await backlog.send(5)
    assert [channel.opened for channel in links.pool.free] == [True]
    used = await links.take(0)
    await backlog.diverter.rest()
    assert used.opened, "somebody uses it"
    await backlog.diverter.close()
    assert links.left == 1


async def test_every_try_is_counted_with_its_size() -> None:
    backlog = Backlog("q0", "q1")
    backlog.diverter._queue = "q0"
    recorder = backlog.diverter._events = Recorder()  # type: ignore[assignment]
    backlog.script.plan("q0", "batch", (0, AWAY))
    assert await backlog.send(5) == "q1"
    ((failed, _, first), (went, stage, second)) = recorder.operations
    assert (failed, first["count"], first["size_bytes"]) == ("q0", 1, 0), "no batch, no size"
    assert "outcome" in first
    assert (went, stage, second["count"]) == ("q1", "to-backlog", 1)
    assert "outcome" not in second
    assert second["size_bytes"] > len(PAYLOADS[0])


async def test_a_key_has_its_queue_and_a_queue_that_failed_is_left() -> None:
    backlog = Backlog("q0", "q1", "q2")
    ends_ms = backlog.clock.now_ms() + 5_000
    names = {await backlog.diverter.send(PAYLOADS, ends_ms, backlog.needed, key="orders") for _ in range(5)}
    assert len(names) == 1
    assert await backlog.diverter.send(PAYLOADS, ends_ms, backlog.needed, queue="q2") == "q2"
    backlog.script.plan("q2", "send", (0, AWAY))
    assert await backlog.diverter.send(PAYLOADS, ends_ms, backlog.needed, queue="q2") != "q2"


async def test_a_batch_is_no_longer_wanted_when_its_sender_is_closed() -> None:
    backlog = Backlog("q0")
    backlog.script.plan("q0", "batch", (0, ValueError("larger than the queue takes")))
    calls: list[int] = []

    def needed() -> bool:
        calls.append(1)
        if len(calls) == 2:
            raise LookupError("closed")
        return True

    with pytest.raises(LookupError, match="closed"):
        await backlog.diverter.create_batch(None, backlog.clock.now_ms() + 5_000, needed)


async def test_a_batch_has_its_share_of_the_time() -> None:
    backlog = Backlog("q0", try_timeout=4)
    links: Any = backlog.diverter._links_to("q0")
    asked: list[float] = []
    take = links.take

    async def noted(seconds: float) -> Any:
        asked.append(seconds)
        return await take(seconds)

    links.take = noted
    await backlog.batch(100)
    await backlog.batch(3)
    assert asked == [4, 3]
    assert backlog.script.made("open") == [("q0", 4)]


async def test_a_queue_that_is_in_is_not_told() -> None:
    backlog = Backlog("q0")
    recorder = backlog.diverter._events = Recorder()  # type: ignore[assignment]
    await backlog.send(5)
    assert recorder.events == []


async def test_an_answer_says_more_than_no_answer() -> None:
    slow = OperationTimeoutError(message="slow")
    backlog = Backlog("q0")
    backlog.script.plan("q0", "open", (0, AWAY), (3, slow))
    with pytest.raises(ServiceBusConnectionError, match="away"):
        await backlog.send(5)
    silent = Backlog("q0")
    silent.script.plan("q0", "open", (3, slow))
    with pytest.raises(OperationTimeoutError, match="slow"):
        await silent.send(5)
    again = Backlog("q0")
    again.script.plan("q0", "open", (3, slow), (0, AWAY))
    with pytest.raises(ServiceBusConnectionError, match="away"):
        await again.send(5)


async def test_a_link_whose_send_was_cancelled_is_not_used_again() -> None:
    backlog = Backlog("q0")
    await backlog.send(100)
    backlog.script.plan("q0", "send", (0, asyncio.CancelledError()), (0, None))  # type: ignore[arg-type]
    with pytest.raises(asyncio.CancelledError):
        await backlog.send(100)
    assert await backlog.send(100) == "q0"
    assert len(backlog.script.made("open")) == 2
