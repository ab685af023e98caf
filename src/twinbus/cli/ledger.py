"""`twinbus ledger`: sum up the operations ledger of a data folder, and load it into tables.

Only complete files are read, so the last minute of a running broker may be missing; the command says so.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus.cli.folders import default_data
from twinbus.cli.group import group
from twinbus.cli.view import counted, one_line, show_json, show_table, time_text
from twinbus.errors import ConfigError, StoreError
from twinbus.ledger.files import COMPLETE, OPEN, complete_files, open_files
from twinbus.ledger.prices import Sheet
from twinbus.ledger.totals import Totals, TotalsKey
from twinbus.spark.store_path import AnyPath, StorePath, path_of

if TYPE_CHECKING:
    from twinbus.spark.ledger.following import RunSummary

ledgers = group(
    """Summarise recorded operations.

\b
Example:
  twinbus ledger show --data ./data
  twinbus ledger run --ledger ./data --prices standard
"""
)

_NUMBERS = ("operations", "bytes", "units")
# The folder of the tables, next to the ledger.
TABLES_NAME = "tables"


@ledgers.callback()
def _ledgers() -> None:
    pass


@ledgers.command()
def show(
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Data folder, or folder of a ledger.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Sum the ledger by entity and kind of operation.

    \b
    Example:
      twinbus ledger show --data ./data
      twinbus ledger show --json | jq .operations
    """
    folder = find_ledger(data if data is not None else default_data())
    if isinstance(folder, StorePath):
        raise ConfigError("`twinbus ledger show` reads ledgers of this machine: use `twinbus ledger run` for others.")
    totals = Totals()
    totals.read(complete_files(folder))
    still_open = len(open_files(folder))
    if as_json:
        show_json(_described(totals, still_open))
        return
    _show(totals)
    for finding in totals.findings:
        typer.echo(one_line(f"not a record: {finding}"), err=True)
    if totals.bad_lines > len(totals.findings):
        typer.echo(f"not a record: {totals.bad_lines - len(totals.findings)} lines more", err=True)
    if still_open:
        typer.echo(f"{still_open} file(s) still being written: the last minute may be missing.", err=True)


@ledgers.command()
def run(
    ledger: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR", help="A ledger, or a data folder that contains one; repeatable.", show_default=False
        ),
    ] = None,
    tables: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the tables [beside the ledger].", show_default=False)
    ] = None,
    prices: Annotated[str, typer.Option(metavar="SHEET", help="Price sheet: a name or a file.")] = "standard",
    follow: Annotated[bool, typer.Option("--follow", help="Keep reading new records until stopped.")] = False,
    every: Annotated[float, typer.Option(min=1, max=3600, help="With --follow: seconds between two reads.")] = 10.0,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="Spark master [this machine].", show_default=False)
    ] = None,
    memory: Annotated[str, typer.Option(metavar="SIZE", help="Memory of Spark on this machine.")] = "2g",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Load new ledger records into the tables of operations, charges, failovers, backlog and latency.

    Each record is loaded once, even if a run is killed or a file appears again.

    \b
    Example:
      twinbus ledger run --ledger ./data
      twinbus ledger run --ledger ./data --ledger /var/log/orders-service --tables ./tables --prices my-prices.toml
    """
    sheet = Sheet.load(prices)
    folders = [find_ledger(each) for each in (ledger or [default_data()])]
    place = path_of(tables) if tables is not None else folders[0].absolute().parent / TABLES_NAME
    with _spark_errors():
        total = _run(folders, place, sheet, every if follow else None, master, memory, as_json)
    if not as_json:
        typer.echo(f"{_told(total)} The tables are in {place}.")
        if total.quarantined:
            typer.echo(f"{total.quarantined:,} lines are not records: see the table `quarantine`.", err=True)
    elif not follow:
        show_json({**asdict(total), "tables": str(place)})


def _run(
    folders: list[AnyPath],
    place: AnyPath,
    sheet: Sheet,
    every_s: float | None,
    master: str | None,
    memory: str,
    as_json: bool,
) -> RunSummary:
    from twinbus.spark.session import need_pyspark, spark_session

    need_pyspark()
    from twinbus.spark.ledger import pipeline

    def told(summary: RunSummary) -> None:
        typer.echo(json.dumps(asdict(summary)) if as_json else _told(summary))

    def progress(text: str) -> None:
        typer.echo(text, err=True)

    brisk = every_s is None and pipeline.is_small(folders, place)
    settings = {"spark.driver.memory": memory}
    archived = "ledger" if every_s is None else None
    with spark_session(
        "twinbus ledger", master=master, settings=settings, brisk=brisk, archived=archived, progress=progress
    ) as spark:
        if every_s is None:
            # Stopping it at any moment loses only the work since the last commit.
            return pipeline.run(spark, folders, place, sheet, progress=progress)
        # By now Spark has installed its own Ctrl-C handler, which would kill the current batch.
        with _stopping() as stopping:
            return pipeline.follow(
                spark, folders, place, sheet, stopping=stopping, told=told, every_s=every_s, progress=progress
            )


@contextmanager
def _spark_errors() -> Iterator[None]:
    """Turn a failure of Spark into one line and the next step."""
    from twinbus.spark.session import need_pyspark

    need_pyspark()
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        # Java's own words follow py4j's first line.
        first = str(error).partition("\n: ")[2] or str(error).strip()
        first = first.partition("\n")[0]
        raise StoreError(
            f"Spark failed, and nothing of the current batch was committed: {first} Run it again."
        ) from error


def _told(summary: RunSummary) -> str:
    return (
        f"{summary.records:,} new records of {summary.lines:,} lines in {summary.files:,} files, "
        f"{summary.repeated:,} repeated, {summary.quarantined:,} in quarantine; {summary.seconds:.1f} s."
    )


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """Yield an event that the first signal sets; a second signal interrupts at once."""
    event = threading.Event()

    def stop(number: int, frame: Any) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def find_ledger(given: Path) -> AnyPath:
    """Return the ledger in a data folder; the ledger's own folder works too."""
    from twinbus.broker.configuration.config import LEDGER_NAME

    folder = path_of(given)
    for found in (folder / LEDGER_NAME, folder):
        if found.is_dir() and any(next(iter(found.glob(f"*{end}")), None) for end in (COMPLETE, OPEN)):
            return found
    raise ConfigError(f"There is no ledger in {folder}.")


def _show(totals: Totals) -> None:
    if totals.groups:
        columns = ["source", "namespace", "entity", "kind", "stage", "outcome"]
        rows = [
            [*group, f"{sums.count:,}", f"{sums.bytes:,}", f"{sums.units:,}"]
            for group, sums in sorted(totals.groups.items())
        ]
        show_table([*columns, *_NUMBERS], rows, _NUMBERS)
    typer.echo(
        f"{counted(totals.records, 'record')} in {counted(totals.files, 'file')}"
        + (f", {time_text(totals.start_ms)} to {time_text(totals.end_ms)}" if totals.records else "")
    )


def _described(totals: Totals, still_open: int) -> dict[str, Any]:
    return {
        "files": totals.files,
        "files_open": still_open,
        "records": totals.records,
        "bad_lines": totals.bad_lines,
        "start_ms": totals.start_ms,
        "end_ms": totals.end_ms,
        "operations": [
            {**_named(group), "count": sums.count, "bytes": sums.bytes, "units": sums.units}
            for group, sums in sorted(totals.groups.items())
        ],
    }


def _named(group: TotalsKey) -> dict[str, str]:
    return dict(zip(TotalsKey._fields, group, strict=True))
