"""Written by scripts/unasync.py from _async/sender.py: read and change that file, not this one."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from azure.servicebus import ServiceBusMessageBatch, ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusServerBusyError

from twinbus.client.envelope import RESERVED
from twinbus.ledger.words import OK, Event, Kind, Stage
from twinbus.limits import HOLD_PAUSE_S_MAX, HOLD_PAUSE_S_MIN
from twinbus.paired._sync.channel import Channel
from twinbus.paired._sync.diverter import Diverter
from twinbus.paired._sync.links import Links, release
from twinbus.paired.classify import availability_failure, cause_of
from twinbus.paired.entity import PairedEntity
from twinbus.paired.errors import MessageInBacklogError, PairFaultedError
from twinbus.paired.messages import OutgoingMessages, PairedMessageBatch, is_empty, prepared
from twinbus.paired.retries import size_of, spread
from twinbus.paired.sdk_internals import is_ready, link_limits, send_one
from twinbus.paired.state import EntityState
from twinbus.paired.synchronization import NoLinkYet, Signal
from twinbus.paired.work import BUSY, BatchMaking, Cancelling, Scheduling, Sending, Work

if TYPE_CHECKING:
    from twinbus.paired._sync.pair import Pair

_NO_TIME = "No time was left to send."
_SHUT = "The handler has already been shutdown. Please use PairedServiceBusClient to create a new instance."


class PairedServiceBusSender(ServiceBusSender):
    """A sender to one queue or topic of a pair, created by `get_queue_sender` and `get_topic_sender`.

    A subclass so that it fits where the SDK's is asked for. All methods are its own: it has no link, its channels do.
    """

    def __init__(
        self,
        pair: Pair,
        entity: PairedEntity[Signal],
        links: Links,
        diverter: Diverter,
        template: ServiceBusSender,
    ) -> None:
        self._pair = pair
        self._client: object = None
        self._on_close: Callable[[PairedServiceBusSender], None] = lambda sender: None
        self._entity = entity
        self._links = links
        self._channels = channels = links.pool
        self._free, self._waiting = channels.free, channels.waiting
        self.entity_name = template.entity_name
        self.fully_qualified_namespace = template.fully_qualified_namespace
        self._client_identifier: str = template.client_identifier
        self._diverter = diverter
        self._now_ms = pair.clock.now_ms
        self._steady_s = pair.clock.steady_s
        self._attempt_s = pair.retries.attempt_s(None)
        self._journal = pair.events.journal
        self._closed = False

    @property
    def client_identifier(self) -> str:
        """The identifier of the SDK's sender to the primary."""
        return self._client_identifier

    def __str__(self) -> str:
        return f"Paired sender client id: {self.client_identifier}, entity: {self.entity_name}"

    def __repr__(self) -> str:
        return f"PairedServiceBusSender(entity_name={self.entity_name!r}, state={self._entity.state.value!r})"

    def __enter__(self) -> PairedServiceBusSender:
        self._check_open()
        self._pair.start()
        if self._entity.direct:
            try:
                self._try(None, self._now_ms() + round(self._attempt_s * 1000), None)
            except Exception as error:
                if not self._pair.classify(error):
                    raise
                self._entity.failed(error)
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the links to the primary and to the backlog, which are closed when no sender uses them any more.

        Sends under way end first: those that wait raise ValueError, and those that may have reached a service get its
        answer, or the error that there is none.
        """
        if self._closed:
            return
        self._closed = True
        self._free = deque()
        self._on_close(self)
        if not self._pair.forked:
            self._entity.changed.pulse()
            release(self, self._channels)
            self._pair.leave(self._links)
            self._diverter.close()

    def send_messages(
        self, message: OutgoingMessages | ServiceBusMessageBatch, *, timeout: float | None = None, **kwargs: Any
    ) -> None:
        """Send a message, a list or a batch, and wait until the primary or the backlog accepts it.

        `timeout` covers all of it; the default is 60 seconds or twice the failover interval, whichever is longer. A
        list or a batch goes as a whole.
        """
        single = is_ready(message, RESERVED)
        if not single or timeout is not None or kwargs:
            self._check_call(timeout, kwargs)
        if not single:
            message = prepared(message)
            if is_empty(message):
                return
        entity, free = self._entity, self._free
        started_s = self._steady_s()
        failure: Exception | None = None
        try:
            channel = free.pop() if entity.direct else None
        except IndexError:
            channel = None
        if channel is not None:
            channel.user = self
            try:
                if channel.opened and not self._closed:
                    attempt_s = self._attempt_s if timeout is None else self._pair.retries.attempt_s(timeout)
                    if single:
                        send_one(channel.sdk, message, attempt_s)  # type: ignore[arg-type]
                    else:
                        channel.sdk.send_messages(message, timeout=attempt_s)  # type: ignore[arg-type]
                    if not entity.direct:
                        entity.succeeded()
                    if self._journal is not None:
                        self._count(Kind.SEND, message, OK)
                    return
            except Exception as error:
                failure = self._broke(channel, error, Kind.SEND)
            except BaseException:
                channel.discard()
                raise
            finally:
                channel.user = None
                if channel.opened:
                    free.append(channel)
                    if self._waiting:
                        self._channels.hand_over()
                else:
                    self._channels.give(channel, good=False)
        work = Sending(message)
        work.doubt = _in_doubt(failure)
        started_ms = self._now_ms() - round((self._steady_s() - started_s) * 1000)
        self._deliver(work, started_ms, timeout, failure)
        if self._journal is not None and work.went_direct:
            self._count(Kind.SEND, message, OK)

    def schedule_messages(
        self, messages: OutgoingMessages, schedule_time_utc: datetime, *, timeout: float | None = None, **kwargs: Any
    ) -> list[int]:
        """Schedule messages; returns their sequence numbers.

        Messages that went to the backlog have no sequence numbers yet: theirs are negative and cannot be cancelled.
        """
        self._check_call(timeout, kwargs)
        messages = prepared(messages)
        if isinstance(messages, list) and not messages:
            return []
        work = Scheduling(messages, schedule_time_utc)
        numbers = self._deliver(work, self._now_ms(), timeout, None)
        if self._journal is not None and work.went_direct:
            self._count(Kind.SCHEDULE, messages, OK)
        return cast(list[int], numbers)

    def cancel_scheduled_messages(
        self, sequence_numbers: int | list[int], *, timeout: float | None = None, **kwargs: Any
    ) -> None:
        """Cancel messages scheduled in the primary; those in the backlog cannot be cancelled."""
        self._check_call(timeout, kwargs)
        numbers = [sequence_numbers] if isinstance(sequence_numbers, int) else list(sequence_numbers)
        hidden = [number for number in numbers if isinstance(number, int) and number < 0]
        if hidden:
            raise MessageInBacklogError(
                f"The scheduled message {', '.join(map(str, hidden))} was sent while '{self.entity_name}' was failed "
                "over. It sits in the backlog, or has come to the primary under another number: it cannot be cancelled "
                "by this one. Nothing was cancelled."
            )
        if not numbers:
            return
        self._pair.start()
        self._retried(Cancelling(numbers), timeout)
        if self._journal is not None:
            self._journal.operation(self._pair.events.primary, self._entity.path, Kind.CANCEL, Stage.DIRECT)

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        """Create an empty batch of the size that the primary accepts, or the backlog while the primary is down."""
        batch = self._deliver(BatchMaking(max_size_in_bytes), self._now_ms(), None, None)
        return PairedMessageBatch(batch)

    def _deliver(self, work: Work, started_ms: int, timeout: float | None, failure: Exception | None) -> Any:
        """Get `work` done, one way or the other; `failure` is the error of its first try."""
        self._check_open(work.doubt)
        self._pair.start()
        entity, retries = self._entity, self._pair.retries
        deadline_ms = started_ms + round(retries.total_s(timeout) * 1000)
        attempt_ends_ms = started_ms + round(retries.attempt_s(timeout) * 1000)
        ends_s = self._steady_s() + (deadline_ms - self._now_ms()) / 1000
        last: Exception | None = None
        tries = 0
        hold_s = HOLD_PAUSE_S_MIN
        while True:
            if failure is not None:
                tries += 1
                pause_s = retries.pause_s(failure, tries) if entity.state is EntityState.HEALTHY else None
                if pause_s is None or self._now_ms() + pause_s * 1000 > attempt_ends_ms:
                    self._give_up_or_hold(failure)
                    pause_s, hold_s = hold_s, min(hold_s * 2, HOLD_PAUSE_S_MAX)
                if not entity.failed_over and not self._waited(pause_s, deadline_ms):
                    raise failure
            if timeout is not None:
                deadline_ms = min(deadline_ms, self._now_ms() + round((ends_s - self._steady_s()) * 1000))
            self._check_open(work.doubt)
            held = self._held_session(work, deadline_ms) if entity.trail and not entity.failed_over else None
            if entity.failed_over or held is not None:
                result = self._divert(work, deadline_ms, held)
                if result is not BUSY:
                    return result
                last, failure = failure or last, None
            left_s = (deadline_ms - self._now_ms()) / 1000
            if left_s <= 0:
                raise failure or last or OperationTimeoutError(message=_NO_TIME)
            if entity.state is EntityState.SUSPECT and (entity.left_s or 0) < HOLD_PAUSE_S_MIN:
                entity.changed.wait(entity.left_s or 0)
                continue
            try:
                result = self._try(work, deadline_ms, timeout)
            except Exception as error:
                self._check_open(work.doubt)
                failure = error
                continue
            if result is BUSY:
                last, failure = failure or last, None
                continue
            entity.succeeded()
            work.went_direct = True
            return result

    def _retried(self, work: Work, timeout: float | None) -> None:
        """Do what only the primary can do, with the SDK's retries."""
        retries = self._pair.retries
        deadline_ms = self._now_ms() + round(retries.total_s(timeout) * 1000)
        failure: Exception = OperationTimeoutError(message=_NO_TIME)
        tries = 0
        while deadline_ms > self._now_ms():
            self._check_open(work.doubt)
            try:
                if self._try(work, deadline_ms, timeout) is not BUSY:
                    return
            except Exception as error:
                self._check_open(work.doubt)
                failure = error
                tries += 1
                pause_s = retries.pause_s(error, tries)
                if pause_s is None or not self._waited(pause_s, deadline_ms):
                    raise
        raise failure

    def _give_up_or_hold(self, failure: Exception) -> None:
        """An attempt is over: its error counts against the entity, or is the caller's own and raised."""
        if not self._pair.classify(failure):
            raise failure
        self._entity.failed(failure)
        if not self._pair.options.hold_sends and not self._entity.failed_over:
            raise failure

    def _waited(self, pause_s: float, deadline_ms: int) -> bool:
        """Wait for a change, at most `pause_s`; False if the caller's time is up."""
        left_s = (deadline_ms - self._now_ms()) / 1000
        if left_s <= 0:
            return False
        interval_left_s = self._entity.left_s
        if interval_left_s is not None:
            pause_s = min(pause_s, interval_left_s)
        self._entity.changed.wait(spread(min(pause_s, left_s), self._pair.rng))
        return True

    def _step_s(self, deadline_ms: int, timeout: float | None) -> float:
        """How long one step of an attempt may take that begins now."""
        left_s = (deadline_ms - self._now_ms()) / 1000
        return max(min(left_s, self._pair.retries.attempt_s(timeout), self._entity.left_s or left_s), 0.01)

    def _try(self, work: Work | None, deadline_ms: int, timeout: float | None) -> Any:
        """Try it on the primary, or just wait for a link; BUSY if there was no time for a try.

        Waiting for a link, and for it to be opened, does not count against sending.
        """
        kind = Kind.MANAGE if work is None else work.kind
        try:
            channel = self._links.take(self._step_s(deadline_ms, timeout))
        except NoLinkYet:
            return BUSY
        except Exception as error:
            self._count(kind, None, cause_of(error))
            raise
        channel.user = self
        try:
            if self._closed:
                return BUSY
            self._entity.limits = link_limits(channel.sdk)
            if work is None:
                return None
            return work.direct(channel.sdk, self._step_s(deadline_ms, timeout))
        except Exception as error:
            failure = self._broke(channel, error, kind)
            if work is not None:
                work.doubt = _in_doubt(failure) or work.doubt
            if failure is error:
                raise
            raise failure from error
        except BaseException:
            channel.discard()
            raise
        finally:
            channel.user = None
            self._channels.give(channel, good=channel.opened)

    def _broke(self, channel: Channel, error: Exception, kind: Kind) -> Exception:
        """Handle a failure on a channel; returns the exact error."""
        error = channel.seen(error)
        self._count(kind, None, cause_of(error))
        if not availability_failure(error):
            channel.check()
        elif channel.opened:
            channel.discard()
        return error

    def _divert(self, work: Work, deadline_ms: int, held: str | None) -> Any:
        """Do `work` through the backlog; BUSY if that is no longer needed."""
        pair, entity = self._pair, self._entity

        def needed() -> bool:
            self._check_open(work.doubt)
            return held is not None or entity.failed_over

        if isinstance(work, BatchMaking):
            batch = self._diverter.create_batch(work.max_size_in_bytes, deadline_ms, needed)
            return BUSY if batch is None else batch
        payloads = work.payloads()
        if entity.limits is not None:
            entity.limits.check(payloads, entity.path, together=work.kind is Kind.SEND and len(payloads) > 1)
        sessions = work.sessions() if pair.options.session_order else set()
        key, queue = None, held
        if sessions:
            key = entity.path
            queue = held or entity.trail.queue_of(sessions)
        used = self._diverter.send(payloads, deadline_ms, needed, key=key, queue=queue)
        if used is None:
            return BUSY
        if held is None and not entity.failed_over:
            self._diverter.rest()
        if sessions:
            entity.trail.note(sessions, used)
            entity.refresh()
        pair.events.emit(Event.DIVERTED, entity=entity.path, queue=used, count=len(payloads))
        return pair.hidden_numbers(len(payloads)) if work.kind is Kind.SCHEDULE else None

    def _held_session(self, work: Work, deadline_ms: int) -> str | None:
        """The backlog queue in which the work's session still has messages, if any."""
        trail = self._entity.trail
        queue = trail.queue_of(work.sessions())
        if queue is None:
            return None
        left_s = (deadline_ms - self._now_ms()) / 1000
        if not self._pair.look(self._entity, queue, left_s):
            return queue
        return trail.queue_of(work.sessions())

    def _check_call(self, timeout: float | None, kwargs: dict[str, Any]) -> None:
        """As every method of the SDK's sender begins."""
        if kwargs:
            warnings.warn(f"Unsupported keyword args: {kwargs}", stacklevel=3)
        self._check_open()
        self._pair.retries.total_s(timeout)

    def _check_open(self, doubt: Exception | None = None) -> None:
        """Raise if nothing can be sent; if an earlier try may have succeeded, its error, which says so."""
        if self._entity.fault is not None:
            raise PairFaultedError(self._entity.fault) from doubt
        if self._closed or self._entity.closed:
            raise doubt or ValueError(_SHUT)

    def _count(self, kind: Kind, message: Any, outcome: str) -> None:
        if self._journal is not None and kind is not Kind.MANAGE:
            count, size_bytes = (1, 0) if message is None else size_of(message)
            self._journal.operation(
                self._pair.events.primary,
                self._entity.path,
                kind,
                Stage.DIRECT,
                outcome=outcome,
                count=count,
                size_bytes=size_bytes,
            )


def _in_doubt(failure: Exception | None) -> Exception | None:
    """The failure of a try, if the service may have done it nevertheless."""
    surely_not = failure is None or not availability_failure(failure) or isinstance(failure, ServiceBusServerBusyError)
    return None if surely_not else failure
