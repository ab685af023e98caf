"""What all senders of a paired client share: the entities, the backlog, the watchers, the two namespaces.

- Nothing connects before it is needed; the first user starts the search for the backlog queues.
- An entity has one state, whatever the spelling of its path.
- Closing ends the watchers, then both namespaces. A fault does the same and tells everybody why.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from random import Random
from weakref import WeakSet

from azure.servicebus.aio import ServiceBusClient, ServiceBusSender

from twinbus.clock import Clock, StopwatchClock
from twinbus.ledger.words import Event
from twinbus.limits import BEAT_S, LINK_LINGER_S, SESSION_CHECK_S_MIN
from twinbus.paired._async.channel import AsyncChannel, close_all
from twinbus.paired._async.diverter import AsyncDiverter
from twinbus.paired._async.links import AsyncLinks
from twinbus.paired._async.namespaces import AsyncPairedNamespace
from twinbus.paired._async.pairing import AsyncBacklogSearch
from twinbus.paired._async.pings import AsyncWatcher
from twinbus.paired._async.receiver import PairedServiceBusReceiver
from twinbus.paired._async.syphoning import AsyncSyphoning
from twinbus.paired.classify import Policy
from twinbus.paired.entity import PairedEntity
from twinbus.paired.errors import PairFaultedError
from twinbus.paired.events import Events, logger
from twinbus.paired.gates import AsyncOpeningGate
from twinbus.paired.options import PairingOptions
from twinbus.paired.retries import Retries
from twinbus.paired.sdk_internals import Connections, is_running
from twinbus.paired.sessions import LastNumberSearch
from twinbus.paired.starvation import FairClock, LagMeter, StarvationReport, async_meter
from twinbus.paired.state import EntityState
from twinbus.paired.synchronization import AsyncSignal, AsyncTasks, async_blocking, async_bounded
from twinbus.paired.syphon.closing import Side


class AsyncPair:
    """Two paired namespaces."""

    def __init__(
        self,
        primary: AsyncPairedNamespace,
        secondary: AsyncPairedNamespace,
        *,
        options: PairingOptions,
        retries: Retries,
        classify: Policy,
        events: Events,
        clock: StopwatchClock,
        wall_clock: Clock,
        rng: Random,
    ) -> None:
        self.options = options
        self.retries = retries
        self.classify = classify
        self.events = events
        self.clock = clock
        self.rng = rng
        self.primary: ServiceBusClient = primary.client(**{**primary.options, "retry_total": 0})
        self.secondary: ServiceBusClient = secondary.client(**{**secondary.options, "retry_total": 0})
        # Creates receivers, which keep the SDK's own retries.
        self.receiving: ServiceBusClient = primary.client(**primary.options)
        # Diverters of senders that are still referenced.
        self.diverters: WeakSet[AsyncDiverter] = WeakSet()
        # Receivers that are still referenced; they are told of a fault.
        self.receivers: WeakSet[PairedServiceBusReceiver] = WeakSet()
        self.tasks = AsyncTasks()
        # How many links open at once.
        self._gates = {Side.PRIMARY: AsyncOpeningGate(), Side.SECONDARY: AsyncOpeningGate()}
        # By what was asked for: links that all senders with the same arguments share.
        self._links: dict[Hashable, AsyncLinks] = {}
        # Pulsed at the end.
        self._ending = AsyncSignal()
        self._watcher = AsyncWatcher(options, retries, clock, events, classify, self.primary_channel)
        # By lower-case path.
        self._entities: dict[str, PairedEntity[AsyncSignal]] = {}
        self.pairing = AsyncBacklogSearch(
            primary,
            secondary,
            options=options,
            events=events,
            clock=clock,
            rng=rng,
            tasks=self.tasks,
            on_paired=self._paired,
        )
        # Counter for the numbers of scheduled messages in the backlog. They are negative, unlike sequence numbers.
        self._hidden = 0
        # Guards the entities and the counter against other threads.
        self._lock = threading.Lock()
        self.closed = False
        self.fault: str | None = None
        # Whether this is a forked child, whose connections belong to its parent.
        self.forked = False
        self._started = False
        # The in-process syphon; None if it runs elsewhere.
        self._syphoning: AsyncSyphoning | None = None
        if options.enable_syphon:
            self._syphoning = AsyncSyphoning(
                primary,
                secondary,
                options=options,
                events=events,
                clock=clock,
                wall_clock=wall_clock,
                on_fault=self._give_up,
            )

    # --- the backlog queues ---------------------------------------------------------------------------------------

    def start(self) -> AsyncPair:
        """Mark the pair as used, and start the search."""
        if not self._started:
            self._started = True
            if isinstance(self.clock, FairClock):
                self.clock.meter = async_meter()
                self.tasks.spawn(self._beat, self.clock.meter)
        self.pairing.start()
        return self

    async def _beat(self, meter: LagMeter) -> None:
        """Notice when this process does not get the CPU, and say so if it matters."""
        meter.start()
        told = StarvationReport(meter, self.clock)
        try:
            while not self.closed:
                await self._ending.wait(BEAT_S)
                meter.beat()
                lost_ms = told.due(self._is_waiting())
                if lost_ms:
                    self.events.emit(Event.STARVED, count=lost_ms)
        finally:
            meter.stop()

    def _is_waiting(self) -> bool:
        """Whether somebody waits for a link, or an entity is in trouble."""
        return (
            any(gate.running for gate in self._gates.values())
            or any(links.pool.waiting for links in list(self._links.values()))
            or any(entity.state is not EntityState.HEALTHY for entity in self.entities)
        )

    def _paired(self) -> None:
        if self._syphoning is not None:
            self._syphoning.start()

    async def look(self, entity: PairedEntity[AsyncSignal], queue: str, seconds: float) -> bool:
        """Check how far a backlog queue has drained; False if it is too early to check again, or there is no answer."""
        if not entity.trail.may_look(queue, self.clock.now_ms(), round(SESSION_CHECK_S_MIN * 1000)):
            return False
        receiver = self.secondary.get_queue_receiver(queue)
        connections = Connections(receiver)
        seconds = min(seconds, self.options.try_timeout)

        async def number_from(first: int) -> int | None:
            found = await receiver.peek_messages(1, sequence_number=first, timeout=seconds)
            return found[0].sequence_number if found else None

        async def ask() -> None:
            await receiver.__aenter__()
            sessions = entity.trail.in_queue(queue)
            oldest = await number_from(1)
            entity.trail.drained(sessions, oldest)
            if oldest is not None and any(session.last_number is None for session in sessions.values()):
                search = LastNumberSearch(oldest)
                while (question := search.question) is not None:
                    search.answer(await number_from(question))
                entity.trail.bound(sessions, search.last)

        try:
            await async_bounded(seconds, ask, connections.cut)
        except Exception as error:
            connections.cut()
            logger.debug("no look at the backlog queue '%s': %r", queue, error)
            return False
        finally:
            await self.tasks.leave(lambda: close_all(receiver, connections))
        entity.refresh()
        return True

    # --- entities -------------------------------------------------------------------------------------------------

    def entity(self, path: str) -> PairedEntity[AsyncSignal]:
        with self._lock:
            found = self._entities.get(path.lower())
            if found is None:
                found = self._entities[path.lower()] = PairedEntity(
                    path,
                    changed=AsyncSignal(),
                    interval_s=self.options.failover_interval,
                    clock=self.clock,
                    events=self.events,
                    on_trouble=self._watch,
                )
            return found

    @property
    def entities(self) -> list[PairedEntity[AsyncSignal]]:
        return list(self._entities.values())

    def primary_channel(self, path: str) -> AsyncChannel:
        """A new connection to an entity of the primary, queue or topic, for a ping, which waits for nobody."""
        return AsyncChannel(lambda: self.primary.get_queue_sender(path), self.tasks, self.clock)

    def primary_links(
        self, entity: PairedEntity[AsyncSignal], key: Hashable, make: Callable[[], ServiceBusSender]
    ) -> AsyncLinks:
        """The links to an entity of the primary, shared by all senders with the same key; `leave` them at the end."""

        def failed(error: Exception) -> None:
            if self.classify(error):
                entity.failed(error)

        return self._shared(Side.PRIMARY, key, make, failed)

    def backlog_links(self, name: str) -> AsyncLinks:
        """The links to a backlog queue, shared by all senders; `leave` them at the end."""
        return self._shared(Side.SECONDARY, name, lambda: self.secondary.get_queue_sender(name), lambda error: None)

    def _shared(
        self,
        side: Side,
        key: Hashable,
        make: Callable[[], ServiceBusSender],
        on_failure: Callable[[Exception], None],
    ) -> AsyncLinks:
        gate = self._gates[side]
        with self._lock:
            links = self._links.get((side, key))
            if links is None:
                links = self._links[side, key] = AsyncLinks(
                    lambda: AsyncChannel(make, self.tasks, self.clock, gate),
                    gate=gate,
                    tasks=self.tasks,
                    max_in_flight=self.options.max_in_flight,
                    silent_s=self.options.try_timeout,
                    on_failure=on_failure,
                )
            links.join()
        return links

    async def leave(self, links: AsyncLinks) -> None:
        """A sender no longer needs its links. They stay for a moment: many applications make a sender per request."""
        with self._lock:
            if links.leave():
                self.tasks.spawn(self._linger, links)

    async def _linger(self, links: AsyncLinks) -> None:
        ends_ms = self.clock.now_ms() + round(LINK_LINGER_S * 1000)
        while not self.closed and self.clock.now_ms() < ends_ms:
            # In short steps: the end may come just before the wait.
            await self._ending.wait(BEAT_S)
        with self._lock:
            if links.is_needed() or self.closed:
                return
            for key in [key for key, each in self._links.items() if each is links]:
                del self._links[key]
        await self.tasks.together(*links.closings())

    def closings(self) -> list[Callable[[], Awaitable[None]]]:
        """Functions that close all links."""
        return [closing for links in list(self._links.values()) for closing in links.closings()]

    def hidden_numbers(self, count: int) -> list[int]:
        """Numbers for scheduled messages that have no sequence number yet."""
        with self._lock:
            first, self._hidden = self._hidden, self._hidden + count
        return [-(number + 1) for number in range(first, first + count)]

    def _watch(self, entity: PairedEntity[AsyncSignal]) -> None:
        self.tasks.spawn(self._watch_until_well, entity)

    async def _watch_until_well(self, entity: PairedEntity[AsyncSignal]) -> None:
        await self._watcher.watch(entity)
        if not entity.closed:
            # Another namespace may have come back at its address.
            self.pairing.confirm()
        # Senders of other entities use the same links.
        if not any(each.failed_over or each.closed for each in self.entities):
            for diverter in list(self.diverters):
                await diverter.rest()

    # --- the end --------------------------------------------------------------------------------------------------

    async def close(self, fault: str | None, closings: list[Callable[[], Awaitable[None]]]) -> None:
        """Close both namespaces; with a reason, tell everybody who still uses one."""
        self.closed = True
        self._ending.pulse()
        self.fault = self.fault or fault
        self.pairing.end()
        for entity in self.entities:
            entity.close(fault)
        if fault is not None:
            for receiver in list(self.receivers):
                receiver._fault = fault
        if self._syphoning is not None:
            for side in Side:
                self._syphoning.end(side, fault)
            await self._syphoning.stop()
        await self.tasks.together(*closings)
        await self.tasks.together(*self.closings())
        # The SDK's clients close what they have created, and nothing may be created meanwhile.
        await self.tasks.finish()
        await self.tasks.together(self.primary.close, self.receiving.close, self.secondary.close)
        # This may wait a moment for a listener.
        await async_blocking(self._end_telling)

    def abandon(self) -> None:
        """Nobody references the client any more. The garbage collector may call this on any thread, so it wakes
        nobody; the background work sees the flags soon."""
        if self.forked:
            return
        self.closed = True
        self.pairing.abandon()
        for entity in self.entities:
            entity.closed = True
        with suppress(RuntimeError):
            threading.Thread(target=self._end_telling, name="twinbus-farewell", daemon=True).start()

    def _end_telling(self) -> None:
        if self.events.journal is not None:
            self.events.journal.close()
        self.events.close()

    async def end_side(self, side: Side, fault: str | None) -> None:
        """Close one namespace; with a syphon, the other one must follow."""
        if side is Side.PRIMARY:
            self._give_up(fault or "The primary of the pair was closed.")
            await self.tasks.together(self.primary.close, self.receiving.close)
        else:
            self.pairing.close(fault or "The secondary of the pair was closed.")
            await self.tasks.together(self.secondary.close)
        if self._syphoning is not None:
            self._syphoning.end(side, fault)
            self.tasks.spawn(self._syphoning.watch)

    # --- who may still use it -------------------------------------------------------------------------------------

    @property
    def used(self) -> bool:
        """Whether it has, or had, connections."""
        return self._started or any(map(is_running, self.receivers))

    def live(self) -> AsyncPair:
        """The pair itself; raises if it can no longer be used."""
        if self.fault is not None:
            raise PairFaultedError(self.fault)
        if self.closed:
            raise ValueError("The paired client was closed: make a new PairedServiceBusClient.")
        return self

    def orphan(self, reason: str) -> None:
        """Called in a forked child. Takes no lock and wakes nobody: their owners are in the parent."""
        self.forked = True
        self.fault = reason
        for entity in self.entities:
            entity.direct = False
            entity.closed = True
            entity.fault = reason
        for receiver in list(self.receivers):
            receiver._fault = reason
            receiver._forked = True

    def _give_up(self, reason: str) -> None:
        """Make every sender and receiver raise the reason; their owner still closes them."""
        self.fault = self.fault or reason
        for entity in self.entities:
            entity.close(reason)
        for receiver in list(self.receivers):
            receiver._fault = reason
