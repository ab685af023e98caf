"""A scripted namespace on a stepped clock, for behaviour that depends only on time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from azure.servicebus import ServiceBusMessageBatch

from twinbus.clock import SteppedClock
from twinbus.paired.options import PairingOptions
from twinbus.paired.synchronization import AsyncPool


class SteppedSignal:
    """Nobody pulses while somebody waits, so the time passes."""

    def __init__(self, clock: SteppedClock, on_wait: Callable[[], None] = lambda: None) -> None:
        self._clock = clock
        self._on_wait = on_wait
        # The duration of each wait.
        self.waits: list[float] = []

    def pulse(self) -> None:
        pass

    async def wait(self, seconds: float) -> bool:
        assert len(self.waits) < 1000, "it never ends"
        await asyncio.sleep(0)
        self.waits.append(round(seconds, 3))
        self._clock.step(seconds=max(seconds, 0.001))
        self._on_wait()
        return False


class Script:
    """What happens to each call, and what was called: `(queue, call, seconds)`."""

    def __init__(self, clock: SteppedClock) -> None:
        self.clock = clock
        self.calls: list[tuple[str, str, float]] = []
        # When each began, in seconds.
        self.moments: list[float] = []
        # What was to be sent, and with which other options.
        self.sent: list[tuple[Any, dict[str, Any]]] = []
        self.on_call: Callable[[str, str], None] = lambda queue, call: None
        # By queue and call: how long it takes, and what it raises. Each outcome is used once; the last one stays.
        self.outcomes: dict[tuple[str, str], list[tuple[float, Exception | None]]] = {}

    def plan(self, queue: str, call: str, *outcomes: tuple[float, Exception | None]) -> None:
        self.outcomes[queue, call] = list(outcomes)

    def happen(self, queue: str, call: str, seconds: float) -> None:
        self.calls.append((queue, call, round(seconds, 3)))
        self.moments.append(self.clock.steady_ms() / 1000)
        self.on_call(queue, call)
        planned = self.outcomes.get((queue, call), [(0.0, None)])
        took_s, error = planned.pop(0) if len(planned) > 1 else planned[0]
        self.clock.step(seconds=min(took_s, seconds))
        if error is not None:
            raise error

    def made(self, call: str) -> list[tuple[str, float]]:
        return [(queue, seconds) for queue, name, seconds in self.calls if name == call]


class ScriptedChannel:
    """A channel, and the SDK's sender in it."""

    def __init__(self, queue: str, script: Script) -> None:
        self.queue = queue
        self.script = script
        self.opened = self.used = False
        self.user: object = None
        self.checks = 0
        self.sdk = self
        self.entity_name = queue
        self.fully_qualified_namespace = "contoso"
        self.client_identifier = "me"
        # A link that the SDK would open first: all sends go through its public method.
        self._running = False
        self._max_message_size_on_link = self._max_batch_size_on_link = 0

    async def open(self, seconds: float) -> None:
        self.script.happen(self.queue, "open", seconds)
        self.opened = True

    async def discard(self) -> None:
        self.opened = self.used = False

    async def rest(self) -> None:
        self.opened = self.used = False

    async def close(self) -> None:
        self.opened = False

    async def leave(self) -> None:
        self.script.happen(self.queue, "leave", 0)
        self.opened = False

    def check(self) -> None:
        self.checks += 1

    def seen(self, error: Exception) -> Exception:
        return error

    async def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        self.script.happen(self.queue, "batch", 0)
        return ServiceBusMessageBatch(max_size_in_bytes or 1000)

    async def send_messages(self, message: Any, *, timeout: float, **options: Any) -> None:
        self.script.sent.append((message, options))
        self.script.happen(self.queue, "send", timeout)


class ScriptedLinks:
    """Links with the real pool; the caller opens them in its own time, because the clock is stepped."""

    def __init__(self, queue: str, script: Script, options: PairingOptions) -> None:
        self._silent_s = options.try_timeout
        self.pool: AsyncPool[Any] = AsyncPool(lambda: ScriptedChannel(queue, script), options.max_in_flight)
        # Senders that have left them.
        self.left = 0
        cold = self.pool.take_cold()
        self.pool.give(cold, good=False)

    async def take(self, seconds: float) -> Any:
        channel = self.pool.take_free() or self.pool.take_cold()
        if channel is None:
            return await self.pool.take(seconds)
        if not channel.opened:
            try:
                await channel.open(min(self._silent_s, seconds))
            except BaseException:
                self.pool.give(channel, good=False)
                raise
        return channel


class NoJitter(Random):
    """Pauses are as long as they can be."""

    def random(self) -> float:
        return 0.0


class Recorder:
    """Events and journal of a pair that only remember: `(kind, fields)` and `(entity, stage, fields)`."""

    primary, secondary = "a", "b"

    def __init__(self) -> None:
        self.journal = self
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.operations: list[tuple[str, str, dict[str, Any]]] = []

    def emit(self, kind: str, **fields: Any) -> None:
        self.events.append((str(kind), fields))

    def operation(self, namespace: str, entity: str, kind: str, stage: str, **fields: Any) -> None:
        self.operations.append((entity, str(stage), fields))
