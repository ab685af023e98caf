"""What a task does, and the small rows it returns.

- A task runs the local syphon for a short time: receive, restore, send, settle.
- Connection strings are inside the function that Spark ships, never in rows, because plans and the UI show rows.
- The rows summarise a round, for planning the next and for people. They are not a ledger: a task that dies returns
  nothing, although it has moved messages. The ledger is written where the messages are moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Final

from twinbus.limits import SYPHON_FAILING_TOLD_MAX
from twinbus.paired.syphon.bounds import Bounds
from twinbus.paired.syphon.drain import DrainResult, Pairing, StopAddress, drain
from twinbus.paired.syphon.pauses import Failing
from twinbus.paired.syphon.tally import QueueTally
from twinbus.spark.syphon.shares import Share

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

Work = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]

COUNTERS: Final = tuple(field.name for field in fields(QueueTally))


def answer_schema() -> StructType:
    """One row per backlog queue of a task. `failing` and `cleared` belong to the task and are only in its first row."""
    from pyspark.sql.types import (
        ArrayType,
        BooleanType,
        IntegerType,
        LongType,
        StringType,
        StructField,
        StructType,
    )

    pause = StructType(
        [StructField("path", StringType()), StructField("failures", IntegerType()), StructField("left_ms", LongType())]
    )
    return StructType(
        [
            StructField("queue", StringType()),
            *(StructField(name, LongType()) for name in COUNTERS),
            StructField("drained", BooleanType()),
            StructField("missing", BooleanType()),
            StructField("outage", StringType()),
            StructField("primary_outage", StringType()),
            StructField("failing", ArrayType(pause)),
            StructField("cleared", ArrayType(StringType())),
        ]
    )


def answer_rows(queues: Sequence[str], drained: DrainResult) -> list[dict[str, Any]]:
    """The result of a run as rows."""
    report = drained.report
    rows = []
    for number, queue in enumerate(queues):
        first = number == 0
        told = list(drained.failing.items())[:SYPHON_FAILING_TOLD_MAX] if first else []
        rows.append(
            {
                "queue": queue,
                **asdict(QueueTally()),
                **report.queues.get(queue, {}),
                "drained": queue in report.drained,
                "missing": queue in report.missing,
                "outage": drained.outages.get(queue, ""),
                "primary_outage": report.outage,
                "failing": [{"path": path, "failures": each[0], "left_ms": each[1]} for path, each in told],
                "cleared": list(drained.cleared) if first else [],
            }
        )
    return rows


def task_work(pairing: Pairing, shares: Sequence[Share], failing: Failing, bell: StopAddress | None) -> Work:
    """The function that Spark ships to the tasks; each gets the number of its share."""
    hands = list(shares)
    told = dict(failing)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from twinbus.spark.versions import arrow_schema

        schema = arrow_schema(answer_schema())
        for batch in batches:
            for number in batch.column(0).to_pylist():
                share = hands[number]
                bounds = Bounds(messages_max=share.messages_max, seconds_max=share.seconds_max, brief=True)
                drained = drain(pairing, share.queues, bounds, failing=told, stop_address=bell)
                yield pa.RecordBatch.from_pylist(answer_rows(share.queues, drained), schema=schema)

    return work
