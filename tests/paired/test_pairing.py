"""The search for the backlog queues, on a stepped clock: how often it is made, who waits for it, and how it ends."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError

from tests.paired.scripted import SteppedSignal
from twinbus.clock import SteppedClock
from twinbus.paired import PairedEvent, PairFaultedError, PairingError
from twinbus.paired._async.namespaces import AsyncPairedNamespace
from twinbus.paired._async.pairing import AsyncBacklogSearch
from twinbus.paired.backlog import Found
from twinbus.paired.events import Events
from twinbus.paired.homes import Home
from twinbus.paired.options import PairingOptions
from twinbus.paired.synchronization import AsyncTasks

TEXT = "Endpoint=sb://{}.servicebus.windows.net;SharedAccessKeyName=n;SharedAccessKey=k"


class Searching:
    """A search whose secondary answers as it is told, and says when it was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        self.clock = SteppedClock()
        # What the secondary says; a search that waits for it never ends when it is None.
        self.answer: Callable[[], Found] | None = None
        self.asked_s: list[float] = []
        # The queues at the time of each pairing.
        self.paired: list[list[str]] = []
        self.heard: list[PairedEvent] = []
        self.tasks = AsyncTasks()
        self.events = Events("a", "b", clock=self.clock, listeners=[self.heard.append], journal=None)
        monkeypatch.setattr("twinbus.paired._async.pairing.async_find_queues", self._find)
        self.search = AsyncBacklogSearch(
            *(AsyncPairedNamespace.of_string(TEXT.format(name)) for name in ("a", "b")),
            options=PairingOptions(backlog_queue_count=2, **options),
            events=self.events,
            clock=self.clock,
            rng=Random(1),
            tasks=self.tasks,
            on_paired=self._on_paired,
        )
        self.changed = SteppedSignal(self.clock, lambda: None)
        self.search.changed = self.changed  # type: ignore[assignment]

    def _on_paired(self) -> None:
        assert self.search.found is not None
        self.paired.append(self.search.found.names)

    async def _find(self, namespace: object, home: Home, count: int) -> Found:
        self.asked_s.append(self.clock.steady_ms() / 1000)
        if self.answer is None:
            await asyncio.Event().wait()
        assert self.answer is not None
        return self.answer()

    @staticmethod
    def away() -> Found:
        found = Found()
        found.failures = {"q0": ServiceRequestError("away")}
        return found

    @staticmethod
    def refused() -> Found:
        found = Found()
        error = ClientAuthenticationError("no")
        error.status_code = 401
        found.failures = {"q0": error}
        return found

    @property
    def passed_s(self) -> float:
        return self.clock.steady_ms() / 1000


@pytest.fixture
def searching(monkeypatch: pytest.MonkeyPatch) -> Searching:
    return Searching(monkeypatch)


async def test_who_waits_is_told_when_the_time_is_up(searching: Searching) -> None:
    with pytest.raises(PairingError, match="are still looked for"):
        await searching.search.wait(5)
    assert searching.passed_s == pytest.approx(5, abs=0.01)
    assert searching.changed.waits[:50] == [0.1] * 50
    assert len(searching.changed.waits) <= 51, "not a moment longer"
    assert searching.asked_s == [0]
    await searching.tasks.finish()


async def test_the_last_wait_ends_with_the_time(searching: Searching) -> None:
    with pytest.raises(PairingError, match="are still looked for"):
        await searching.search.wait(0.25)
    assert searching.changed.waits[:3] == [0.1, 0.1, 0.05]
    await searching.tasks.finish()


async def test_who_waits_is_told_of_a_failure_or_has_the_queues(searching: Searching) -> None:
    searching.answer = searching.away
    with pytest.raises(PairingError, match="No backlog queue could be found or created in the secondary 'b'"):
        await searching.search.wait(None)
    searching.answer = lambda: Found(["q0", "q1"])
    await searching.search.wait(math.inf)
    assert searching.passed_s < 1, "whoever waits has no pause"
    assert searching.paired == [["q0", "q1"]]
    assert searching.search.failure is None
    assert searching.search.usable(0, hold=False) is searching.search.rotation
    await searching.search.wait(0)
    assert searching.events.flush(5)
    assert [(event.kind, event.cause) for event in searching.heard] == [("pairing-failed", "ServiceRequestError")]


