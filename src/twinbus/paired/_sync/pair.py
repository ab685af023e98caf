"""Written by scripts/unasync.py from _async/pair.py: read and change that file, not this one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from random import Random
from weakref import WeakSet

from azure.servicebus import ServiceBusClient, ServiceBusSender

from twinbus.clock import Clock, StopwatchClock
from twinbus.ledger.words import Event
from twinbus.limits import BEAT_S, LINK_LINGER_S, SESSION_CHECK_S_MIN
from twinbus.paired._sync.channel import Channel, close_all
from twinbus.paired._sync.diverter import Diverter
from twinbus.paired._sync.links import Links
from twinbus.paired._sync.namespaces import PairedNamespace
from twinbus.paired._sync.pairing import BacklogSearch
from twinbus.paired._sync.pings import Watcher
from twinbus.paired._sync.receiver import PairedServiceBusReceiver
from twinbus.paired._sync.syphoning import Syphoning
from twinbus.paired.classify import Policy
from twinbus.paired.entity import PairedEntity
from twinbus.paired.errors import PairFaultedError
from twinbus.paired.events import Events, logger
from twinbus.paired.gates import OpeningGate
from twinbus.paired.options import PairingOptions
from twinbus.paired.retries import Retries
from twinbus.paired.sdk_internals import Connections, is_running
from twinbus.paired.sessions import LastNumberSearch
from twinbus.paired.starvation import FairClock, LagMeter, StarvationReport, meter
from twinbus.paired.state import EntityState
from twinbus.paired.synchronization import Signal, Tasks, blocking, bounded
from twinbus.paired.syphon.closing import Side


class Pair:
    """Two paired namespaces."""

    def __init__(
        self,
        primary: PairedNamespace,
        secondary: PairedNamespace,
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
        self.receiving: ServiceBusClient = primary.client(**primary.options)
        self.diverters: WeakSet[Diverter] = WeakSet()
        self.receivers: WeakSet[PairedServiceBusReceiver] = WeakSet()
        self.tasks = Tasks()
        self._gates = {Side.PRIMARY: OpeningGate(), Side.SECONDARY: OpeningGate()}
        self._links: dict[Hashable, Links] = {}
        self._ending = Signal()
        self._watcher = Watcher(options, retries, clock, events, classify, self.primary_channel)
        self._entities: dict[str, PairedEntity[Signal]] = {}
        self.pairing = BacklogSearch(
            primary,
            secondary,
            options=options,
            events=events,
            clock=clock,
            rng=rng,
            tasks=self.tasks,
            on_paired=self._paired,
        )
        self._hidden = 0
        self._lock = threading.Lock()
        self.closed = False
        self.fault: str | None = None
        self.forked = False
        self._started = False
        self._syphoning: Syphoning | None = None
        if options.enable_syphon:
            self._syphoning = Syphoning(
                primary,
                secondary,
                options=options,
                events=events,
                clock=clock,
                wall_clock=wall_clock,
                on_fault=self._give_up,
            )

    def start(self) -> Pair:
        """Mark the pair as used, and start the search."""
        if not self._started:
            self._started = True
            if isinstance(self.clock, FairClock):
                self.clock.meter = meter()
                self.tasks.spawn(self._beat, self.clock.meter)
        self.pairing.start()
        return self

    def _beat(self, meter: LagMeter) -> None:
        """Notice when this process does not get the CPU, and say so if it matters."""
        meter.start()
        told = StarvationReport(meter, self.clock)
        try:
            while not self.closed:
                self._ending.wait(BEAT_S)
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

    def look(self, entity: PairedEntity[Signal], queue: str, seconds: float) -> bool:
        """Check how far a backlog queue has drained; False if it is too early to check again, or there is no answer."""
        if not entity.trail.may_look(queue, self.clock.now_ms(), round(SESSION_CHECK_S_MIN * 1000)):
            return False
        receiver = self.secondary.get_queue_receiver(queue)
        connections = Connections(receiver)
        seconds = min(seconds, self.options.try_timeout)

        def number_from(first: int) -> int | None:
            found = receiver.peek_messages(1, sequence_number=first, timeout=seconds)
            return found[0].sequence_number if found else None

        def ask() -> None:
            receiver.__enter__()
            sessions = entity.trail.in_queue(queue)
            oldest = number_from(1)
            entity.trail.drained(sessions, oldest)
            if oldest is not None and any(session.last_number is None for session in sessions.values()):
                search = LastNumberSearch(oldest)
                while (question := search.question) is not None:
                    search.answer(number_from(question))
                entity.trail.bound(sessions, search.last)

        try:
            bounded(seconds, ask, connections.cut)
        except Exception as error:
            connections.cut()
            logger.debug("no look at the backlog queue '%s': %r", queue, error)
            return False
        finally:
            self.tasks.leave(lambda: close_all(receiver, connections))
        entity.refresh()
        return True

    def entity(self, path: str) -> PairedEntity[Signal]:
        with self._lock:
            found = self._entities.get(path.lower())
            if found is None:
                found = self._entities[path.lower()] = PairedEntity(
                    path,
                    changed=Signal(),
                    interval_s=self.options.failover_interval,
                    clock=self.clock,
                    events=self.events,
                    on_trouble=self._watch,
                )
            return found

    @property
    def entities(self) -> list[PairedEntity[Signal]]:
        return list(self._entities.values())

    def primary_channel(self, path: str) -> Channel:
        """A new connection to an entity of the primary, queue or topic, for a ping, which waits for nobody."""
        return Channel(lambda: self.primary.get_queue_sender(path), self.tasks, self.clock)

    def primary_links(self, entity: PairedEntity[Signal], key: Hashable, make: Callable[[], ServiceBusSender]) -> Links:
        """The links to an entity of the primary, shared by all senders with the same key; `leave` them at the end."""

        def failed(error: Exception) -> None:
            if self.classify(error):
                entity.failed(error)

        return self._shared(Side.PRIMARY, key, make, failed)

    def backlog_links(self, name: str) -> Links:
        """The links to a backlog queue, shared by all senders; `leave` them at the end."""
        return self._shared(Side.SECONDARY, name, lambda: self.secondary.get_queue_sender(name), lambda error: None)

    def _shared(
        self,
        side: Side,
        key: Hashable,
        make: Callable[[], ServiceBusSender],
        on_failure: Callable[[Exception], None],
    ) -> Links:
        gate = self._gates[side]
        with self._lock:
            links = self._links.get((side, key))
            if links is None:
                links = self._links[side, key] = Links(
                    lambda: Channel(make, self.tasks, self.clock, gate),
                    gate=gate,
                    tasks=self.tasks,
                    max_in_flight=self.options.max_in_flight,
                    silent_s=self.options.try_timeout,
                    on_failure=on_failure,
                )
            links.join()
        return links

    def leave(self, links: Links) -> None:
        """A sender no longer needs its links. They stay for a moment: many applications make a sender per request."""
        with self._lock:
            if links.leave():
                self.tasks.spawn(self._linger, links)

    def _linger(self, links: Links) -> None:
        ends_ms = self.clock.now_ms() + round(LINK_LINGER_S * 1000)
        while not self.closed and self.clock.now_ms() < ends_ms:
            self._ending.wait(BEAT_S)
        with self._lock:
            if links.is_needed() or self.closed:
                return
            for key in [key for key, each in self._links.items() if each is links]:
                del self._links[key]
        self.tasks.together(*links.closings())

    def closings(self) -> list[Callable[[], None]]:
        """Functions that close all links."""
        return [closing for links in list(self._links.values()) for closing in links.closings()]

    def hidden_numbers(self, count: int) -> list[int]:
        """Numbers for scheduled messages that have no sequence number yet."""
        with self._lock:
            first, self._hidden = self._hidden, self._hidden + count
        return [-(number + 1) for number in range(first, first + count)]

    def _watch(self, entity: PairedEntity[Signal]) -> None:
        self.tasks.spawn(self._watch_until_well, entity)

    def _watch_until_well(self, entity: PairedEntity[Signal]) -> None:
        self._watcher.watch(entity)
        if not entity.closed:
            self.pairing.confirm()
        if not any(each.failed_over or each.closed for each in self.entities):
            for diverter in list(self.diverters):
                diverter.rest()

    def close(self, fault: str | None, closings: list[Callable[[], None]]) -> None:
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
            self._syphoning.stop()
        self.tasks.together(*closings)
        self.tasks.together(*self.closings())
        self.tasks.finish()
        self.tasks.together(self.primary.close, self.receiving.close, self.secondary.close)
        blocking(self._end_telling)

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

    def end_side(self, side: Side, fault: str | None) -> None:
        """Close one namespace; with a syphon, the other one must follow."""
        if side is Side.PRIMARY:
            self._give_up(fault or "The primary of the pair was closed.")
            self.tasks.together(self.primary.close, self.receiving.close)
        else:
            self.pairing.close(fault or "The secondary of the pair was closed.")
            self.tasks.together(self.secondary.close)
        if self._syphoning is not None:
            self._syphoning.end(side, fault)
            self.tasks.spawn(self._syphoning.watch)

    @property
    def used(self) -> bool:
        """Whether it has, or had, connections."""
        return self._started or any(map(is_running, self.receivers))

    def live(self) -> Pair:
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
