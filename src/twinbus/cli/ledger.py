"""`twinbus ledger show`: what the operations ledger of a data folder adds up to.

Only complete files are read, so what a running broker did in the last minute may be missing; the command says so.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from twinbus.broker.config import LEDGER_NAME
from twinbus.cli.folders import default_data
from twinbus.cli.group import group
from twinbus.cli.view import show_json, show_table
from twinbus.errors import ConfigError
from twinbus.ledger.files import complete_files, open_files
from twinbus.ledger.totals import Group, Totals

ledgers = group(
    """Count what was done.

\b
Example:
  twinbus ledger show --data ./data
"""
)

_NUMBERS = ("operations", "bytes", "units")


@ledgers.callback()
def _ledgers() -> None:
    pass


@ledgers.command()
def show(
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The data folder, or a ledger's own folder.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """Sum the ledger by entity and kind of operation.

    \b
    Example:
      twinbus ledger show --data ./data
      twinbus ledger show --json | jq .operations
    """
    folder = find_ledger(data if data is not None else default_data())
    totals = Totals()
    totals.read(complete_files(folder))
    still_open = len(open_files(folder))
    if as_json:
        show_json(_described(totals, still_open))
        return
    _show(totals)
    for finding in totals.findings:
        typer.echo(f"not a record: {finding}", err=True)
    if totals.bad_lines > len(totals.findings):
        typer.echo(f"not a record: {totals.bad_lines - len(totals.findings)} lines more", err=True)
    if still_open:
        typer.echo(f"{still_open} file(s) still being written: the last minute may be missing.", err=True)


def find_ledger(folder: Path) -> Path:
    """The ledger in a data folder; the ledger's own folder is taken too."""
    for found in (folder / LEDGER_NAME, folder):
        if found.is_dir() and (complete_files(found) or open_files(found)):
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
        f"{totals.records:,} records in {totals.files:,} files"
        + (f", {_time(totals.start_ms)} to {_time(totals.end_ms)}" if totals.records else "")
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


def _named(group: Group) -> dict[str, str]:
    return dict(zip(Group._fields, group, strict=True))


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
