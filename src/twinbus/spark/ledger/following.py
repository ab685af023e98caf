"""New ledger files as a stream: Structured Streaming finds them, and the pipeline processes them.

    LedgerStream(spark, [Path("data/ledger")], Path("tables/_stream"), job.take).follow(10.0, stopping, told)

- Spark's file source lists the files and their sizes without reading them; its checkpoint is beside the tables.
- The table `files` records what was processed. It changes in the same batch as the other tables, so nothing is added
  twice: not by a batch that Spark repeats after a crash, not after a deleted checkpoint, and not from files that a run
  without a stream has processed.
- There is no watermark: nothing is held in memory, and a late file is added to its own day.
- Stopping waits for the current batch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from twinbus.spark.store_path import AnyPath, path_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The query's name in Spark's UI and for a StreamingQueryListener.
QUERY: Final = "twinbus-ledger"
_FILES: Final = "path string, modificationTime timestamp, length bigint, content binary"
_OPTIONS: Final = {
    "pathGlobFilter": "*.jsonl",
    # Folder names are not partition columns.
    "recursiveFileLookup": "true",
    # A file may arrive weeks after it was written.
    "maxFileAge": "36500d",
}
_LOOK_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What a run did. Every line is a new record, a repeated one, or in quarantine."""

    files: int = 0
    lines: int = 0
    records: int = 0
    repeated: int = 0
    quarantined: int = 0
    seconds: float = 0.0

    def plus(self, other: RunSummary) -> RunSummary:
        return RunSummary(*(a + b for a, b in zip(_values(self), _values(other), strict=True)))


def _values(summary: RunSummary) -> list[Any]:
    return list(asdict(summary).values())


class LedgerStream:
    """The files of some folders; `take` processes those it does not know."""

    def __init__(
        self,
        spark: SparkSession,
        folders: Sequence[AnyPath],
        checkpoints: AnyPath,
        take: Callable[[Mapping[str, int]], RunSummary],
    ) -> None:
        self._spark = spark
        self._folders = sorted({each.absolute() for each in folders}, key=str)
        # Spark rejects a checkpoint of other sources, so each set of folders has its own.
        name = sha256("\0".join(map(str, self._folders)).encode(errors="surrogateescape")).hexdigest()[:16]
        self._checkpoint = checkpoints / name
        self._take = take
        # Held during a batch.
        self._lock = threading.Lock()
        self._total = RunSummary()
        self._failure: BaseException | None = None

    def follow(
        self, every_s: float | None, stopping: threading.Event, told: Callable[[RunSummary], None]
    ) -> RunSummary:
        """Check every `every_s` seconds until `stopping` is set; with None, process what exists and return."""

        def batch(frame: DataFrame, number: int) -> None:
            with self._lock:
                if stopping.is_set():
                    raise InterruptedError("the stream is being stopped")
                try:
                    summary = self._take(self._found(frame))
                except BaseException as error:
                    self._failure = error
                    raise
                self._total = self._total.plus(summary)
                if summary.files:
                    told(summary)

        writer = self._files().writeStream.queryName(QUERY).option("checkpointLocation", str(self._checkpoint))
        writer = (
            writer.trigger(availableNow=True)
            if every_s is None
            else writer.trigger(processingTime=f"{every_s} seconds")
        )
        query = writer.foreachBatch(batch).start()
        while query.isActive and not stopping.wait(_LOOK_S):
            pass
        with self._lock:
            query.stop()
        if self._failure is not None:
            raise self._failure
        if not stopping.is_set() and (error := query.exception()) is not None:
            raise error
        return self._total

    def _files(self) -> DataFrame:
        frames = [
            self._spark.readStream.format("binaryFile").schema(_FILES).options(**_OPTIONS).load(_escaped(folder))
            for folder in self._folders
        ]
        return reduce(lambda one, other: one.unionAll(other), frames).select("path", "length")

    def _found(self, frame: DataFrame) -> dict[str, int]:
        """The batch's files, oldest name first, without those in subfolders."""
        rows: list[Any] = frame.collect()
        files = {row["path"].removeprefix("file:"): row["length"] for row in rows}
        return {path: files[path] for path in sorted(files) if path_of(path).parent in self._folders}


def _escaped(folder: AnyPath) -> str:
    """A folder name escaped for Spark, which expects a pattern."""
    return "".join(f"\\{each}" if each in "{}[]*?\\" else each for each in str(folder))
