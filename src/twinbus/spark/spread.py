"""Simulates on Spark how senders spread over backlog queues.

It answers what closed forms cannot: the fullest queue when senders are not alike.

- Trials come in chunks. Each chunk has its own random stream, made from the seed and its number, so the same seed gives
  the same answer on any master with any number of partitions.
- A trial yields two numbers; the driver gets one row of percentiles, however many trials there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from twinbus.plan.load import Load

# Trials per chunk, and picks in memory at a time.
_CHUNK: Final = 1_000
_PICKS_MAX: Final = 2_000_000
_DIGITS: Final = 5
_SCHEMA: Final = "share double, empty bigint"
_LEVELS: Final = (0.05, 0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class Drawn:
    """The result. Shares are those of the fullest queue; `error` is the standard error of their mean."""

    trials: int
    seed: int
    share: float
    error: float
    share_05: float
    share_50: float
    share_95: float
    share_99: float
    share_max: float
    empty: float


def draw(spark: SparkSession, load: Load, *, trials: int, seed: int, queues: int | None = None) -> Drawn:
    """Let every sender pick a queue, `trials` times."""
    from pyspark.sql import functions as F

    chunks = -(-trials // _CHUNK)
    task = _Trials(trials, seed, queues or load.queues, load.weights())
    slots = min(chunks, spark.sparkContext.defaultParallelism)
    drawn = spark.range(0, chunks, 1, slots).mapInArrow(task, _SCHEMA)
    found = drawn.agg(
        F.count("*").alias("trials"),
        F.avg("share").alias("share"),
        F.stddev_pop("share").alias("deviation"),
        F.percentile("share", F.array(*map(F.lit, _LEVELS))).alias("levels"),
        F.max("share").alias("most"),
        F.avg("empty").alias("empty"),
    ).first()
    if found is None:  # an aggregate without groups always has its row
        raise AssertionError
    low, middle, high, highest = found["levels"]
    return Drawn(
        trials=found["trials"],
        seed=seed,
        share=found["share"],
        error=found["deviation"] / found["trials"] ** 0.5,
        share_05=low,
        share_50=middle,
        share_95=high,
        share_99=highest,
        share_max=found["most"],
        empty=found["empty"],
    )


class _Trials:
    """The task: chunk numbers in, trials out."""

    def __init__(self, trials: int, seed: int, queues: int, weights: list[float]) -> None:
        # Of all chunks; the last chunk has the remainder.
        self._trials = trials
        self._seed = seed
        self._queues = queues
        # Each sender's share of the messages.
        self._weights = weights

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for chunk in batch.column(0).to_pylist():
                count = min(_CHUNK, self._trials - chunk * _CHUNK)
                for shares, empty in self.chunk(chunk, count):
                    yield pa.RecordBatch.from_arrays([pa.array(shares), pa.array(empty)], names=["share", "empty"])

    def chunk(self, number: int, count: int) -> Iterator[tuple[Any, Any]]:
        """For each trial of a chunk the fullest queue's share and the number of empty queues, some trials at a time."""
        import numpy as np

        chance = np.random.default_rng([self._seed, number])
        writers = len(self._weights)
        at_once = max(_PICKS_MAX // max(writers, self._queues), 1)
        for start in range(0, count, at_once):
            rows = min(at_once, count - start)
            picks = chance.integers(self._queues, size=(rows, writers))
            places = (picks + np.arange(rows)[:, None] * self._queues).ravel()
            weighted = np.bincount(places, np.tile(self._weights, rows), rows * self._queues)
            shares = weighted.reshape(rows, self._queues)
            # Rounded, so that percentiles see a bounded number of values.
            yield shares.max(axis=1).round(_DIGITS), (shares == 0).sum(axis=1)
