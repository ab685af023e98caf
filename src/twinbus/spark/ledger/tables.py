"""The tables that the ledger pipeline writes, for those who read them.

    tables = Tables(spark, "tables")
    tables.operations.groupBy("kind").sum("count").show()

Rules:
- A table is there from the start: without a run it is empty, and has its columns.
- What is read is what the last run committed; a run that goes on meanwhile does not show.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from twinbus.spark.ledger import schemas

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Tables:
    """The tables of one folder."""

    def __init__(self, spark: SparkSession, folder: Path | str) -> None:
        # Reads them.
        self._spark = spark
        # Where they are.
        self.folder = Path(folder)

    @property
    def operations(self) -> DataFrame:
        """Operations by minute, source, namespace, entity, kind, stage and outcome."""
        return self._empty(schemas.OPERATIONS)

    @property
    def charges(self) -> DataFrame:
        """What each day's operations, connections and base charge cost."""
        return self._empty(schemas.CHARGES)

    @property
    def failovers(self) -> DataFrame:
        """Episodes from failing over to failing back; `ended` is null while one goes on."""
        return self._empty(schemas.FAILOVERS)

    @property
    def backlog(self) -> DataFrame:
        """Depth and age of backlog queues by minute."""
        return self._empty(schemas.BACKLOG)

    @property
    def latency(self) -> DataFrame:
        """How long messages were under way through the backlog, by minute."""
        return self._empty(schemas.LATENCY)

    @property
    def quarantine(self) -> DataFrame:
        """Lines that are no records, with what is wrong."""
        return self._empty(schemas.QUARANTINE)

    def _empty(self, schema: str) -> DataFrame:
        return self._spark.createDataFrame([], schema)
