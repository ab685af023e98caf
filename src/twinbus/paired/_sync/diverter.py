"""Written by scripts/unasync.py from _async/diverter.py: read and change that file, not this one."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.exceptions import MessagingEntityNotFoundError, OperationTimeoutError

from twinbus.clock import Clock
from twinbus.ledger.words import Event, Kind, Stage
from twinbus.limits import HOLD_PAUSE_S_MAX, HOLD_PAUSE_S_MIN, TRY_TIMEOUT_S_MIN
from twinbus.paired._sync.channel import Channel
from twinbus.paired._sync.pairing import BacklogSearch
from twinbus.paired.classify import cause_of, of_the_message
from twinbus.paired.envelope import fill
from twinbus.paired.events import Events
from twinbus.paired.options import PairingOptions
from twinbus.paired.rotation import Rotation
from twinbus.paired.synchronization import Pool, Signal


class Diverter:
    """One sender's path into the backlog."""

    def __init__(
        self,
        path: str,
        *,
        pairing: BacklogSearch,
        channel: Callable[[str], Channel],
        options: PairingOptions,
        clock: Clock,
        events: Events,
        closing: Signal,
    ) -> None:
        self.path = path
        self._pairing = pairing
        self._make = channel
        self._try_timeout_s = options.try_timeout
        self._hold = options.hold_sends
        self._max_in_flight = options.max_in_flight
        self._clock = clock
        self._events = events
        self._closing = closing
        self._queue: str | None = None
        self._channels: dict[str, Pool[Channel]] = {}

    def send(
        self,
        payloads: list[bytes],
        deadline_ms: int,
        needed: Callable[[], bool],
        *,
        key: str | None = None,
        queue: str | None = None,
    ) -> str | None:
        """Send messages to a backlog queue and return its name: `queue`, or the one for `key`, or this sender's own.

        `needed` is called before every try; it raises if the sender is closed. Returns None if it is no longer needed.
        """
        tried: list[str] = []
        pause_s = HOLD_PAUSE_S_MIN
        error: Exception | None = None
        while True:
            if not needed():
                return None
            left_s = self._left_s(deadline_ms)
            if left_s <= 0 and error is not None:
                raise error
            rotation = self._pairing.usable(left_s, hold=self._hold)
            if rotation is None:
                self._pairing.changed.wait(min(HOLD_PAUSE_S_MIN, left_s))
                continue
            if left_s <= 0:
                raise OperationTimeoutError(message="No time was left to send to the backlog.")
            try_s = min(left_s, self._try_timeout_s, max(left_s / 2, TRY_TIMEOUT_S_MIN))
            try_ends_ms = self._clock.now_ms() + round(try_s * 1000)
            name = self._choose(rotation, key, queue, tried)
            channels = self._pool(name)
            try:
                channel = channels.take(try_s)
            except TimeoutError:
                continue
            try:
                self._send(channel, name, payloads, self._left_s(try_ends_ms))
            except Exception as failure:
                needed()
                if of_the_message(failure):
                    raise
                if error is None or not isinstance(failure, OperationTimeoutError):
                    error = failure
                if isinstance(failure, MessagingEntityNotFoundError):
                    self._pairing.missing()
                tried.append(name)
                if rotation.fail(name):
                    self._events.emit(Event.QUEUE_OUT, entity=self.path, queue=name, cause=cause_of(failure))
                if rotation.all_out():
                    self._closing.wait(min(pause_s, self._left_s(deadline_ms)))
                    pause_s = min(pause_s * 2, HOLD_PAUSE_S_MAX)
                continue
            except BaseException:
                channel.discard()
                raise
            finally:
                channels.give(channel, good=channel.opened)
            if rotation.succeed(name):
                self._events.emit(Event.QUEUE_IN, entity=self.path, queue=name)
            return name

    def create_batch(
        self, max_size_in_bytes: int | None, deadline_ms: int, needed: Callable[[], bool]
    ) -> ServiceBusMessageBatch | None:
        """An empty batch of the size that a backlog queue accepts; None if it is no longer needed."""
        while True:
            if not needed():
                return None
            left_s = self._left_s(deadline_ms)
            rotation = self._pairing.usable(left_s, hold=self._hold)
            if rotation is None:
                self._pairing.changed.wait(min(HOLD_PAUSE_S_MIN, left_s))
                continue
            if left_s <= 0:
                raise OperationTimeoutError(message="No backlog queue answered in time.")
            name = self._choose(rotation, None, None, [])
            channels = self._pool(name)
            try:
                channel = channels.take(min(left_s, self._try_timeout_s))
            except TimeoutError:
                continue
            try:
                if not channel.opened:
                    channel.open(min(self._left_s(deadline_ms), self._try_timeout_s))
                return channel.sdk.create_message_batch(max_size_in_bytes)
            except Exception as error:
                needed()
                failure = channel.seen(error)
                if of_the_message(failure):
                    raise
                if isinstance(failure, MessagingEntityNotFoundError):
                    self._pairing.missing()
                if channel.opened:
                    channel.discard()
                if rotation.fail(name):
                    self._events.emit(Event.QUEUE_OUT, entity=self.path, queue=name, cause=cause_of(failure))
            finally:
                channels.give(channel, good=channel.opened)
            self._closing.wait(min(HOLD_PAUSE_S_MIN, self._left_s(deadline_ms)))

    def rest(self) -> None:
        """The primary is back: close unused connections, each of which also costs the sync client a thread."""
        for channels in list(self._channels.values()):
            idle = [channel for _ in range(len(channels.free)) if (channel := channels.take_free()) is not None]
            for channel in idle:
                if channel.opened:
                    channel.rest()
                channels.give(channel, good=False)

    def closings(self) -> list[Callable[[], None]]:
        """Functions that close its connections."""
        return [channel.close for channels in list(self._channels.values()) for channel in channels.all]

    def _choose(self, rotation: Rotation, key: str | None, queue: str | None, tried: Iterable[str]) -> str:
        tried = set(tried)
        if queue is not None and queue not in tried:
            return queue
        if key is not None:
            return rotation.pick(key, tried)
        if self._queue is None or self._queue in tried or not rotation.usable(self._queue):
            self._queue = rotation.pick(avoid=tried)
        return self._queue

    def _pool(self, name: str) -> Pool[Channel]:
        return self._channels.setdefault(name, Pool(lambda: self._make(name), self._max_in_flight))

    def _send(self, channel: Channel, name: str, payloads: list[bytes], seconds: float) -> None:
        was_open = channel.opened
        ends_ms = self._clock.now_ms() + round(seconds * 1000)
        try:
            self._try(channel, name, payloads, seconds)
        except Exception as failure:
            left_s = self._left_s(ends_ms)
            if of_the_message(failure) or not was_open or left_s <= HOLD_PAUSE_S_MIN:
                raise
            self._try(channel, name, payloads, left_s)

    def _try(self, channel: Channel, name: str, payloads: list[bytes], seconds: float) -> None:
        ends_ms = self._clock.now_ms() + round(seconds * 1000)
        if not channel.opened:
            channel.open(seconds)
        sdk = channel.sdk
        size_bytes = 0
        try:
            batch = sdk.create_message_batch()
            size_bytes = fill(batch, payloads, self.path)
            sdk.send_messages(batch, timeout=max(self._left_s(ends_ms), 0.01))
        except Exception as error:
            failure = channel.seen(error)
            if of_the_message(failure):
                raise
            self._count(name, len(payloads), size_bytes, cause_of(failure))
            channel.discard()
            raise failure from error
        self._count(name, len(payloads), size_bytes, None)

    def _left_s(self, ends_ms: int) -> float:
        return max(ends_ms - self._clock.now_ms(), 0) / 1000

    def _count(self, name: str, count: int, size_bytes: int, cause: str | None) -> None:
        journal = self._events.journal
        if journal is not None:
            outcome = {} if cause is None else {"outcome": cause}
            journal.operation(
                self._events.secondary, name, Kind.SEND, Stage.TO_BACKLOG, count=count, size_bytes=size_bytes, **outcome
            )
