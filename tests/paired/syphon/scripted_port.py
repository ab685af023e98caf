"""A scripted secondary and primary for the parts of a syphon: what they are asked, and what they answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from tests.paired.scripted import Recorder
from twinbus.client import Message
from twinbus.client.envelope import wrap
from twinbus.clock import SteppedClock
from twinbus.errors import ServiceError
from twinbus.paired.syphon.pauses import Pauses
from twinbus.paired.syphon.port import Held, Outcomes, Parcel
from twinbus.paired.syphon.shared import SyphonShared

LOCK_MS = 60_000


class Told(Recorder):
    """Also remembers kinds and latencies: `(entity, kind, fields)`."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds: list[tuple[str, str, dict[str, Any]]] = []
        self.latencies: list[tuple[str, str, list[int]]] = []

    def operation(self, namespace: str, entity: str, kind: str, stage: str, **fields: Any) -> None:
        super().operation(namespace, entity, kind, stage, **fields)
        self.kinds.append((entity, str(kind), fields))

    def latency(self, namespace: str, entity: str, queue: str, times: list[int]) -> None:
        self.latencies.append((entity, queue, times))

    def close(self) -> None:
        pass


class ScriptedSource:
    """A backlog queue."""

    def __init__(self, port: ScriptedPort, path: str) -> None:
        self._port = port
        self._path = path

    async def receive(self, max_count: int, wait_s: float) -> list[Held]:
        port = self._port
        port.asked.append((max_count, wait_s))
        await asyncio.sleep(0)
        port.happen("receive")
        waiting = port.waiting.setdefault(self._path, [])
        taken, port.waiting[self._path] = waiting[:max_count], waiting[max_count:]
        if not taken:
            await asyncio.sleep(min(wait_s, 0.005))
        return taken

    async def complete(self, held: Sequence[Held]) -> Outcomes:
        self._port.note("complete", held)
        self._port.happen("complete")
        return [self._port.refused.get(str(one.handle)) for one in held]

    async def dead_letter(self, held: Held, reason: str, description: str) -> None:
        self._port.happen("dead_letter")
        self._port.note(f"dead-letter {reason}", [held])

    async def renew(self, held: Sequence[Held]) -> None:
        self._port.note("renew", held)
        self._port.happen("renew")

    async def release(self, held: Sequence[Held]) -> None:
        self._port.note("release", held)

    async def is_empty(self) -> bool:
        return not self._port.waiting.get(self._path) and not self._port.locked_elsewhere

    async def close(self) -> None:
        self._port.note("close", [])


class ScriptedDestination:
    """An entity that answers each parcel with the next of its outcomes; the last one stays."""

    def __init__(self, port: ScriptedPort, path: str) -> None:
        self._port = port
        self._path = path
        self.usable = True

    async def send(self, parcels: Sequence[Parcel], on_accepted: Callable[[int], None]) -> Outcomes:
        port = self._port
        await asyncio.sleep(0)
        outcomes: Outcomes = []
        for index, parcel in enumerate(parcels):
            planned = port.outcomes.get(self._path, [None])
            error = planned.pop(0) if len(planned) > 1 else planned[0]
            outcomes.append(error)
            if error is None:
                port.accepted.setdefault(self._path, []).append(parcel)
                on_accepted(index)
        return outcomes

    def abandon(self, error: ServiceError) -> None:
        self.usable = False

    async def close(self) -> None:
        self._port.note(f"close {self._path}", [])


class ScriptedPort:
    """A namespace."""

    def __init__(self) -> None:
        # By queue.
        self.waiting: dict[str, list[Held]] = {}
        self.locked_elsewhere = False
        # The count and wait of each receive, and what was done with which handles.
        self.asked: list[tuple[int, float]] = []
        self.done: list[tuple[str, list[Any]]] = []
        # By handle: why it cannot be completed.
        self.refused: dict[str, ServiceError] = {}
        # By call: errors to raise, one after the other.
        self.errors: dict[str, list[ServiceError]] = {}
        # By destination: the outcomes of sends, and what was accepted.
        self.outcomes: dict[str, list[ServiceError | None]] = {}
        self.accepted: dict[str, list[Parcel]] = {}
        self.opened: list[str] = []

    def put(self, clock: SteppedClock, queue: str, path: str, *handles: str, body: bytes = b"x") -> None:
        for handle in handles:
            payload = wrap(Message(body, message_id=handle).encode(), path)
            self.waiting.setdefault(queue, []).append(
                Held(payload, handle, LOCK_MS, clock.now_ms() + LOCK_MS, enqueued_ms=1_000)
            )

    def note(self, call: str, held: Sequence[Held]) -> None:
        self.done.append((call, [one.handle for one in held]))

    def handles(self, call: str) -> list[Any]:
        return [handle for name, handles in self.done if name == call for handle in handles]

    def happen(self, call: str) -> None:
        if self.errors.get(call):
            raise self.errors[call].pop(0)

    async def connect(self) -> None:
        self.happen("connect")

    async def source(self, path: str) -> ScriptedSource:
        self.opened.append(path)
        self.happen("source")
        return ScriptedSource(self, path)

    async def destination(self, path: str) -> ScriptedDestination:
        self.opened.append(path)
        self.happen("destination")
        return ScriptedDestination(self, path)

    async def oldest_ms(self, path: str) -> int | None:
        return None

    async def close(self) -> None:
        self.note("close port", [])


class Stage:
    """What the parts of a syphon share, between a scripted primary and a scripted secondary."""

    def __init__(self) -> None:
        self.clock = SteppedClock()
        self.primary, self.secondary = ScriptedPort(), ScriptedPort()
        self.told = Told()
        self.pauses = Pauses(self.clock, first_ms=100, longest_ms=1_000, draw=lambda: 1.0)
        self.shared = SyphonShared(self.primary, self.secondary, self.told, self.clock, self.pauses)  # type: ignore[arg-type]

    def put(self, path: str, *handles: str, queue: str = "q", body: bytes = b"x") -> None:
        self.secondary.put(self.clock, queue, path, *handles, body=body)

    async def settled(self) -> None:
        """Let background work run."""
        for _ in range(20):
            await asyncio.sleep(0)
