"""The rows of a batch that tasks wrote to the staging folder, and the driver's work on them.

- The driver gets only small data: ranges of ids, a row per file, and folder names.
- Each id counts in the first file that has it. Other files almost never have it; a file with some known numbers is read
  again for its other records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from twinbus.spark.ledger import reading, schemas
from twinbus.spark.ledger.delta import DeltaFolder
from twinbus.spark.ledger.number_set import NumberSet
from twinbus.spark.store_path import AnyPath, StorePath, path_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class StagedRows:
    """The rows that one batch has read."""

    def __init__(self, spark: SparkSession, staging: AnyPath) -> None:
        self._spark = spark
        self._first = staging / "rows"
        self._second = staging / "rows-again"
        # Files whose rows from the first reading do not count.
        self._again: list[int] = []

    def read(self, files: Mapping[str, int]) -> None:
        self.write(reading.read(self._spark, files))

    def write(self, rows: DataFrame) -> None:
        rows.write.partitionBy("part", "day").parquet(str(self._first))

    def keep_new(self, files: Mapping[str, int], seen: dict[str, NumberSet]) -> int:
        """Count each id once, and not if it is in `seen`; add the new ones to `seen` and return how many there are."""
        total = 0
        again: dict[int, dict[str, NumberSet]] = {}
        for file, own in sorted(self._ids().items()):
            new = {run: numbers - seen[run] if run in seen else numbers for run, numbers in own.items()}
            if new != own:
                again[file] = new
            for run, numbers in new.items():
                total += len(numbers)
                seen[run] = seen[run] | numbers if run in seen else numbers
        self._again = list(again)
        left = {file: new for file, new in again.items() if any(map(len, new.values()))}
        if left:
            rows = reading.read(self._spark, files, left)
            rows.write.partitionBy("part", "day").parquet(str(self._second))
        return total

    def lines(self) -> tuple[int, int]:
        """The number of lines, and how many of them are in quarantine."""
        found = _table(self._first / f"part={reading.FILES}", ["lines", "count"])
        return sum(found["lines"]), sum(found["count"])

    def has(self, part: str) -> bool:
        return any((folder / f"part={part}").exists() for folder in (self._first, self._second))

    def days(self, part: str) -> set[str]:
        """The days of a part's rows."""
        found = [*self._first.glob(f"part={part}/day=*"), *self._second.glob(f"part={part}/day=*")]
        return {path.name.partition("=")[2] for path in found}

    def part(self, part: str) -> DataFrame:
        found = self._read(self._first, part)
        # A quarantined line has no id, so it stays even if its file is a copy.
        if not self._again or part == reading.QUARANTINE:
            return found
        found = found.where(~F.col("file").isin(self._again))
        return found.unionByName(self._read(self._second, part))

    def _read(self, folder: AnyPath, part: str) -> DataFrame:
        if not (folder / f"part={part}").exists():
            return self._spark.createDataFrame([], schemas.ROWS)
        reader = self._spark.read.schema(schemas.ROWS).option("basePath", str(folder))
        return reader.parquet(str(folder / f"part={part}"))

    def _ids(self) -> dict[int, dict[str, NumberSet]]:
        found = _table(self._first / f"part={reading.IDS}", ["file", "run", "low", "high"])
        ranges: dict[int, dict[str, list[tuple[int, int]]]] = {}
        for file, run, low, high in zip(*found.values(), strict=True):
            ranges.setdefault(file, {}).setdefault(run, []).append((low, high))
        return {file: {run: NumberSet(each) for run, each in own.items()} for file, own in ranges.items()}


def known_files(delta: DeltaFolder) -> dict[str, int]:
    """The ledger files processed, with their sizes."""
    return {
        path: size
        for file in delta.files("files")
        for path, size in zip(*_table(path_of(file), ["path", "size"]).values(), strict=True)
    }


def known_ids(delta: DeltaFolder) -> dict[str, NumberSet]:
    """The known ids by run."""
    ranges: dict[str, list[tuple[int, int]]] = {}
    for file in delta.files("seen"):
        for run, low, high in zip(*_table(path_of(file), ["run", "low", "high"]).values(), strict=True):
            ranges.setdefault(run, []).append((low, high))
    return {run: NumberSet(each) for run, each in ranges.items()}


def write_rows(delta: DeltaFolder, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Stage rows that the driver itself has."""
    import pyarrow
    from pyarrow.parquet import write_table

    kinds = {"string": pyarrow.string(), "bigint": pyarrow.int64()}
    fields = [each.split(" ") for each in schemas.TABLES[table].columns.split(", ")]
    columns = zip(*rows, strict=True) if rows else ([] for _ in fields)
    arrays = [pyarrow.array(values, kinds[kind]) for (_, kind), values in zip(fields, columns, strict=True)]
    folder = delta.staging / "tables" / table
    folder.mkdir(parents=True)
    file = folder / f"batch-{delta.batch().number + 1:012d}.parquet"
    where = {"where": file.key, "filesystem": file.filesystem} if isinstance(file, StorePath) else {"where": file}
    write_table(pyarrow.table(arrays, names=[name for name, _ in fields]), **where)


def _table(path: AnyPath, columns: list[str]) -> dict[str, list[Any]]:
    """Columns of Parquet files; empty if they do not exist."""
    from pyarrow.parquet import read_table

    if not path.exists():
        return {name: [] for name in columns}
    where = {"source": path.key, "filesystem": path.filesystem} if isinstance(path, StorePath) else {"source": path}
    found: dict[str, list[Any]] = read_table(**where, columns=columns, partitioning=None).to_pydict()
    return found
