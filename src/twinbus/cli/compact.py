"""`twinbus compact`: writes a copy of a data folder without the space that deleted messages left."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from twinbus.cli.settings import Json
from twinbus.cli.view import show_json
from twinbus.errors import ConfigError


def compact(
    data: Annotated[Path, typer.Argument(metavar="DIR", help="The data folder.")],
    to: Annotated[Path, typer.Argument(metavar="NEW_DIR", help="A folder that does not exist yet.")],
    json: Json = False,
) -> None:
    """Write a compact copy of a data folder. The broker must be stopped; the original is left as it is.

    \b
    Example:
      twinbus compact ./data ./data-compact
      twinbus serve --data ./data-compact
    """
    from twinbus.broker.keys import KEYS_FILE, write_private
    from twinbus.cli.folders import namespaces_in

    folders = namespaces_in(data)
    if to.exists():
        raise ConfigError(f"{to} exists already: give the name of a new folder.")
    if list(folders.values()) == [data]:
        _show([_one(data.name, data, to)], json)
        return
    to.mkdir(mode=0o700, parents=True)
    sizes = [_one(name, folder, to / name) for name, folder in folders.items()]
    keys = data / KEYS_FILE
    if keys.is_file():
        # Without its keys the copy would make new ones, and every client's connection string would stop working.
        write_private(to / KEYS_FILE, keys.read_text())
    _show(sizes, json)
    if not json:
        typer.echo(f"Start the broker with --data {os.fspath(to)} to use the copy.")


def _one(name: str, folder: Path, to: Path) -> dict[str, Any]:
    from twinbus.store.check import compact as compact_store

    before, after = compact_store(folder, to)
    return {"namespace": name, "bytes_before": before, "bytes_after": after}


def _show(sizes: list[dict[str, Any]], json: bool) -> None:
    if json:
        show_json(sizes)
        return
    for size in sizes:
        typer.echo(f"{size['namespace']}: {size['bytes_before']:,} bytes before, {size['bytes_after']:,} after")
