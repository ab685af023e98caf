"""Converts tables of earlier versions, which had a commit format of their own, to Delta tables.

commits/000000000007.json   the parts that are current since the seventh commit
parts/000000000007/         `operations` (sums), `records/type=...`, `seen` (ids), files.json (the ledger files)
"""

from __future__ import annotations

import json
import shutil
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from twinbus.errors import StoreCorruptError
from twinbus.spark.ledger import schemas
from twinbus.spark.ledger.number_set import NumberSet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from twinbus.spark.ledger.staged import StagedRows

_FORMAT_MAX: Final = 2
_SUMS: Final = (
    "minute bigint, source string, namespace string, entity string, kind string, stage string, outcome string, "
    "count bigint, bytes bigint, units bigint"
)
_WORD: Final = 64
_ALL: Final = -1  # every bit of a word


class OldTables:
    """A folder in format 1 or 2."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def exists(self) -> bool:
        return (self._folder / "commits").exists()

    @cached_property
    def _parts(self) -> list[Path]:
        """The current parts."""
        commits = sorted((self._folder / "commits").glob("*.json"))
        if not commits:
            return []
        try:
            found: dict[str, Any] = json.loads(commits[-1].read_text())
            if found["format"] > _FORMAT_MAX:
                raise StoreCorruptError(f"The tables in {self._folder} were written by a newer version: use that one.")
            return [self._folder / "parts" / each["name"] for each in found["parts"]]
        except (ValueError, KeyError, TypeError):
            raise StoreCorruptError(
                f"{commits[-1]} is unreadable: remove the tables folder and run again, the ledger files are all it "
                "needs."
            ) from None

    def files(self) -> dict[str, int]:
        """The ledger files that were processed."""
        found: dict[str, int] = {}
        for part in self._parts:
            found |= json.loads((part / "files.json").read_text())
        return found

    def ids(self) -> dict[str, NumberSet]:
        """The known ids. A row was a range of words of 64 numbers, or one word with some of its bits set."""
        from pyarrow.parquet import read_table

        ranges: dict[str, list[tuple[int, int]]] = {}
        for folder in self._existing("seen"):
            for row in read_table(folder, columns=["run", "low", "high", "bits"]).to_pylist():
                first = row["low"] * _WORD
                known = ranges.setdefault(row["run"], [])
                if row["bits"] == _ALL:
                    known.append((first, row["high"] * _WORD + _WORD - 1))
                else:
                    known += [(first + at, first + at) for at in range(_WORD) if row["bits"] >> at & 1]
        return {run: NumberSet(each) for run, each in ranges.items()}

    def stage(self, spark: SparkSession, rows: StagedRows) -> None:
        """Write the old rows as those of a batch of ledger files."""
        found = spark.createDataFrame([], schemas.ROWS)
        if sums := self._existing("operations"):
            frame = spark.read.schema(_SUMS).parquet(*map(str, sums)).withColumnRenamed("minute", "start_ms")
            found = _joined(found, frame.withColumn("part", F.lit("operations")))
        for part in self._existing("records"):
            columns = f"file string, reason string, text string, {schemas.RECORD}, type string"
            frame = spark.read.schema(columns).parquet(str(part)).withColumnRenamed("type", "part")
            found = _joined(found, frame.withColumnRenamed("file", "run"))
        day = F.date_format(F.timestamp_millis("start_ms"), "yyyy-MM-dd")
        rows.write(found.withColumn("day", F.coalesce(day, F.lit("-"))))

    def remove(self) -> None:
        """Delete the old files, the commits last, so that a run after a crash continues."""
        for place in ("parts", "days", "charges", "failovers"):
            for folder in (self._folder / place).glob("[0-9]" * 12):
                shutil.rmtree(folder)
        shutil.rmtree(self._folder / "parts", ignore_errors=True)
        shutil.rmtree(self._folder / "commits")

    def _existing(self, name: str) -> list[Path]:
        return [part / name for part in self._parts if (part / name).exists()]


def _joined(rows: DataFrame, more: DataFrame) -> DataFrame:
    return rows.unionByName(more, allowMissingColumns=True)
