"""Turns encoded messages into Arrow batches: messages that are alike as whole columns, the others row by row.

- The layout of the first message is tried on all; then that of the first message left over, and so on, a few times.
  What is left then, and groups too small to be worth it, are read message by message. After two such groups it is not
  tried again: the messages seem to have little in common.
- Rows keep the order of their messages.
- A batch is bounded by rows and by bytes. While it is built, its messages are in memory up to three times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.types import StructType

from twinbus.limits import SPARK_ALIKE_ROWS_MIN, SPARK_BATCH_BYTES, SPARK_BATCH_ROWS, SPARK_LAYOUTS_MAX
from twinbus.spark.source.alike import AlikeRows, heads
from twinbus.spark.source.garbage import seldom_collected
from twinbus.spark.source.layouts import REACH_BYTES, Alike, ByteRanges, Layout, Numbers, layout_of
from twinbus.spark.source.rows import RowMaker

_BEHIND: Final = bytes(REACH_BYTES)


class Heads(NamedTuple):
    """What the service wrote into the messages of a batch, by message."""

    numbers: Sequence[int]
    enqueued_ms: Sequence[int | None]
    states: Sequence[int]


# Which rows of a batch to keep.
Keep = Callable[[Heads], Sequence[bool]]


class _Group(NamedTuple):
    """Rows of a batch, and their places in it."""

    places: Numbers
    rows: pa.RecordBatch
    heads: Heads


class BatchMaker:
    """Builds Arrow batches of one schema from encoded messages of one entity."""

    def __init__(self, schema: StructType, *, entity: str, namespace: str) -> None:
        self._rows = RowMaker(schema, entity=entity, namespace=namespace)
        # The layout of most messages of the batch before; None if there is none.
        self._usual: Layout | None = None

    def batches(self, pages: Iterable[list[bytes]], keep: Keep | None = None) -> Iterator[pa.RecordBatch]:
        """Arrow batches with a number of rows and bytes that suits Spark, without the rows that are not to be kept."""
        with seldom_collected():
            for payloads in _portions(pages):
                batch, heads = self.batch(payloads)
                kept = [True] if keep is None else keep(heads)
                if not all(kept):
                    batch = batch.filter(pa.array(kept, pa.bool_()))
                if batch.num_rows:
                    yield batch

    def batch(self, payloads: Sequence[bytes]) -> tuple[pa.RecordBatch, Heads]:
        """One Arrow batch of all these messages."""
        groups, left = self._grouped(payloads)
        if len(left):
            fields = [self._rows.fields(payloads[place]) for place in left]
            head = ([row.sequence_number for row in fields], [row.enqueued_ms for row in fields])
            groups.append(_Group(left, self._rows.batch(fields), Heads(*head, [row.state for row in fields])))
        return _joined(groups) if len(groups) > 1 else groups[0][1:]

    def _grouped(self, payloads: Sequence[bytes]) -> tuple[list[_Group], Numbers]:
        """Groups of messages that are alike, and the places of the others."""
        groups: list[_Group] = []
        left = np.arange(len(payloads))
        if len(payloads) < SPARK_ALIKE_ROWS_MIN:
            return groups, left
        data = b"".join((*payloads, _BEHIND))
        ends = np.cumsum(np.fromiter(map(len, payloads), np.int64, len(payloads)))
        starts = np.concatenate(([0], ends[:-1]))
        singly: list[int] = []
        small = 0
        layout = self._usual
        for _ in range(SPARK_LAYOUTS_MAX):
            if len(left) < SPARK_ALIKE_ROWS_MIN or small > 1:
                break
            layout = layout or layout_of(payloads[left[0]])
            if layout is None:
                singly.append(left[0])
                left = left[1:]
                continue
            alike, matching = layout.read(data, starts[left], ends[left])
            places = left
            if matching is not None:
                alike, places = _only(alike, matching), left[matching]
            rows = None
            if len(places) >= SPARK_ALIKE_ROWS_MIN:
                rows = AlikeRows(self._rows.schema, self._rows.constants, data, alike).batch()
            if rows is not None:
                groups.append(_Group(places, rows, Heads(*heads(alike))))
                self._usual = layout
            else:
                small += 1
                singly.extend(places)
            left = left[:0] if matching is None else left[~matching]
            layout = None
        return groups, np.sort(np.concatenate((left, np.array(singly, np.int64))))


def _portions(pages: Iterable[list[bytes]]) -> Iterator[list[bytes]]:
    """Messages for one batch each."""
    held: list[bytes] = []
    size = 0
    for page in pages:
        size += sum(map(len, page))
        if size <= SPARK_BATCH_BYTES:
            held += page
        else:
            size = sum(map(len, held))
            for payload in page:
                if held and size + len(payload) > SPARK_BATCH_BYTES:
                    yield held
                    held, size = [], 0
                held.append(payload)
                size += len(payload)
        if len(held) >= SPARK_BATCH_ROWS:
            yield held
            held, size = [], 0
    if held:
        yield held


def _only(alike: Alike, matching: npt.NDArray[np.bool_]) -> Alike:
    def some(ranges: ByteRanges) -> ByteRanges:
        return ByteRanges(ranges.starts[matching], ranges.stops[matching])

    return alike._replace(
        numbers={name: values[matching] for name, values in alike.numbers.items()},
        texts={name: some(ranges) for name, ranges in alike.texts.items()},
        body=some(alike.body),
    )


def _joined(groups: list[_Group]) -> tuple[pa.RecordBatch, Heads]:
    """The rows of all groups in the order of their places."""
    order = np.argsort(np.concatenate([group.places for group in groups]))
    table = pa.Table.from_batches([group.rows for group in groups]).combine_chunks()
    columns = zip(*(group.heads for group in groups), strict=True)
    joined = ([value for part in column for value in part] for column in columns)
    rows = table.to_batches()[0].take(pa.array(order))
    return rows, Heads(*([values[place] for place in order] for values in joined))
