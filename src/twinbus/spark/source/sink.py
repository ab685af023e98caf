"""`df.write` and `writeStream`: rows become messages, and an accepted message is on the service's disk.

- A row's message id is its column `messageId`, or else made of query, batch, partition and row. A batch that is written
  again has the same ids, and a destination with duplicate detection drops the repeats.
- A delivery that fails temporarily is sent again with the same ids. A message that is rejected permanently fails the
  task with its id and the reason, or goes where `onError` says (`refusals.py`).
- A task returns when everything has an outcome. Nothing can be undone: `abort` only logs counts, and `commit` appends
  rejected rows to their table if there is one.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from twinbus.client import Backoff, read_fields
from twinbus.client.blocking import BlockingBus, Outcomes, fresh_id
from twinbus.errors import ArgumentError, ConfigError, MessageTooLargeError, NotAllowedError, ServiceError
from twinbus.limits import (
    SPARK_ATTEMPTS_MAX,
    SPARK_PARCELS_WAITING_MAX,
    SPARK_REFUSED_BYTES_MAX,
    SPARK_REFUSED_ROWS_MAX,
)
from twinbus.spark.source import refusals as refused
from twinbus.spark.source.checks import check_duplicates
from twinbus.spark.source.columns import check_sink
from twinbus.spark.source.garbage import seldom_collected
from twinbus.spark.source.options import IdMode, OnError, Options
from twinbus.spark.source.parcels import Encoder, Outgoing, Parcel, parcels_of
from twinbus.spark.source.refusals import Refusal
from twinbus.spark.versions import DataSourceStreamArrowWriter

_logger = logging.getLogger(__name__)

# Errors of a single message, not of its destination.
_OF_THE_MESSAGE = (MessageTooLargeError, ArgumentError, NotAllowedError)


@dataclass(frozen=True)
class SinkCommit(WriterCommitMessage):
    """What one task has done."""

    messages: int
    deliveries: int
    skipped: int
    # Rejected rows for the table, and the name under which they are committed there.
    refusals: tuple[Refusal, ...] = ()
    write_id: str = ""


class _Writer:
    """The part that both kinds of writer share."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        # Positions of the columns to send.
        self._places = check_sink(schema)
        # One per write, the same for all attempts of a task.
        self._fresh_id = fresh_id()
        if options.id_mode is IdMode.COLUMN and "messageId" not in self._places:
            raise ConfigError("messageIdMode is 'column', and the rows have no column 'messageId': add one.")
        if options.use_entity_column and "entity" not in self._places and options.entity is None:
            raise ConfigError("No destination given: set queueName or topicName, or add a column 'entity'.")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._options.entity!r} of {self._options.access.namespace!r})"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        options = self._options
        encoder = Encoder(
            self._places,
            entity=options.entity,
            use_entity_column=options.use_entity_column,
            id_mode=options.id_mode,
            id_prefix=self._id_prefix(),
        )
        with options.access.bus() as bus, seldom_collected():
            task = _Task(bus, options)
            for batch in iterator:
                task.send(list(encoder.encode(batch)))
            return replace(task.finish(), write_id=f"twinbus.sink.{self._write_id()}")

    def _id_prefix(self) -> str:
        """What ids by position begin with: the job or else the query or write, and the batch if there is one."""
        batch = _property("streaming.sql.batchId")
        job = self._options.job_id or self._write_id()
        return f"{job}/{_partition()}" if batch is None else f"{job}/{batch}/{_partition()}"

    def _write_id(self) -> str:
        """Identifies a query across its batches, or a single write.

        A write inside `foreachBatch` is not identified by its query: there may be several of one batch.
        """
        return self._fresh_id

    def _keep_refused(self, messages: Sequence[WriterCommitMessage | None], number: int) -> None:
        done = [each for each in messages if isinstance(each, SinkCommit)]
        refusals = [refusal for each in done for refusal in each.refusals]
        if refusals:
            assert self._options.error_table is not None
            namespace = self._options.access.namespace
            refused.append(self._options.error_table, namespace, refusals, done[0].write_id, number)

    def _log(self, what: str, messages: Sequence[WriterCommitMessage | None]) -> None:
        done = [each for each in messages if isinstance(each, SinkCommit)]
        _logger.info(
            "%s: %d messages in %d deliveries to %r, %d skipped.",
            what,
            sum(each.messages for each in done),
            sum(each.deliveries for each in done),
            self._options.entity,
            sum(each.skipped for each in done),
        )


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Writes a DataFrame."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._keep_refused(messages, 0)
        self._log("Written", messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._log("Failed, and already accepted", messages)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writes the batches of a stream."""

    def _write_id(self) -> str:
        return _property("sql.streaming.queryId") or self._fresh_id

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._keep_refused(messages, batchId)
        self._log(f"Batch {batchId}", messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._log(f"Batch {batchId} failed, and already accepted", messages)


class _Task:
    """The sends of one task: a bounded number of deliveries is in flight while the next rows are encoded."""

    def __init__(self, bus: BlockingBus, options: Options) -> None:
        self._bus = bus
        self._options = options
        self._waiting: deque[tuple[str, list[Parcel], Future[Outcomes]]] = deque()
        self._largest: dict[str, int] = {}
        self._messages = 0
        self._deliveries = 0
        self._skipped = 0
        # For the driver, with their size in bytes.
        self._refusals: list[Refusal] = []
        self._refused_bytes = 0

    def send(self, rows: list[Outgoing | Refusal]) -> None:
        """Send rows; returns when they are in flight."""
        by_entity: dict[str, list[Outgoing]] = {}
        for row in rows:
            if isinstance(row, Refusal):
                self._refused(row, ArgumentError(row.reason))
            else:
                by_entity.setdefault(row.entity, []).append(row)
        for entity, some in by_entity.items():
            for parcels in _few(parcels_of(some, self._largest_bytes(entity), self._options.batch_size)):
                while len(self._waiting) >= SPARK_PARCELS_WAITING_MAX:
                    self._settle_first()
                self._waiting.append((entity, parcels, self._bus.start_send(entity, parcels)))

    def finish(self) -> SinkCommit:
        """Wait for all outcomes."""
        while self._waiting:
            self._settle_first()
        return SinkCommit(self._messages, self._deliveries, self._skipped, tuple(self._refusals))

    def _settle_first(self) -> None:
        entity, parcels, future = self._waiting.popleft()
        outcomes = future.result()
        pauses = Backoff()
        while True:
            again: list[Parcel] = []
            for parcel, error in zip(parcels, outcomes, strict=True):
                if error is None:
                    self._messages += len(parcel)
                    self._deliveries += 1
                elif error.retryable and pauses.failures + 1 < SPARK_ATTEMPTS_MAX:
                    again.append(parcel)
                elif len(parcel) > 1 and isinstance(error, _OF_THE_MESSAGE):
                    # One of them is rejected: send them separately, to find out which, and to get the others through.
                    again += [[payload] for payload in parcel]
                else:
                    self._refused(_refusal(entity, parcel[0], error), error)
            if not again:
                return
            if any(error is not None and error.retryable for error in outcomes):
                self._bus.pause(pauses)
            parcels, outcomes = again, self._bus.start_send(entity, again).result()

    def _refused(self, refusal: Refusal, error: ServiceError) -> None:
        if not isinstance(error, _OF_THE_MESSAGE):
            raise type(error)(*error.args)
        on_error = self._options.on_error
        if on_error is OnError.FAIL:
            raise type(error)(refusal.reason)
        self._skipped += 1
        if on_error is OnError.DEADLETTER:
            assert self._options.dead_letter_queue is not None
            refused.send(self._bus, self._options.dead_letter_queue, [refusal])
        elif on_error is OnError.TABLE:
            self._refusals.append(refusal)
            self._refused_bytes += len(refusal.body or b"")
            if len(self._refusals) > SPARK_REFUSED_ROWS_MAX or self._refused_bytes > SPARK_REFUSED_BYTES_MAX:
                raise ArgumentError(
                    f"More than {SPARK_REFUSED_ROWS_MAX} rows, or {SPARK_REFUSED_BYTES_MAX} bytes, of one task cannot "
                    f"be sent. The last: {refusal.reason}"
                )
        _logger.warning("A row is not sent (onError is %s): %s", on_error, refusal.reason)

    def _largest_bytes(self, entity: str) -> int:
        largest = self._largest.get(entity)
        if largest is None:
            # The first send of this task to the entity.
            check_duplicates(self._options, entity, loud=_partition() == 0)
            largest = self._largest[entity] = self._bus.largest_message_bytes(entity)
        return largest


def _refusal(entity: str, payload: bytes, error: ServiceError) -> Refusal:
    """A refusal for a message that the service rejected."""
    fields = read_fields(payload)
    key = None if fields.message_id is None else str(fields.message_id)
    return Refusal(entity, key, f"The message {key!r} was refused by {entity!r}: {error}", fields.body)


def _property(name: str) -> str | None:
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)


def _partition() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _few(parcels: Iterator[Parcel]) -> Iterator[list[Parcel]]:
    """Parcels in small groups: one call for several small ones, without waiting for many large ones."""
    held: list[Parcel] = []
    count = 0
    for parcel in parcels:
        held.append(parcel)
        count += len(parcel)
        if count >= 500 or len(held) >= 100:
            yield held
            held, count = [], 0
    if held:
        yield held
