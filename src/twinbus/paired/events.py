"""What befalls a pair, told three ways: to callbacks, to the log, and to the ledger.

Rules:
- A callback gets each event at once, on the thread or task that saw it; one that fails is logged and disturbs nobody.
- The log has a line for each, with the event's word; what happens often (diverted, syphoned) is there at debug level.
- No event holds a text that somebody else wrote: causes are conditions or names of classes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from twinbus.clock import Clock
from twinbus.ledger.words import Event
from twinbus.paired.journal import Journal

logger = logging.getLogger("twinbus.paired")

_LEVELS = {
    Event.FAILED_OVER: logging.WARNING,
    Event.FAILED_BACK: logging.WARNING,
    Event.QUEUE_OUT: logging.WARNING,
    Event.QUEUE_IN: logging.INFO,
    Event.DIVERTED: logging.DEBUG,
    Event.SYPHONED: logging.DEBUG,
    Event.DEAD_LETTERED: logging.ERROR,
    # The warning with the whole reason is written where it is known; an event holds no text of somebody else.
    Event.PAIRING_FAILED: logging.INFO,
    Event.PING_REFUSED: logging.WARNING,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class PairedEvent:
    """One event: `entity` is the primary's, `queue` the backlog queue, `count` messages."""

    kind: Event
    at_ms: int
    primary: str
    secondary: str
    entity: str = ""
    queue: str | None = None
    cause: str | None = None
    count: int = 0

    def __str__(self) -> str:
        parts = [f"{self.primary}: {self.kind}"]
        for name in ("entity", "queue", "cause", "count"):
            value = getattr(self, name)
            if value:
                parts.append(f"{name}={value}")
        return " ".join(parts)


Listener = Callable[[PairedEvent], None]


class Events:
    """Tells everybody who wants to know."""

    def __init__(
        self, primary: str, secondary: str, *, clock: Clock, listeners: Iterable[Listener], journal: Journal | None
    ) -> None:
        # The names of the two namespaces.
        self.primary = primary
        self.secondary = secondary
        # The time of day.
        self._clock = clock
        # Whom to call.
        self.listeners = list(listeners)
        # Writes the ledger; None when there is none.
        self.journal = journal

    def emit(
        self, kind: Event, *, entity: str = "", queue: str | None = None, cause: str | None = None, count: int = 0
    ) -> None:
        event = PairedEvent(
            kind=kind,
            at_ms=self._clock.now_ms(),
            primary=self.primary,
            secondary=self.secondary,
            entity=entity,
            queue=queue,
            cause=cause,
            count=count,
        )
        level = _LEVELS[kind]
        if logger.isEnabledFor(level):
            logger.log(level, "%s", event)
        if self.journal is not None:
            self.journal.event(kind, self.primary, entity, target=self.secondary, queue=queue, cause=cause, count=count)
        for listener in self.listeners:
            try:
                listener(event)
            except Exception:
                logger.exception("a listener of paired events failed on %s", kind)
