"""`twinbus check`: reads every record of a data folder and tells whether all of it is whole."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus.cli.settings import Json
from twinbus.cli.view import show_json, show_table

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from twinbus.store.check import Report


def check(
    data: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="The data folder [the user's own].", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """Verify every checksum and reference in a data folder. The broker must be stopped.

    \b
    Example:
      twinbus check ./data
      twinbus check ./data --json | jq '.[].ok'
    """
    from rich.console import Console
    from rich.progress import Progress

    from twinbus.cli.folders import default_data, namespaces_in
    from twinbus.store.check import verify

    errors = Console(stderr=True)
    reports: dict[str, Report] = {}
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as progress:
        for name, folder in namespaces_in(data if data is not None else default_data()).items():
            task = progress.add_task(f"checking {name}", total=None)
            reports[name] = verify(folder, _body_of, partial(_tell, progress, task))
    if json:
        show_json([_described(name, report) for name, report in reports.items()])
    else:
        _show(reports)
    if not all(report.ok for report in reports.values()):
        raise typer.Exit(1)


def _show(reports: dict[str, Report]) -> None:
    numbers = ("messages", "bodies", "bytes", "damaged", "dangling", "orphans")
    show_table(["namespace", *numbers, "verdict"], [_row(name, report) for name, report in reports.items()], numbers)
    for name, report in reports.items():
        for line in _findings(report):
            typer.echo(f"{name}: {line}")


def _described(name: str, report: Report) -> dict[str, Any]:
    from twinbus.store.facts import Table

    return {
        "namespace": name,
        "ok": report.ok,
        "messages": report.rows[Table.INDEX],
        "bodies": report.rows[Table.BODIES],
        "bytes": report.body_bytes,
        "damaged": report.bad_bodies + report.bad_index,
        "dangling": report.dangling,
        "orphans": report.orphans,
        "findings": _findings(report),
    }


def _tell(progress: Progress, task: TaskID, done: int, total: int) -> None:
    progress.update(task, completed=done, total=total)


def _row(name: str, report: Report) -> list[str]:
    found = _described(name, report)
    numbers = [f"{found[each]:,}" for each in ("messages", "bodies", "bytes", "damaged", "dangling", "orphans")]
    return [name, *numbers, "whole" if report.ok else "damaged"]


def _body_of(value: bytes) -> int:
    from twinbus.entities import records

    return records.unpack(value).body


def _findings(report: Report) -> list[str]:
    lines = [f"body {number} does not match its checksum" for number in report.bad_body_numbers]
    lines += [f"message {seq} of entity {entity} does not read back" for entity, seq in report.bad_index_keys]
    lines += [
        f"message {seq} of entity {entity} has lost its body {body}" for entity, seq, body in report.dangling_keys
    ]
    return lines
