"""Output of the commands: tables for people, JSON for programs."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

# A key or signature, up to the character that ends it.
_SECRET = re.compile(r"((?:SharedAccessKey|SharedAccessSignature|sig)\s*=\s*)[^;&\s'\")]+", re.IGNORECASE)
# Wide enough that a table in a file or pipe is not truncated to a terminal's width.
_PIPE_COLUMNS = 200


def console() -> Console:
    """Return a console on standard output; styled only on a terminal."""
    from rich.console import Console

    out = Console(highlight=False)
    return out if out.is_terminal else Console(highlight=False, width=_PIPE_COLUMNS)


def show_table(
    columns: list[str], rows: list[list[str]], numbers: tuple[str, ...] = (), shortened: tuple[str, ...] = ()
) -> None:
    """Print a table. `numbers` are right-aligned; `shortened` columns are truncated if the line is too long."""
    from rich.table import Table

    out = console()
    if shortened:
        rows = _fitted(columns, rows, shortened, out.width)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        if column in shortened:
            table.add_column(column, no_wrap=True, overflow="ellipsis")
        else:
            table.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    out.print(table)


def _fitted(columns: list[str], rows: list[list[str]], shortened: tuple[str, ...], width: int) -> list[list[str]]:
    """Truncate these columns to the space that the others leave; rich would truncate numbers as well."""
    lengths = [max(map(len, (column, *cells))) for column, *cells in zip(columns, *rows, strict=True)]
    cut = [at for at, column in enumerate(columns) if column in shortened]
    room = width - 2 * (len(columns) - 1) - sum(length for at, length in enumerate(lengths) if at not in cut)
    # Shortest first: the space that one does not need is available to the others.
    for left, at in zip(range(len(cut), 0, -1), sorted(cut, key=lambda at: lengths[at]), strict=True):
        lengths[at] = min(lengths[at], max(room // left, len(columns[at])))
        room -= lengths[at]
    return [
        [
            cell if len(cell) <= length else f"{cell[: max(length - 1, 0)]}…"
            for cell, length in zip(row, lengths, strict=True)
        ]
        for row in rows
    ]


def counted(count: int, what: str) -> str:
    """Return a count with its noun: `1 message`, `2,000 messages`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def time_text(ms: int | None) -> str:
    """Format a time for people."""
    if not ms:
        return "-"
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def redacted(text: str) -> str:
    """Remove the secrets of connection strings and tokens from a text."""
    return _SECRET.sub(r"\1...", text)


def show_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2))


def show_deleted(kind: str, name: str, json: bool) -> None:
    if json:
        show_json({"deleted": name})
    else:
        typer.echo(f"Deleted {kind} {name}.")
