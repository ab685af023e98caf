"""Detects changes of the machine's clock and adjusts everything that depends on it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from twinbus.clock import Clock
from twinbus.limits import CLOCK_WATCH_MS

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost

logger = logging.getLogger(__name__)


class ClockWatch:
    """Checks the clock periodically on behalf of all namespaces."""

    __slots__ = ("_clock", "_hosts", "_timer")

    def __init__(self, clock: Clock, hosts: Mapping[str, NamespaceHost]) -> None:
        self._clock = clock
        # By name; includes namespaces added later.
        self._hosts = hosts
        # None while stopped.
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(CLOCK_WATCH_MS / 1000, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def look(self) -> None:
        """Check the clock once, and follow it if it was set."""
        step_ms = self._clock.follow()
        if not step_ms:
            return
        logger.warning("the clock of this machine was set %s by %.3f s", *_told(step_ms))
        for host in self._hosts.values():
            host.clock_set(step_ms)

    def _tick(self) -> None:
        self.look()
        self.start()


def _told(step_ms: int) -> tuple[str, float]:
    return "forward" if step_ms > 0 else "back", abs(step_ms) / 1000
