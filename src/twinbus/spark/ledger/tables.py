"""The tables that the ledger pipeline writes, for reading with Spark.

    tables = LedgerTables(spark, "tables")
    tables.operations.groupBy("kind").sum("count").show()

They are Delta tables, which every reader of that format can read (docs/ledger.md).

- Every table exists from the start: before the first run it is empty and has its columns.
- You read what was committed when the `LedgerTables` were created; a later run does not show.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from twinbus.errors import StoreError
from twinbus.spark.ledger.delta import DeltaFolder, partition_of
from twinbus.spark.ledger.schemas import TABLES
from twinbus.spark.store_path import AnyPath, path_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class LedgerTables:
    """The tables of one folder."""

    def __init__(self, spark: SparkSession, folder: AnyPath | str) -> None:
        self._spark = spark
        self._delta = DeltaFolder(path_of(folder))
        self.folder = self._delta.folder
        if (self.folder / "commits").exists():
            raise StoreError(
                f"The tables in {self.folder} were written by an earlier version: `twinbus ledger run` converts them."
            )
        self._files = {name: self._delta.files(name) for name in TABLES}
        self._sheet = self._delta.batch().sheet

    @property
    def sheet(self) -> str:
        """The name of the price sheet behind the charges; empty before the first run."""
        return self._sheet.partition(" ")[0]

    @property
    def operations(self) -> DataFrame:
        """Operations by minute, source, namespace, entity, kind, stage and outcome."""
        return self.read("operations")

    @property
    def charges(self) -> DataFrame:
        """What each day's operations, connections and base charge cost."""
        return self.read("charges")

    @property
    def failovers(self) -> DataFrame:
        """Episodes from failing over to failing back; `ended` is null while one lasts."""
        return self.read("failovers")

    @property
    def backlog(self) -> DataFrame:
        """Depth and age of backlog queues by minute."""
        return self.read("backlog")

    @property
    def latency(self) -> DataFrame:
        """How long messages took through the backlog, by minute."""
        return self.read("latency")

    @property
    def quarantine(self) -> DataFrame:
        """Lines that are not records, with the reason."""
        return self.read("quarantine")

    def read(self, name: str) -> DataFrame:
        """A table, without its partition column."""
        return self.partitions(name, None).drop(TABLES[name].partition)

    def partitions(self, name: str, wanted: Iterable[str] | None) -> DataFrame:
        """The rows of some partitions or all, with the partition column."""
        chosen = None if wanted is None else set(wanted)
        files = [path for path in self._files[name] if chosen is None or partition_of(path) in chosen]
        return frame_of(self._spark, name, self.folder / name, files)

    def months(self, name: str) -> set[str]:
        return {partition_of(path) for path in self._files[name]}


def frame_of(spark: SparkSession, name: str, folder: AnyPath, files: list[str]) -> DataFrame:
    """The rows of a table's files below a folder."""
    spec = TABLES[name]
    if not files:
        return spark.createDataFrame([], spec.all_columns)
    return spark.read.schema(spec.all_columns).option("basePath", str(folder)).parquet(*files)
