"""The port for our own client: pipelined sends, completions in ranges."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from twinbus.client import BusClient, Receiver, Sender, encode_batch, read_enqueued_ms
from twinbus.client.batch import FORMAT
from twinbus.client.connection import BusConnection
from twinbus.clock import Clock, MonotonicClock, SystemClock
from twinbus.errors import ServiceError
from twinbus.limits import SYPHON_WINDOW
from twinbus.paired.asking import check_identity, told_by
from twinbus.paired.syphon.port import Held, Outcomes, Parcel, lock_left_ms


class BusPort:
    """A namespace reached by a `BusClient`, which it closes in the end."""

    def __init__(self, client: BusClient, *, clock: Clock | None = None, wall: Clock | None = None) -> None:
        self._client = client
        self._clock = clock or MonotonicClock()
        # The time of day, in which the service reports the end of a lock.
        self._wall = wall or SystemClock()

    def expect(self, identity: str) -> None:
        def check(connection: BusConnection) -> None:
            check_identity(told_by(connection), identity)

        self._client.check = check

    async def connect(self) -> None:
        await self._client.connection()

    async def source(self, path: str) -> BusSource:
        return BusSource(await self._client.receiver(path), self._clock, self._wall)

    async def destination(self, path: str) -> BusDestination:
        return BusDestination(await self._client.sender(path, window=SYPHON_WINDOW))

    async def oldest_ms(self, path: str) -> int | None:
        found = await (await self._client.management(path)).peek(1)
        return found[0].enqueued_ms if found else None

    async def close(self) -> None:
        await self._client.close()


class BusSource:
    """A backlog queue, through a receiver without prefetch: only requested messages are locked."""

    def __init__(self, receiver: Receiver, clock: Clock, wall: Clock) -> None:
        self._receiver = receiver
        self._clock = clock
        self._wall = wall

    async def receive(self, max_count: int, wait_s: float) -> list[Held]:
        messages = await self._receiver.receive_batch(max_count, wait_s)
        if not messages:
            return []
        # Messages received together are locked for the same time, and decoding each would cost too much.
        lock_ms = lock_left_ms(messages[0].locked_until_ms, self._wall.now_ms())
        expires_ms = self._clock.now_ms() + lock_ms
        held = []
        for message in messages:
            held.append(Held(message.payload, message, lock_ms, expires_ms, read_enqueued_ms(message.payload)))
            # Settling needs only the token; drop the payload's second reference.
            message.payload = b""
        return held

    async def complete(self, held: Sequence[Held]) -> Outcomes:
        return await self._receiver.complete_many(one.handle for one in held)

    async def dead_letter(self, held: Held, reason: str, description: str) -> None:
        await self._receiver.dead_letter(held.handle, reason, description)

    async def renew(self, held: Sequence[Held]) -> None:
        now_ms = self._clock.now_ms()
        await self._receiver.management.renew_locks([one.handle.lock_token for one in held])
        for one in held:
            one.expires_ms = now_ms + one.lock_ms

    async def release(self, held: Sequence[Held]) -> None:
        if self._receiver.error is None:
            self._receiver.release(one.handle for one in held)

    async def is_empty(self) -> bool:
        return not await self._receiver.management.peek(1)

    async def close(self) -> None:
        with suppress(ServiceError):
            await self._receiver.close()


class BusDestination:
    """An entity of the primary, through one sender."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    @property
    def usable(self) -> bool:
        return self._sender.error is None

    async def send(self, parcels: Sequence[Parcel], on_accepted: Callable[[int], None]) -> Outcomes:
        outcomes: Outcomes = [None] * len(parcels)
        if not parcels:
            return outcomes
        left = len(parcels)
        last: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settle(error: ServiceError | None, index: int) -> None:
            nonlocal left
            outcomes[index] = error
            if error is None:
                on_accepted(index)
            left -= 1
            if left == 0 and not last.done():
                last.set_result(None)

        sender = self._sender
        for index, parcel in enumerate(parcels):
            try:
                if sender.room() <= 0:
                    await sender.wait_for_room()
                if len(parcel) == 1:
                    sender.submit(parcel[0], settle, index)
                else:
                    sender.submit(encode_batch(parcel), settle, index, message_format=FORMAT)
            except ServiceError as error:
                settle(error, index)
        await last
        return outcomes

    def abandon(self, error: ServiceError) -> None:
        self._sender.abandon(error)

    async def close(self) -> None:
        with suppress(ServiceError):
            await self._sender.close()
