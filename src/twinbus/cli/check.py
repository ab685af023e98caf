"""`twinbus check`: reads every record of a data folder and tells whether all of it is whole."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, TaskID

from twinbus.cli.folders import default_data, namespaces_in
from twinbus.cli.view import show_table
from twinbus.entities import records
from twinbus.store.check import Report, verify
from twinbus.store.facts import Table


def check(
    data: Annotated[Path | None, typer.Argument(metavar="[DIR]", help="The data folder.", show_default=False)] = None,
) -> None:
    """Verify every checksum and reference in a data folder. The broker must be stopped."""
    errors = Console(stderr=True)
    reports: dict[str, Report] = {}
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as progress:
        for name, folder in namespaces_in(data if data is not None else default_data()).items():
            task = progress.add_task(f"checking {name}", total=None)
            reports[name] = verify(folder, _body_of, partial(_tell, progress, task))
    numbers = ("messages", "bodies", "bytes", "damaged", "dangling", "orphans")
    show_table(["namespace", *numbers, "verdict"], [_row(name, report) for name, report in reports.items()], numbers)
    for name, report in reports.items():
        for line in _findings(report):
            typer.echo(f"{name}: {line}")
    if not all(report.ok for report in reports.values()):
        raise typer.Exit(1)


def _tell(progress: Progress, task: TaskID, done: int, total: int) -> None:
    progress.update(task, completed=done, total=total)


def _row(name: str, report: Report) -> list[str]:
    return [
        name,
        f"{report.rows[Table.INDEX]:,}",
        f"{report.rows[Table.BODIES]:,}",
        f"{report.body_bytes:,}",
        f"{report.bad_bodies + report.bad_index:,}",
        f"{report.dangling:,}",
        f"{report.orphans:,}",
        "whole" if report.ok else "damaged",
    ]


def _body_of(value: bytes) -> int:
    return records.unpack(value).body


def _findings(report: Report) -> list[str]:
    lines = [f"body {number} does not match its checksum" for number in report.bad_body_numbers]
    lines += [f"message {seq} of entity {entity} does not read back" for entity, seq in report.bad_index_keys]
    lines += [
        f"message {seq} of entity {entity} has lost its body {body}" for entity, seq, body in report.dangling_keys
    ]
    return lines
