"""The watcher of an entity in trouble: waits for the interval to pass, then pings the primary until it answers.

- Pings go out at a steady pace from the failover on; a ping that hangs is given up before it delays the next for long.
- A ping is an empty message that the service accepts and never delivers. It has a session id, because the entity may
  require one, and elsewhere it does no harm.
- A ping that the primary rejects with an error of the caller's kind (no such entity, unauthorised, disabled) is an
  event. Several in a row fail the entity back, so that callers get that error.
- A ping is retried as a send is, by the caller's retry options, within the ping's own time.
- Each try uses its own connection, because what counts is whether a new sender would get through.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from uuid import uuid4

from azure.servicebus import ServiceBusMessage

from twinbus.clock import Clock
from twinbus.ledger.words import OK, Event, Kind, Stage
from twinbus.limits import PING_BYTES, PING_TIMEOUT_S_MIN
from twinbus.paired._async.channel import AsyncChannel
from twinbus.paired.classify import Policy, cause_of
from twinbus.paired.entity import PairedEntity
from twinbus.paired.events import Events, logger
from twinbus.paired.options import PairingOptions
from twinbus.paired.receiving import PING_CONTENT_TYPE
from twinbus.paired.retries import Retries
from twinbus.paired.state import EntityState
from twinbus.paired.synchronization import AsyncSignal


class AsyncWatcher:
    """Watches entities in trouble, one call of `watch` for each."""

    def __init__(
        self,
        options: PairingOptions,
        retries: Retries,
        clock: Clock,
        events: Events,
        classify: Policy,
        channel: Callable[[str], AsyncChannel],
    ) -> None:
        self._interval_s = options.ping_primary_interval
        self._timeout_s = min(options.try_timeout, max(self._interval_s, PING_TIMEOUT_S_MIN))
        # How many rejected pings in a row fail the entity back; 0 for never.
        self._refusals_max = options.ping_refusals
        # Distinguishes a rejection from an unreachable primary.
        self._classify = classify
        self._retries = retries
        self._clock = clock
        self._events = events
        self._channel = channel

    async def watch(self, entity: PairedEntity[AsyncSignal]) -> None:
        while not entity.unwatch():
            if entity.state is EntityState.SUSPECT:
                await entity.changed.wait(entity.left_s or 0)
                entity.elapse()
            elif entity.state is EntityState.FAILED_OVER:
                await self._ping_until_back(entity)

    async def _ping_until_back(self, entity: PairedEntity[AsyncSignal]) -> None:
        due_ms = self._clock.now_ms() + round(self._interval_s * 1000)
        refusals = 0
        while entity.state is EntityState.FAILED_OVER and not entity.closed:
            left_ms = due_ms - self._clock.now_ms()
            if left_ms > 0:
                await entity.changed.wait(left_ms / 1000)
                continue
            due_ms = max(due_ms, self._clock.now_ms() - 1) + round(self._interval_s * 1000)
            failure = await self._ping(entity)
            if failure is None:
                entity.pinged()
            elif self._classify(failure):
                refusals = 0
            else:
                refusals += 1
                self._events.emit(Event.PING_REFUSED, entity=entity.path, cause=cause_of(failure), count=refusals)
                if refusals == self._refusals_max:
                    entity.refused(cause_of(failure))

    async def _ping(self, entity: PairedEntity[AsyncSignal]) -> Exception | None:
        """Send a ping; returns the error of the last try, or None."""
        message = ServiceBusMessage(
            b"",
            content_type=PING_CONTENT_TYPE,
            time_to_live=timedelta(seconds=1),
            session_id=uuid4().hex,
            message_id=uuid4().hex,
        )
        ends_ms = self._clock.now_ms() + round(self._timeout_s * 1000)
        tries = 0
        while True:
            failure = await self._try(entity.path, message, ends_ms)
            tries += 1
            pause_s = None if failure is None else self._retries.pause_s(failure, tries)
            if pause_s is None or self._clock.now_ms() + pause_s * 1000 >= ends_ms:
                return failure
            await entity.changed.wait(pause_s)
            if entity.closed:
                return failure

    async def _try(self, path: str, message: ServiceBusMessage, ends_ms: int) -> Exception | None:
        channel = self._channel(path)
        failure: Exception | None = None
        try:
            await channel.open((ends_ms - self._clock.now_ms()) / 1000)
            left_s = (ends_ms - self._clock.now_ms()) / 1000
            await channel.sdk.send_messages(message, timeout=max(left_s, 0.1))
        except Exception as error:
            failure = channel.seen(error)
            logger.debug("the ping to '%s' failed: %s", path, cause_of(failure))
        finally:
            await channel.leave()
        if self._events.journal is not None:
            outcome = OK if failure is None else cause_of(failure)
            self._events.journal.operation(
                self._events.primary, path, Kind.PING, Stage.PING, outcome=outcome, size_bytes=PING_BYTES
            )
        return failure
