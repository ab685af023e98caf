"""Events of a pair, reported to callbacks, to the log and to the ledger.

- Listeners get every event, in order, on their own thread: no send waits for them. A listener that fails is logged and
  affects nobody; one that hangs loses events, not the sender's time.
- The log has one line per event; frequent ones (diverted, syphoned) are at debug level.
- No event contains text from elsewhere: causes are conditions or class names.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from twinbus.clock import Clock
from twinbus.ledger.words import Event
from twinbus.limits import EVENTS_WAITING_MAX
from twinbus.paired.journal import Journal

logger = logging.getLogger("twinbus.paired")

# How long closing waits for listeners.
_FAREWELL_S = 5.0

_LEVELS = {
    Event.FAILED_OVER: logging.WARNING,
    Event.FAILED_BACK: logging.WARNING,
    Event.QUEUE_OUT: logging.WARNING,
    Event.QUEUE_IN: logging.INFO,
    Event.DIVERTED: logging.DEBUG,
    Event.SYPHONED: logging.DEBUG,
    Event.DEAD_LETTERED: logging.ERROR,
    # The full reason is logged as a warning where it is known; an event contains no text from elsewhere.
    Event.PAIRING_FAILED: logging.INFO,
    Event.PING_REFUSED: logging.WARNING,
    # Its warning says what to do.
    Event.NAME_UNCONFIRMED: logging.INFO,
    Event.STARVED: logging.WARNING,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class PairedEvent:
    """One event: `entity` is the primary's, `queue` is the backlog queue, `count` is in messages; of `starved`, it is
    the milliseconds that this process did not run."""

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


Listener = Callable[[PairedEvent], Any]


class Listeners:
    """Calls listeners with one event after the other, on its own thread, so that no send waits for them.

    A returned coroutine is awaited on the event loop that the event came from, or on a loop of its own.
    """

    def __init__(self, listeners: Iterable[Listener]) -> None:
        self._listeners = list(listeners)
        # Events with their loops; a threading.Event marks a flush, None the end.
        self._waiting: queue.Queue[tuple[PairedEvent, asyncio.AbstractEventLoop | None] | threading.Event | None]
        self._waiting = queue.Queue(EVENTS_WAITING_MAX)
        # None before the first event.
        self._thread: threading.Thread | None = None
        # Guards the thread's start.
        self._lock = threading.Lock()
        self._closed = False
        # Whether dropped events were already logged.
        self._dropping = False

    def tell(self, event: PairedEvent) -> None:
        if not self._listeners or self._closed:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        try:
            self._waiting.put_nowait((event, loop))
            self._dropping = False
        except queue.Full:
            if not self._dropping:
                self._dropping = True
                logger.error("a listener of paired events does not return: events were dropped")
            return
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="twinbus-events", daemon=True)
                    self._thread.start()

    def flush(self, seconds: float) -> bool:
        """Whether all events so far were delivered within that time."""
        if self._thread is None:
            return True
        told = threading.Event()
        self._waiting.put(told, timeout=seconds)
        return told.wait(seconds)

    def close(self, seconds: float) -> None:
        """Deliver the remaining events, within the given time, and stop."""
        self._closed = True
        thread, self._thread = self._thread, None
        if thread is not None:
            with suppress(queue.Full):
                self._waiting.put(None, timeout=seconds)
                # A listener may close the client.
                if thread is not threading.current_thread():
                    thread.join(seconds)

    def _run(self) -> None:
        while (item := self._waiting.get()) is not None:
            if isinstance(item, threading.Event):
                item.set()
                continue
            event, loop = item
            for listener in self._listeners:
                try:
                    made = listener(event)
                    if not asyncio.iscoroutine(made):
                        continue
                    if loop is None:
                        asyncio.run(made)
                    else:
                        _begin(made, event.kind, loop)
                except BaseException:  # one that calls sys.exit() must not silence the others
                    logger.exception("a listener of paired events failed on %s", event.kind)


def _begin(made: Coroutine[Any, Any, None], kind: Event, loop: asyncio.AbstractEventLoop) -> None:
    heard = _heard(made, kind)
    try:
        asyncio.run_coroutine_threadsafe(heard, loop)
    except RuntimeError:
        # The loop is closed, so nobody will await them.
        heard.close()
        made.close()
        raise


async def _heard(made: Coroutine[Any, Any, None], kind: Event) -> None:
    try:
        await made
    except Exception:
        logger.exception("a listener of paired events failed on %s", kind)


class Events:
    """Reports events to listeners, log and ledger."""

    def __init__(
        self,
        primary: str,
        secondary: str,
        *,
        clock: Clock,
        listeners: Iterable[Listener] | Listeners,
        journal: Journal | None,
    ) -> None:
        self.primary = primary
        self.secondary = secondary
        self._clock = clock
        self.listeners = listeners if isinstance(listeners, Listeners) else Listeners(listeners)
        # Writes the ledger, if there is one.
        self.journal = journal

    def rename(self, *, primary: str | None = None, secondary: str | None = None) -> None:
        """Use the names that the namespaces have reported."""
        for old, new in ((self.primary, primary), (self.secondary, secondary)):
            if self.journal is not None and new is not None:
                self.journal.rename(old, new)
        self.primary, self.secondary = primary or self.primary, secondary or self.secondary

    def named(self) -> None:
        """The namespaces were asked for their names, so the ledger need not wait any longer."""
        if self.journal is not None:
            self.journal.waits_for_names = False

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
        self.listeners.tell(event)

    def flush(self, seconds: float) -> bool:
        """Whether listeners get all events so far within that time."""
        return self.listeners.flush(seconds)

    def close(self) -> None:
        """Deliver the remaining events."""
        self.listeners.close(_FAREWELL_S)
