"""The claiming stream: for an entity with other consumers, and for dead-letter queues.

- The driver receives messages and defers them, marked with the stream's `claimName`; the offset names them. Deferred
  messages outlive locks, driver and executors, and nobody else receives them.
- Executors peek at the claimed numbers. Messages of a committed batch are removed at the start of `latestOffset` and in
  `commit`.
- Messages claimed by a driver that died before its offset was written belong to no batch. They are found by their mark
  when the stream starts and join the next batch. Nothing is lost, and other streams' claims are left alone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import compress
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from twinbus.client import DEFERRED, Backoff, Fields, ReceivedMessage, read_fields, read_head
from twinbus.client.resubmission import CLAIM
from twinbus.errors import ConfigError, DecodeError, MessageNotFoundError, ServiceError
from twinbus.limits import BLOCKING_ATTEMPTS_MAX, PEEK_MESSAGES_MAX, SPARK_PARTITION_MESSAGES_MIN
from twinbus.spark.source.batches import Heads
from twinbus.spark.source.browsing import EntityBrowser
from twinbus.spark.source.options import Options
from twinbus.spark.source.spans import Span, count_of, from_text, numbers_of, shared_out, spans_of, to_text
from twinbus.spark.source.stream import Stream
from twinbus.spark.versions import UNTOLD, ReadLimit

_logger = logging.getLogger(__name__)

# Removed per request; their bodies come with the answer.
_TAKEN_AT_ONCE = 100
# A gap between claims up to this size is cheaper to peek through than to skip.
_GAP = 50


@dataclass(frozen=True)
class Claimed(InputPartition):
    """Numbers to peek at. If `whole`, a missing message is a loss."""

    spans: tuple[Span, ...]
    whole: bool

    def __init__(self, spans: tuple[Span, ...], whole: bool = True) -> None:
        object.__setattr__(self, "spans", spans)
        object.__setattr__(self, "whole", whole)


class ClaimStream(Stream):
    """Reads what it has claimed, removes what is committed."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        # The claims removed last; None if this run has removed none.
        self._taken: tuple[str, int | None] | None = None
        # Whether there may be claims without a batch: at the start, and after an answer was lost.
        self._searching = True
        # Size and enqueued time of the claims found without a batch, by number.
        self._found: dict[int, tuple[int, int]] = {}
        # The number of messages claimed for the current batch, the enqueued times of the oldest and the newest, and how
        # many claims were gone when they were to be removed.
        self._in_hand = 0
        self._oldest_ms: int | None = None
        self._newest_ms = 0
        self._expired = 0

    def initialOffset(self) -> dict[str, Any]:
        return {"claims": ""}

    def reportLatestOffset(self) -> dict[str, Any] | None:
        found = super().reportLatestOffset()
        return found and {**found, "claimed": self._in_hand, "expiredClaims": self._expired}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        committed = self._own_claims(start)
        self._take(committed, _newest_ms(start))
        if self._searching:
            # A peek still shows removed messages until the broker's commit is durable.
            taken, newest_ms = set(numbers_of(from_text(committed))), _newest_ms(start)
            self._found = {
                number: found
                for number, found in self._search().items()
                if number not in taken or (newest_ms is not None and found[1] > newest_ms)
            }
            self._searching = False
        messages, size = self._limits(limit)
        return self._offset(self._claim(messages, size)) or start

    def first_offset(self) -> dict[str, Any]:
        # The claims found include those of the previous batch, so make room for new ones.
        self._found = self._search()
        self._searching = False
        messages, size = self._limits(self.getDefaultReadLimit())
        held = sum(size for size, _ in self._found.values())
        claimed = self._claim(messages + len(self._found), None if size is None else size + held)
        return self._offset(claimed) or self.initialOffset()

    def without(self, start: dict[str, Any], end: dict[str, Any]) -> dict[str, Any]:
        before, newest_ms = set(numbers_of(from_text(self._own_claims(start)))), _newest_ms(start)
        claims = list(numbers_of(from_text(_claims(end))))
        both = [number for number in claims if number in before]
        if both and newest_ms is not None:
            # The queue may be another one with the same numbers.
            before -= {number for number, at_ms in self._claim_times(both).items() if at_ms > newest_ms}
        left = [number for number in claims if number not in before]
        return {**end, "claims": to_text(spans_of(left))}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        spans = from_text(self._own_claims(end))
        shares = shared_out(spans, self._options.partitions, SPARK_PARTITION_MESSAGES_MIN, self._options.partitions_min)
        # Some of the claims found at the start may have been removed since, as part of the previous batch.
        return [Claimed(tuple(share), UNTOLD not in end) for share in shares]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Claimed)
        options = self._options
        with options.access.bus() as bus:
            browser = EntityBrowser(bus, self._path, page=options.prefetch or 250, ahead=options.prefetch > 0)
            claimed = _Claims(browser, partition.spans)
            yield from self._maker().batches(claimed.pages(), claimed.found)
        if claimed.missing and partition.whole:
            self._say_missing(len(claimed.missing), count_of(partition.spans))

    def commit(self, end: dict[str, Any]) -> None:
        self._take(self._own_claims(end), _newest_ms(end))

    def _own_claims(self, offset: dict[str, Any]) -> str:
        """The claims of an offset; none if it is of another entity."""
        return "" if self._is_foreign(offset) else _claims(offset)

    def _offset(self, claimed: list[int]) -> dict[str, Any] | None:
        self._in_hand = len(claimed)
        if not claimed:
            self._saw(0, 0, None)
            return None
        self._last = self._browser.last(max(self._last, *claimed))
        behind = self._last - max(claimed)
        self._saw(len(claimed) + behind, behind, self._oldest_ms)
        # The time tells these messages from those with the same numbers in a queue that is created again.
        return self._named({"claims": to_text(spans_of(claimed)), "enqueuedTime": self._newest_ms})

    # --- claiming -----------------------------------------------------------------------------------------------------

    def _claim(self, messages: int, size: int | None) -> list[int]:
        """Numbers for the next batch: leftover claims first, then available messages, or those that arrive in time."""
        claimed: list[int] = []
        total = deadline_ms = 0
        self._oldest_ms, self._newest_ms = None, 0
        while self._found and len(claimed) < messages and (size is None or total < size):
            number = min(self._found)
            each, enqueued_ms = self._found.pop(number)
            total += each
            self._newest_ms = max(self._newest_ms, enqueued_ms)
            claimed.append(number)
        while len(claimed) < messages and (size is None or total < size):
            asked = min(messages - len(claimed), self._options.prefetch or PEEK_MESSAGES_MAX, PEEK_MESSAGES_MAX)
            if size is not None:
                # Estimate from the size of the previous ones; the first size is unknown.
                asked = max(1, min(asked, (size - total) * len(claimed) // total)) if total else 1
            wait_s = 0.0 if claimed or self._target is not None else self._options.wait_s
            if 0 < len(claimed) < self._options.messages_min:
                deadline_ms = deadline_ms or self._deadline_ms()
                wait_s = min(max(deadline_ms - self._clock.now_ms(), 0) / 1000, self._options.wait_s)
            received = self._opened.receive(self._path, asked, wait_s)
            wanted = self._wanted(received, None if size is None else size - total, bool(claimed))
            kept = self._defer(wanted) if wanted else []
            claimed += [number for number, _ in kept]
            total += sum(each for _, each in kept)
            held_back = len(claimed) < self._options.messages_min and wait_s > 0 and claimed
            if (not received and not held_back) or len(wanted) < len(received) or self._searching:
                break
        return claimed

    def _wanted(self, received: list[ReceivedMessage], room: int | None, more: bool) -> list[ReceivedMessage]:
        """Drop messages that arrived after an AvailableNow run began, or that exceed the size limit. The first message
        of a batch always fits (`more`: there are others already)."""
        wanted: list[ReceivedMessage] = []
        for message in received:
            if self._target is not None and read_head(message.payload).sequence_number > self._target:
                continue
            if room is not None:
                room -= len(message.payload)
                if room < 0 and (more or wanted):
                    break
            wanted.append(message)
        if len(wanted) < len(received):
            kept = set(map(id, wanted))
            self._opened.release(self._path, [message for message in received if id(message) not in kept])
        return wanted

    def _defer(self, messages: list[ReceivedMessage]) -> list[tuple[int, int]]:
        """Mark and defer messages; returns numbers and sizes of those that succeeded."""
        try:
            outcomes = self._opened.defer(self._path, messages, {CLAIM: self._options.claim_name})
        except ServiceError as failure:
            outcomes = [failure] * len(messages)
        kept = []
        for message, error in zip(messages, outcomes, strict=True):
            if error is None:
                head = read_head(message.payload)
                kept.append((head.sequence_number, len(message.payload)))
                self._oldest_ms = min(self._oldest_ms or head.enqueued_ms or 0, head.enqueued_ms or 0)
                self._newest_ms = max(self._newest_ms, head.enqueued_ms or 0)
            else:
                # Either it returns by itself, or it is deferred and the answer was lost.
                _logger.warning("A message of %r could not be claimed: %s", self._path, error)
                self._searching = True
        return kept

    def _search(self) -> dict[int, tuple[int, int]]:
        """Messages with our mark that belong to no batch; those of the committed batch are already removed."""
        found: dict[int, tuple[int, int]] = {}
        browser = self._browser
        head = browser.first(1)
        if head is None:
            return found
        self._last = browser.last(max(self._last, head.sequence_number))
        for page in browser.pages(head.sequence_number, self._last, _sized):
            for fields, size in page:
                if self._ours(fields):
                    found[fields.sequence_number] = (size, fields.enqueued_ms or 0)
        if found:
            _logger.warning(
                "%d messages of %r were claimed by an earlier run and are read now.", len(found), self._path
            )
        return found

    def _ours(self, fields: Fields) -> bool:
        return fields.state == DEFERRED and (fields.properties or {}).get(CLAIM) == self._options.claim_name

    # --- reading ------------------------------------------------------------------------------------------------------

    def _say_missing(self, missing: int, total: int) -> None:
        text = f"{missing} of {total} messages claimed from {self._path!r} are gone: received by others, or expired."
        if self._options.fail_on_data_loss:
            raise MessageNotFoundError(f"{text} To continue without them, set failOnDataLoss to false.")
        _logger.warning("%s failOnDataLoss is false: continuing without them.", text)

    # --- settling -----------------------------------------------------------------------------------------------------

    def _take(self, claims: str, newest_ms: int | None) -> None:
        """Remove committed messages; it is not an error if they are already gone."""
        if (claims, newest_ms) == self._taken:
            return
        numbers = list(numbers_of(from_text(claims)))
        for at in range(0, len(numbers), _TAKEN_AT_ONCE):
            some = numbers[at : at + _TAKEN_AT_ONCE]
            # Those of an earlier run may be gone, and the queue another one with the same numbers.
            self._take_some(self._still_there(some, newest_ms) if self._taken is None else some, newest_ms)
        self._taken = (claims, newest_ms)

    def _take_some(self, numbers: list[int], newest_ms: int | None) -> None:
        pauses = Backoff()
        while numbers:
            try:
                self._opened.take_deferred(self._path, numbers)
                return
            except ServiceError as error:
                if not isinstance(error, MessageNotFoundError):
                    if not error.retryable or pauses.failures + 1 >= BLOCKING_ATTEMPTS_MAX:
                        raise
                    self._opened.pause(pauses)
                left = self._still_there(numbers, newest_ms)
                self._expired += len(numbers) - len(left)
                numbers = left

    def _still_there(self, numbers: list[int], newest_ms: int | None) -> list[int]:
        """The numbers that still exist: an answer was lost, or an earlier run had started removing them."""
        found = self._claim_times(numbers)
        return [number for number, at_ms in found.items() if newest_ms is None or at_ms <= newest_ms]

    def _claim_times(self, numbers: list[int]) -> dict[int, int]:
        """The enqueued times of those of these messages that are claimed, by whatever name."""
        wanted = set(numbers)
        found: dict[int, int] = {}
        for page in self._browser.pages(numbers[0], numbers[-1], _with_properties):
            for each in page:
                if each.sequence_number in wanted and each.state == DEFERRED and CLAIM in (each.properties or {}):
                    found[each.sequence_number] = each.enqueued_ms or 0
        return found


class _Claims:
    """The claimed messages of a partition."""

    def __init__(self, browser: EntityBrowser, spans: tuple[Span, ...]) -> None:
        self._browser = browser
        self._spans = spans
        # The numbers that were asked for and not found so far.
        self.missing: set[int] = set()

    def pages(self) -> Iterator[list[bytes]]:
        for group in _grouped(self._spans):
            self.missing.update(numbers_of(group))
            yield from self._browser.pages(group[0][0], group[-1][1], bytes)

    def found(self, heads: Heads) -> list[bool]:
        """Which messages of a batch are claimed."""
        wanted, deferred = self.missing, [state == DEFERRED for state in heads.states]
        found = [is_one and number in wanted for number, is_one in zip(heads.numbers, deferred, strict=True)]
        wanted.difference_update(compress(heads.numbers, found))
        return found


def _with_properties(payload: bytes) -> Fields:
    try:
        return read_fields(payload, with_body=False)
    except DecodeError:
        # Its properties cannot be decoded, so our mark is not among them.
        return read_head(payload)


def _sized(payload: bytes) -> tuple[Fields, int]:
    return _with_properties(payload), len(payload)


def _claims(offset: dict[str, Any]) -> str:
    claims = offset.get("claims")
    if not isinstance(claims, str):
        raise ConfigError(
            "The checkpoint is not one of a stream with readMode claim: give this stream a checkpointLocation of its "
            "own."
        )
    return claims


def _newest_ms(offset: dict[str, Any]) -> int | None:
    """The enqueued time of the newest message; None in offsets of earlier versions."""
    found = offset.get("enqueuedTime")
    return found if isinstance(found, int) else None


def _grouped(spans: tuple[Span, ...]) -> Iterator[list[Span]]:
    """Spans that are close together."""
    group: list[Span] = []
    for span in spans:
        if group and span[0] - group[-1][1] > _GAP:
            yield group
            group = []
        group.append(span)
    if group:
        yield group