async def test_searches_that_fail_have_growing_pauses(searching: Searching) -> None:
    def answer() -> Found:
        if len(searching.asked_s) == 8:
            searching.search.end()
        return searching.away()

    searching.answer = answer
    await searching.search._search()
    pauses = [after - before for before, after in zip(searching.asked_s, searching.asked_s[1:], strict=False)]
    assert pauses == [pytest.approx(wanted, abs=0.11) for wanted in (1, 2, 4, 8, 16, 30, 30)]
    assert searching.search.rotation is None


@pytest.mark.parametrize(("refused", "hold", "raises"), [(0, 1, 0), (0, 0, 1), (1, 1, 1)])
async def test_diversion_waits_only_for_a_secondary_that_is_away(
    searching: Searching, refused: int, hold: int, raises: int
) -> None:
    search = searching.search
    assert search.usable(1, hold=bool(hold)) is None, "nothing has failed yet"
    with pytest.raises(PairingError, match="are still looked for"):
        search.usable(0, hold=True)
    searching.answer = searching.refused if refused else searching.away
    with pytest.raises(PairingError, match="No backlog queue"):
        await search.wait(None)
    if raises:
        with pytest.raises(PairingError, match="No backlog queue"):
            search.usable(1, hold=bool(hold))
    else:
        assert search.usable(1, hold=bool(hold)) is None
    search.end()
    with pytest.raises(PairingError):
        search.usable(1, hold=True)
    await searching.tasks.finish()


async def test_without_a_secondary_the_reason_is_told(searching: Searching) -> None:
    searching.answer = lambda: Found(["q0"])
    await searching.search.wait(None)
    searching.search.close("it was sold")
    with pytest.raises(PairFaultedError, match="it was sold"):
        searching.search.usable(1, hold=True)


async def test_a_search_whose_secondary_was_closed_ends(searching: Searching) -> None:
    searching.answer = searching.away
    searching.search.start()
    await asyncio.sleep(0)
    searching.search.close("it was sold")
    with pytest.raises(PairingError):
        await searching.search.wait(None)
    # Nothing is left that could step the clock.
    await asyncio.gather(*searching.tasks._work)
    assert len(searching.asked_s) <= 2


async def test_a_queue_that_is_gone_is_created_once_and_used_at_once(searching: Searching) -> None:
    searching.answer = lambda: Found(["q0", "q1"])
    await searching.search.wait(None)
    rotation = searching.search.rotation
    assert rotation is not None
    rotation.fail("q1")
    assert not rotation.usable("q1")

    def made() -> Found:
        found = Found(["q0", "q1"])
        found.made = ["q1"]
        return found

    searching.answer = made
    searching.search.missing()
    searching.search.missing()
    await asyncio.sleep(0.01)
    assert len(searching.asked_s) == 2, "one search mends it"
    assert rotation.usable("q1")
    searching.search.missing()
    await asyncio.sleep(0.01)
    assert len(searching.asked_s) == 3, "and another the next time"


async def test_queues_that_are_taken_for_granted_are_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    searching = Searching(monkeypatch, create_backlog_queues=False)
    await searching.search.wait(None)
    assert searching.paired == [["a/x-servicebus-transfer/0", "a/x-servicebus-transfer/1"]]
    searching.search.missing()
    await asyncio.sleep(0.01)
    assert searching.asked_s == []


async def test_one_search_whoever_starts_it(searching: Searching) -> None:
    searching.search.start()
    searching.search.start()
    searching.search.usable(1, hold=True)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert searching.asked_s == [0]
    assert len(searching.tasks._work) == 1
    await searching.tasks.finish()
