"""The tables that the ledger pipeline writes, for those who read them.

    tables = Tables(spark, "tables")
    tables.operations.groupBy("kind").sum("count").show()

Rules:
- A table is there from the start: without a run it is empty, and has its columns.
- What is read is what was committed when the `Tables` were made; a run that goes on meanwhile does not show.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from twinbus.spark.ledger import schemas, views
from twinbus.spark.ledger.catalog import Catalog, State

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Tables:
    """The tables of one folder."""

    def __init__(self, spark: SparkSession, folder: Path | str, state: State | None = None) -> None:
        self._spark = spark
        self._catalog = Catalog(Path(folder))
        self._state = state if state is not None else self._catalog.state()

    @property
    def folder(self) -> Path:
        return self._catalog.folder

    @property
    def sheet(self) -> str:
        """The name of the price sheet that the charges are by; empty before the first run."""
        return self._state.sheet.partition(" ")[0]

    # --- what readers want ------------------------------------------------------------------------------------------

    @property
    def operations(self) -> DataFrame:
        """Operations by minute, source, namespace, entity, kind, stage and outcome."""
        return views.operations(self.sums)

    @property
    def charges(self) -> DataFrame:
        """What each day's operations, connections and base charge cost."""
        folders = [str(self.folder / each) for each in self._state.charges.values()]
        return self._read(folders, schemas.CHARGES)

    @property
    def failovers(self) -> DataFrame:
        """Episodes from failing over to failing back; `ended` is null while one goes on."""
        folder = self._state.failovers
        return self._read([] if folder is None else [str(self.folder / folder)], schemas.FAILOVERS)

    @property
    def backlog(self) -> DataFrame:
        """Depth and age of backlog queues by minute."""
        return views.backlog(self.records("backlog"))

    @property
    def latency(self) -> DataFrame:
        """How long messages were under way through the backlog, by minute."""
        return views.latency(self.records("latency"))

    @property
    def quarantine(self) -> DataFrame:
        """Lines that are no records, with what is wrong."""
        return views.quarantine(self.records("quarantine"))

    # --- what the pipeline wants ------------------------------------------------------------------------------------

    @property
    def sums(self) -> DataFrame:
        """Operations by file."""
        return self._read(self._catalog.paths(self._state, "operations"), schemas.SUMS)

    @property
    def days(self) -> DataFrame:
        """Operations by day."""
        return self._read([str(self.folder / each) for each in self._state.days.values()], schemas.DAYS)

    @property
    def seen(self) -> DataFrame:
        """Ids of all records so far."""
        return self._read(self._catalog.paths(self._state, "seen"), schemas.SEEN)

    @property
    def has_seen(self) -> bool:
        """Whether there is anything in `seen`."""
        return bool(self._state.parts)

    def records(self, kind: str) -> DataFrame:
        """Records of one type, as they were written."""
        return self._read(self._catalog.paths(self._state, kind), schemas.RECORDS).drop("type")

    def _read(self, folders: list[str], schema: str) -> DataFrame:
        if not folders:
            return self._spark.createDataFrame([], schema)
        return self._spark.read.schema(schema).parquet(*folders)
