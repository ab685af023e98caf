"""`twinbus check`: verify every record of a data folder."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus.cli.settings import Json
from twinbus.cli.view import show_json, show_table

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from twinbus.store.check import CheckReport

_NUMBERS = ("messages", "bodies", "bytes", "damaged", "dangling", "orphans", "faults")


def check(
    data: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="Data folder [the user's own].", show_default=False)
    ] = None,
    repair: Annotated[
        Path | None,
        typer.Option(
            metavar="NEW_DIR", help="Write a repaired copy to this folder and list what it omits.", show_default=False
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Verify every checksum, reference and owner in a data folder. The broker must be stopped.

    \b
    Example:
      twinbus check ./data
      twinbus check ./data --json | jq '.[].ok'
      twinbus check ./data --repair ./data-repaired
    """
    from rich.console import Console
    from rich.progress import Progress

    from twinbus.cli.folders import copies_in, default_data, namespaces_in

    errors = Console(stderr=True)
    source = data if data is not None else default_data()
    found = namespaces_in(source)
    reports: dict[str, CheckReport] = {}
    left_out: dict[str, list[str]] = {}
    with (
        copies_in(source, repair) as copies,
        Progress(console=errors, transient=True, disable=not errors.is_terminal) as progress,
    ):
        for name, folder in found.items():
            task = progress.add_task(f"checking {name}", total=None)
            reports[name] = _looked(folder, copies.get(name), partial(_tell, progress, task), left_out, name)
    if json:
        lacking = {} if repair is None else left_out
        show_json([_described(name, report, lacking.get(name)) for name, report in reports.items()])
    else:
        _show(reports)
        if repair is not None:
            _show_copy(repair, left_out)
    if not all(report.ok for report in reports.values()):
        raise typer.Exit(1)


def _looked(
    folder: Path, copy: Path | None, tell: Callable[[int, int], None], left_out: dict[str, list[str]], name: str
) -> CheckReport:
    from twinbus.entities.audit import audit
    from twinbus.store.check import repair, verify

    if copy is None:
        return verify(folder, body_of, tell, audit)
    report, left_out[name] = repair(folder, copy, body_of, audit, tell)
    return report


def _show(reports: dict[str, CheckReport]) -> None:
    show_table(["namespace", *_NUMBERS, "verdict"], [_row(name, report) for name, report in reports.items()], _NUMBERS)
    for name, report in reports.items():
        for line in _findings(report):
            typer.echo(f"{name}: {line}")


def _show_copy(to: Path, left_out: dict[str, list[str]]) -> None:
    typer.echo(f"Wrote a sound copy to {to}.")
    if not any(left_out.values()):
        typer.echo("Everything is in the copy.")
    for name, lines in left_out.items():
        for line in lines:
            typer.echo(f"{name}: omitted or corrected: {line}")


def _described(name: str, report: CheckReport, left_out: list[str] | None = None) -> dict[str, Any]:
    from twinbus.store.facts import Table

    described = {
        "namespace": name,
        "ok": report.ok,
        "messages": report.rows[Table.INDEX],
        "bodies": report.rows[Table.BODIES],
        "bytes": report.body_bytes,
        "damaged": report.bad_bodies + report.bad_index,
        "dangling": report.dangling,
        "orphans": report.orphans,
        "faults": report.faults,
        "findings": _findings(report),
    }
    return described if left_out is None else {**described, "left_out": left_out}


def _tell(progress: Progress, task: TaskID, done: int, total: int) -> None:
    progress.update(task, completed=done, total=total)


def _row(name: str, report: CheckReport) -> list[str]:
    found = _described(name, report)
    return [name, *(f"{found[each]:,}" for each in _NUMBERS), "whole" if report.ok else "damaged"]


def body_of(value: bytes) -> int:
    """Return the number of the body that an index record refers to."""
    from twinbus.entities import records

    return records.unpack(value).body_number


def _findings(report: CheckReport) -> list[str]:
    from twinbus.store.check import left_out

    return left_out(report)
