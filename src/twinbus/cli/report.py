"""`twinbus report`: the ledger's tables as an HTML page with charts, and in the terminal.

Rules:
- With `--ledger`, new ledger records are loaded into the tables first.
- The page is written to a temporary file and renamed, so it is always complete.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from twinbus.cli.folders import default_data
from twinbus.cli.ledger import find_ledger
from twinbus.cli.pairing import Json
from twinbus.cli.view import show_json, show_table
from twinbus.cli.work import ProgressCounter
from twinbus.clock import SystemClock
from twinbus.errors import ConfigError
from twinbus.ledger.prices import Sheet
from twinbus.limits import REPORT_ENTITIES, REPORT_ENTITIES_MAX
from twinbus.spark.store_path import AnyPath, path_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twinbus.spark.report.facts import CostReport

_TABLES = "tables"
_SHEET = "standard"
# Spark's start, the ledger, each part of the figures, and the page.
STEPS = 10


class ReportSteps(ProgressCounter):
    """Which step of how many is under way: a bar on a terminal, and lines for programs that ask for them."""

    def __init__(self, as_lines: bool) -> None:
        super().__init__("", STEPS)
        self._as_lines = as_lines
        # Steps that have begun.
        self._begun = 0

    def __call__(self, text: str) -> None:
        """A step begins, and the one before has ended."""
        self.add(min(self._begun, STEPS) - self.done, text)
        self._begun += 1
        if self._as_lines:
            typer.echo(f"{self.done}/{STEPS} {text}", err=True)


def report(
    ledger: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR", help="A ledger, or a data folder that contains one; repeatable.", show_default=False
        ),
    ] = None,
    tables: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the tables [beside the ledger].", show_default=False)
    ] = None,
    prices: Annotated[
        str | None, typer.Option(metavar="SHEET", help="Price sheet: a name or a file.", show_default=False)
    ] = None,
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Start of the report: 2026-11-15 or 2026-11-15T10:30, UTC."),
    ] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="TIME", help="End of the report, UTC.")] = None,
    namespace: Annotated[str | None, typer.Option(metavar="NAME", help="Only this namespace.")] = None,
    entities: Annotated[
        int, typer.Option(min=1, max=REPORT_ENTITIES_MAX, help="Number of entities shown by name.")
    ] = REPORT_ENTITIES,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="HTML file to write.")] = Path(
        "report.html"
    ),
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    master: Annotated[str | None, typer.Option(metavar="URL", help="Spark master [this machine].")] = None,
    progress: Annotated[bool, typer.Option("--progress", help="Print each step to stderr, one line each.")] = False,
    as_json: Json = False,
) -> None:
    """Report operations and their cost: an HTML page with charts, and tables in the terminal.

    \b
    Example:
      twinbus report --ledger ./data
      twinbus report --tables ./data/tables --from 2026-11-15 --to 2026-11-16 -o outage.html
      twinbus report --ledger ./data --json | jq -r .sentence
    """
    from twinbus.spark.session import need_pyspark, spark_session

    folders = [find_ledger(each) for each in ledger or []]
    place = path_of(tables) if tables is not None else _beside(folders)
    if not folders and not place.is_dir():
        raise ConfigError(f"There are no tables in {place}: give --tables DIR, or --ledger DIR to create them.")
    need_pyspark()
    # Detect mistakes before Spark takes its time to start.
    times = _times(start, end)
    sheet = None if prices is None else Sheet.load(prices)
    _check(output)
    with ReportSteps(progress) as step:
        step("starting Spark")
        with spark_session("twinbus report", master=master, brisk=True) as spark:
            found = _found(spark, folders, place, sheet, times, namespace, entities, step)
            step("drawing the page")
            from twinbus.spark.report.page import page

            _write(output, page(found, SystemClock().now_ms() / 1000))
        step("")
    if as_json:
        show_json(report_fields(found))
    else:
        _show(found)
    typer.echo(f"page: {output}", err=as_json)
    if open_page:
        typer.launch(output.absolute().as_uri())


def _beside(folders: list[AnyPath]) -> AnyPath:
    return (folders[0].parent if folders else default_data()) / _TABLES


def _times(start: str | None, end: str | None) -> tuple[int | None, int | None]:
    from twinbus.spark.report.period import instant

    start_s, end_s = (None if text is None else instant(text) for text in (start, end))
    if start_s is not None and end_s is not None and end_s <= start_s:
        raise ConfigError(f"--to {end} is not after --from {start}.")
    return start_s, end_s


def _found(
    spark: SparkSession,
    folders: list[AnyPath],
    place: AnyPath,
    sheet: Sheet | None,
    times: tuple[int | None, int | None],
    namespace: str | None,
    entities: int,
    step: Callable[[str], None],
) -> CostReport:
    from twinbus.spark.ledger.tables import LedgerTables
    from twinbus.spark.report.gather import Question, gather

    if folders:
        from twinbus.spark.ledger.pipeline import run

        step("reading the ledger into the tables")
        run(spark, folders, place, sheet or Sheet.load(_SHEET))
    kept = LedgerTables(spark, place)
    question = Question(
        sheet=sheet or _sheet(kept.sheet), start_s=times[0], end_s=times[1], namespace=namespace, entities=entities
    )
    return gather(kept, question, folders, step)


def _sheet(kept: str) -> Sheet:
    """Return the price sheet that the charges are based on."""
    with suppress(ConfigError):
        return Sheet.load(kept or _SHEET)
    raise ConfigError(f"The charges are based on the price sheet file '{kept}': pass it with --prices FILE.")


def _check(output: Path) -> None:
    folder = output.absolute().parent
    if not folder.is_dir():
        raise ConfigError(f"There is no folder {folder} to write {output.name} into.")


def _write(output: Path, text: str) -> None:
    folder = output.absolute().parent
    with NamedTemporaryFile("w", encoding="utf-8", dir=folder, prefix=f".{output.name}.", delete=False) as file:
        try:
            file.write(text)
            file.flush()
            # The usual permissions of a new file: the temporary file is readable only by its owner.
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(file.name, 0o666 & ~mask)
            os.replace(file.name, output)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def report_fields(found: CostReport) -> dict[str, Any]:
    """Return the report for programs: times in seconds since 1970, amounts as strings to keep every digit."""
    from twinbus.spark.report.sentence import headline, sentence

    plain = cast(dict[str, Any], _plain(asdict(found)))
    for outage, told in zip(found.outages, plain["outages"], strict=True):
        told["sentence"] = sentence(outage, found.currency)
    return {"sentence": headline(found), "cost": _plain(asdict(found.cost)), **plain}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return f"{value:f}" if isinstance(value, Decimal) else value


def _show(found: CostReport) -> None:
    from rich.markup import escape

    from twinbus.spark.report.listing import listings
    from twinbus.spark.report.page import numbers
    from twinbus.spark.report.sentence import headline

    typer.echo(headline(found))
    if found.quarantined:
        typer.echo(f"{found.quarantined:,} lines of the ledger could not be read: they are in the quarantine table.")
    if found.period is None:
        return
    typer.echo("")
    for name, value in numbers(found):
        typer.echo(f"{value:>14}  {name}")
    for table in listings(found):
        typer.echo(f"\n{table.title}")
        if table.rows:
            show_table(list(table.columns), [[escape(cell) for cell in row] for row in table.rows], table.numbers)
        for text in (table.note, "" if table.rows else table.nothing):
            if text and (table.rows or text == table.nothing):
                typer.echo(text)
