"""Written by scripts/unasync.py from _async/diverter.py: read and change that file, not this one."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.exceptions import MessagingEntityNotFoundError, OperationTimeoutError, ServiceBusServerBusyError

from twinbus.clock import Clock
from twinbus.ledger.words import Event, Kind, Stage
from twinbus.limits import HOLD_PAUSE_S_MAX, HOLD_PAUSE_S_MIN, TRY_TIMEOUT_S_MIN
from twinbus.paired._sync.channel import Channel
from twinbus.paired._sync.links import Links, release
from twinbus.paired._sync.pairing import BacklogSearch
from twinbus.paired.classify import cause_of, of_the_message
from twinbus.paired.envelope import fill
from twinbus.paired.events import Events
from twinbus.paired.options import PairingOptions
from twinbus.paired.rotation import Rotation
from twinbus.paired.synchronization import NoLinkYet, Pool, Signal


class Diverter:
    """One sender's path into the backlog."""

    def __init__(
        self,
        path: str,
        *,
        pairing: BacklogSearch,
        links: Callable[[str], Links],
        leave: Callable[[Links], None],
        options: PairingOptions,
        clock: Clock,
        events: Events,
        closing: Signal,
    ) -> None:
        self.path = path
        self._pairing = pairing
        self._shared = links
        self._leave = leave
        self._try_timeout_s = options.try_timeout
        self._hold = options.hold_sends
        self._clock = clock
        self._events = events
        self._closing = closing
        self._queue: str | None = None
        self._links: dict[str, Links] = {}

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
        fresh_ends_ms: int | None = None
        pause_s = HOLD_PAUSE_S_MIN
        error: Exception | None = None
        doubt: Exception | None = None
        while True:
            if not _still(needed, doubt):
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
            was_fresh = fresh_ends_ms is not None
            if fresh_ends_ms is not None:
                try_s = min(try_s, self._left_s(fresh_ends_ms))
            try_ends_ms, fresh_ends_ms = self._clock.now_ms() + round(try_s * 1000), None
            name = self._choose(rotation, key, queue, tried)
            links = self._links_to(name)
            was_used = False
            try:
                channel = links.take(try_s)
            except NoLinkYet:
                continue
            except Exception as failure:
                trouble = failure
            else:
                was_used = channel.used
                channel.user = self
                try:
                    _still(needed, doubt)
                    self._send(channel, name, payloads, min(self._left_s(deadline_ms), try_s))
                except Exception as failure:
                    trouble = failure
                    if not of_the_message(failure) and not isinstance(failure, ServiceBusServerBusyError):
                        doubt = failure
                except BaseException:
                    channel.discard()
                    raise
                else:
                    if rotation.succeed(name):
                        self._events.emit(Event.QUEUE_IN, entity=self.path, queue=name)
                    return name
                finally:
                    channel.user = None
                    links.pool.give(channel, good=channel.opened)
            _still(needed, doubt)
            if of_the_message(trouble):
                raise trouble
            if was_used and not was_fresh and self._left_s(try_ends_ms) > HOLD_PAUSE_S_MIN:
                fresh_ends_ms = try_ends_ms
                _rest(links.pool)
                continue
            if error is None or not isinstance(trouble, OperationTimeoutError):
                error = trouble
            tried.append(name)
            self._out(rotation, name, trouble)
            if rotation.all_out():
                self._closing.wait(min(rotation.pause_s(pause_s), self._left_s(deadline_ms)))
                pause_s = min(pause_s * 2, HOLD_PAUSE_S_MAX)

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
            links = self._links_to(name)
            try:
                channel = links.take(min(left_s, self._try_timeout_s))
            except NoLinkYet:
                continue
            except Exception as error:
                needed()
                self._out(rotation, name, error)
            else:
                try:
                    return channel.sdk.create_message_batch(max_size_in_bytes)
                except Exception as error:
                    needed()
                    failure = channel.seen(error)
                    if of_the_message(failure):
                        raise
                    if channel.opened:
                        channel.discard()
                    self._out(rotation, name, failure)
                finally:
                    links.pool.give(channel, good=channel.opened)
            self._closing.wait(min(HOLD_PAUSE_S_MIN, self._left_s(deadline_ms)))

    def _out(self, rotation: Rotation, name: str, failure: Exception) -> None:
        """A queue has failed."""
        if isinstance(failure, MessagingEntityNotFoundError):
            self._pairing.missing()
        if rotation.fail(name):
            self._events.emit(Event.QUEUE_OUT, entity=self.path, queue=name, cause=cause_of(failure))

    def rest(self) -> None:
        """The primary is back: close unused connections, each of which also costs the sync client a thread."""
        for links in list(self._links.values()):
            _rest(links.pool)

    def close(self) -> None:
        """Leave the links, when the sends under way have ended."""
        links, self._links = self._links, {}
        release(self, *(each.pool for each in links.values()))
        for each in links.values():
            self._leave(each)

    def _choose(self, rotation: Rotation, key: str | None, queue: str | None, tried: Iterable[str]) -> str:
        tried = set(tried)
        if queue is not None and queue not in tried:
            return queue
        if key is not None:
            return rotation.pick(key, tried)
        if self._queue is None or self._queue in tried or not rotation.usable(self._queue):
            self._queue = rotation.pick(avoid=tried)
        return self._queue

    def _links_to(self, name: str) -> Links:
        links = self._links.get(name)
        if links is None:
            links = self._links[name] = self._shared(name)
        return links

    def _send(self, channel: Channel, name: str, payloads: list[bytes], seconds: float) -> None:
        ends_ms = self._clock.now_ms() + round(seconds * 1000)
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
        channel.used = True
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


def _rest(pool: Pool[Channel]) -> None:
    """Close unused links."""
    idle = [channel for _ in range(len(pool.free)) if (channel := pool.take_free()) is not None]
    for channel in idle:
        channel.rest()
        pool.give(channel, good=False)


def _still(needed: Callable[[], bool], doubt: Exception | None) -> bool:
    """Whether it is needed; if the sender was closed after a try that may have succeeded, raises the error of that."""
    try:
        return needed()
    except ValueError:
        if doubt is None:
            raise
        raise doubt from None
