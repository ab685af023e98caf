"""`twinbus compact`: copy a data folder without the space that deleted messages left."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from twinbus.cli.settings import Json
from twinbus.cli.view import show_json


def compact(
    data: Annotated[Path, typer.Argument(metavar="DIR", help="Data folder to copy.")],
    to: Annotated[Path, typer.Argument(metavar="NEW_DIR", help="Folder to create.")],
    json: Json = False,
) -> None:
    """Write a compact copy of a data folder. The broker must be stopped; the original is not changed.

    \b
    Example:
      twinbus compact ./data ./data-compact
      twinbus serve --data ./data-compact
    """
    from twinbus.cli.folders import copies_in, namespaces_in

    folders = namespaces_in(data)
    with copies_in(data, to) as copies:
        sizes = [_one(name, folder, copies[name]) for name, folder in folders.items()]
    _show(sizes, json)
    if not json and to not in copies.values():
        typer.echo(f"Start the broker with --data {os.fspath(to)} to use the copy.")


def _one(name: str, folder: Path, to: Path) -> dict[str, Any]:
    from twinbus.cli.check import body_of
    from twinbus.entities.audit import audit
    from twinbus.store.check import compact as compact_store

    before, after = compact_store(folder, to, None, body_of, audit)
    return {"namespace": name, "bytes_before": before, "bytes_after": after}


def _show(sizes: list[dict[str, Any]], json: bool) -> None:
    if json:
        show_json(sizes)
        return
    for size in sizes:
        typer.echo(f"{size['namespace']}: {size['bytes_before']:,} bytes before, {size['bytes_after']:,} after")
