"""Written by scripts/unasync.py from _async/syphoning.py: read and change that file, not this one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from uuid import uuid4

from azure.core.exceptions import ResourceNotFoundError

from twinbus.clock import Clock, MonotonicClock
from twinbus.ledger.words import LedgerSource
from twinbus.paired._sync.namespaces import PairedNamespace
from twinbus.paired._sync.provision import backlog_metadata, find_home
from twinbus.paired.arguments import bus_options, retry_options
from twinbus.paired.events import Events, logger
from twinbus.paired.homes import Home
from twinbus.paired.options import PairingOptions
from twinbus.paired.retries import pause_lengths_ms
from twinbus.paired.synchronization import Signal
from twinbus.paired.syphon import Syphon
from twinbus.paired.syphon.background import BackgroundSyphon
from twinbus.paired.syphon.bus_port import BusPort
from twinbus.paired.syphon.closing import ClosingTogether, Side
from twinbus.paired.syphon.monitor import Count
from twinbus.paired.syphon.pauses import Pauses
from twinbus.paired.syphon.roster import BacklogRoster


class Syphoning:
    """What `enable_syphon` adds to a pair."""

    def __init__(
        self,
        primary: PairedNamespace,
        secondary: PairedNamespace,
        *,
        options: PairingOptions,
        events: Events,
        clock: Clock,
        wall_clock: Clock,
        on_fault: Callable[[str], None],
    ) -> None:
        self._primary = primary
        self._secondary = secondary
        self._options = options
        self._events = events
        self._wall_clock = wall_clock
        self._on_fault = on_fault
        self._closing = ClosingTogether(clock)
        self._changed = Signal()
        self._syphon: BackgroundSyphon | None = None
        self._stopped = False
        self._lock = threading.Lock()

    def start(self) -> None:
        """Syphon from the backlog queues of the primary."""
        with self._lock:
            if self._syphon is None and not self._stopped:
                self._syphon = BackgroundSyphon(self._make, self._failed)
                self._syphon.start()

    def _make(self) -> Syphon:
        ports = [BusPort(each.bus(**bus_options(each.options))) for each in (self._primary, self._secondary)]
        journal = self._events.journal
        events = Events(
            self._events.primary,
            self._events.secondary,
            clock=self._wall_clock,
            listeners=self._events.listeners,
            journal=None if journal is None else journal.beside(uuid4().hex, LedgerSource.SYPHON),
        )
        first_ms, longest_ms = pause_lengths_ms(**retry_options(self._primary.options))
        pauses = Pauses(MonotonicClock(), first_ms=first_ms, longest_ms=longest_ms)
        roster = BacklogRoster(
            self._find_home,
            self._queues,
            lambda: self._secondary.bus(**bus_options(self._secondary.options)),
            count=self._options.backlog_queue_count,
            name=self._events.primary,
        )
        return Syphon(ports[0], ports[1], roster=roster, events=events, pauses=pauses, counts=self._counts)

    def _find_home(self) -> Home:
        options = self._options
        return find_home(self._primary, options.primary_name, timeout_s=options.try_timeout)

    def _queues(self) -> dict[str, str | None]:
        """The backlog queues in the secondary with their user metadata."""
        with self._secondary.admin(**{**self._secondary.admin_options, "retry_total": 0}) as admin:
            return backlog_metadata(admin)

    def _counts(self, queues: Sequence[str]) -> dict[str, Count]:
        """The depths of these backlog queues, for the ledger."""
        found = {}
        with self._secondary.admin(**{**self._secondary.admin_options, "retry_total": 0}) as admin:
            for name in queues:
                with suppress(ResourceNotFoundError):
                    queue = admin.get_queue_runtime_properties(name)
                    dead = queue.dead_letter_message_count or 0
                    found[name] = Count((queue.total_message_count or 0) - dead, queue.size_in_bytes or 0, dead)
        return found

    def _failed(self, error: BaseException) -> None:
        logger.error("the syphon of %s has ended: %s", self._events.primary, type(error).__name__)

    def end(self, side: Side, fault: str | None) -> None:
        """One of the namespaces was closed or faulted."""
        self._closing.end(side, fault)
        self._changed.pulse()

    def watch(self) -> None:
        """Wait for the other one to end as well; fault the pair if it does not."""
        while True:
            left_ms = self._closing.left_ms
            if left_ms is None:
                return
            self._changed.wait(left_ms / 1000)
            due = self._closing.due()
            if due is not None:
                self.stop()
                self._on_fault(due[1])
                return

    def stop(self) -> None:
        """Stop the syphon, or never start it; messages it holds are released."""
        with self._lock:
            self._stopped = True
        if self._syphon is not None:
            self._syphon.stop()
