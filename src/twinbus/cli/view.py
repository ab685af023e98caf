"""Output of the commands: tables for people, JSON for programs."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# A key or signature, up to the character that ends it.
_SECRET = re.compile(r"((?:SharedAccessKey|SharedAccessSignature|sig)\s*=\s*)[^;&\s'\")]+", re.IGNORECASE)
# Wide enough that a table in a file or pipe is not truncated to a terminal's width.
_PIPE_COLUMNS = 200
# Of a shortened column, so many characters are shown before other columns are omitted.
_SHORTENED_CHARS = 10


def console() -> Console:
    """Return a console on standard output; styled only on a terminal."""
    from rich.console import Console

    out = Console(highlight=False)
    return out if out.is_terminal else Console(highlight=False, width=_PIPE_COLUMNS)


def show_table(
    columns: list[str],
    rows: list[list[str]],
    numbers: tuple[str, ...] = (),
    shortened: tuple[str, ...] = (),
    dispensable: tuple[str, ...] = (),
) -> None:
    """Print a table as wide as the terminal."""
    out = console()
    out.print(table_of(columns, rows, out.width, numbers, shortened, dispensable))


def table_of(
    columns: list[str],
    rows: list[list[str]],
    width: int,
    numbers: tuple[str, ...] = (),
    shortened: tuple[str, ...] = (),
    dispensable: tuple[str, ...] = (),
) -> Table:
    """Return a table. `numbers` are right-aligned. If a line is too long, `shortened` columns are truncated; if too
    little of them would be left, `dispensable` ones are omitted, the first of them first."""
    from rich.table import Table
    from rich.text import Text

    if shortened:
        columns, rows = _reduced(columns, rows, shortened, dispensable, width)
        rows = _fitted(columns, rows, shortened, width)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        if column in shortened:
            table.add_column(column, no_wrap=True, overflow="ellipsis")
        else:
            table.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    for row in rows:
        # As text: in a string, rich would look for markup, and a client's could be a link.
        table.add_row(*(Text(one_line(cell)) for cell in row))
    return table


def _reduced(
    columns: list[str], rows: list[list[str]], shortened: tuple[str, ...], dispensable: tuple[str, ...], width: int
) -> tuple[list[str], list[list[str]]]:
    """Omit dispensable columns until a readable part of each shortened column fits."""
    for name in dispensable:
        lengths = zip(columns, _lengths(columns, rows), strict=True)
        needed = sum(2 + (min(_SHORTENED_CHARS, length) if each in shortened else length) for each, length in lengths)
        if needed - 2 <= width:
            break
        if name in columns:
            at = columns.index(name)
            columns = columns[:at] + columns[at + 1 :]
            rows = [row[:at] + row[at + 1 :] for row in rows]
    return columns, rows


def _lengths(columns: list[str], rows: list[list[str]]) -> list[int]:
    return [max(map(len, (column, *cells))) for column, *cells in zip(columns, *rows, strict=True)]


def _fitted(columns: list[str], rows: list[list[str]], shortened: tuple[str, ...], width: int) -> list[list[str]]:
    """Truncate these columns to the space that the others leave; rich would truncate numbers as well."""
    lengths = _lengths(columns, rows)
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
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        # A client may set any time that fits a number; Python's dates end with the year 9999.
        return f"{ms} ms"


def redacted(text: str) -> str:
    """Remove the secrets of connection strings and tokens from a text."""
    return _SECRET.sub(r"\1...", text)


def plain(text: str, allowed: str = "\t\n") -> str:
    """Escape everything that could control a terminal."""
    return "".join(each if each.isprintable() or each in allowed else _escaped(each) for each in text)


def one_line(text: str) -> str:
    """The same for a text that must stay on its line."""
    return text if text.isprintable() else plain(text, "")


def json_line(value: Any) -> str:
    """A value as JSON on one line: letters of every script as they are, what could control a terminal escaped."""
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode()


def show_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2))


def show_deleted(kind: str, name: str, json: bool) -> None:
    if json:
        show_json({"deleted": name})
    else:
        typer.echo(f"Deleted {kind} {name}.")
