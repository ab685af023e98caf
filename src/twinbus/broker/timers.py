"""One timer for all entities, always set to the earliest deadline."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from twinbus.entities.effects import EffectKind

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost

logger = logging.getLogger(__name__)

# The longest wait of a single timer.
WAIT_MS_MAX = 3_600_000


class Timers:
    """Expires locks and messages and activates scheduled messages, on time."""

    __slots__ = ("_at_ms", "_handle", "_host", "_moving", "_stopped")

    def __init__(self, host: NamespaceHost) -> None:
        self._host = host
        self._handle: asyncio.TimerHandle | None = None
        self._at_ms = 0
        # Whether `reschedule` is already scheduled for this turn of the loop.
        self._moving = False
        self._stopped = False

    def start(self) -> None:
        """Do what fell due while the namespace was closed, and set the timer from now on."""
        self._host.entities.tell_deadlines(self._deadline_moved)
        self.run()

    def _deadline_moved(self) -> None:
        if not self._moving:
            self._moving = True
            self._host.loop.call_soon(self.reschedule)

    def reschedule(self) -> None:
        """Set the timer to the earliest deadline."""
        self._moving = False
        deadline_ms = self._host.entities.next_deadline()
        if deadline_ms is None or self._stopped:
            return
        if self._handle is not None:
            if self._at_ms <= deadline_ms:
                return  # it fires early enough, and reschedules then
            self._handle.cancel()
        self._at_ms = deadline_ms
        wait_ms = min(max(deadline_ms - self._host.clock.now_ms(), 1), WAIT_MS_MAX)
        self._handle = self._host.loop.call_later(wait_ms / 1000, self.run)

    def run(self) -> None:
        """Do what is due. Called by the timer, and after the clock was stepped."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        host = self._host
        if host.commits.full:
            return  # the host calls `reschedule` when the disk has caught up
        try:
            for effect in host.entities.tick(host.clock.now_ms(), host.commits.facts):
                if effect.kind is EffectKind.IDLE_DELETED:
                    host.drop_policies(effect.queue.path)
                    host.meter.forget(effect.queue.path)
                    host.sweep_later()
                elif effect.kind is EffectKind.DAMAGED:
                    logger.error(
                        "%d scheduled messages of %s in namespace %s cannot be read and are set aside",
                        effect.count,
                        effect.queue.path,
                        host.name,
                    )
            host.commits.request_if_needed()
        finally:
            # Whatever failed, the deadlines of the others come.
            self.reschedule()

    def stop(self) -> None:
        """For good: what falls due from now on is done at the next start."""
        self._stopped = True
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
