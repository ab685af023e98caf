"""`twinbus compact`: writes a copy of a data folder without the space that deleted messages left."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from twinbus.broker.keys import KEYS_FILE, write_private
from twinbus.cli.folders import namespaces_in
from twinbus.errors import ConfigError
from twinbus.store.check import compact as compact_store


def compact(
    data: Annotated[Path, typer.Argument(metavar="DIR", help="The data folder.")],
    to: Annotated[Path, typer.Argument(metavar="NEW_DIR", help="A folder that does not exist yet.")],
) -> None:
    """Write a compact copy of a data folder. The broker must be stopped; the original is left as it is."""
    folders = namespaces_in(data)
    if to.exists():
        raise ConfigError(f"{to} exists already: give the name of a new folder.")
    if list(folders.values()) == [data]:
        _one(data.name, data, to)
        return
    to.mkdir(mode=0o700, parents=True)
    for name, folder in folders.items():
        _one(name, folder, to / name)
    keys = data / KEYS_FILE
    if keys.is_file():
        # Without its keys the copy would make new ones, and every client's connection string would stop working.
        write_private(to / KEYS_FILE, keys.read_text())
    typer.echo(f"Start the broker with --data {os.fspath(to)} to use the copy.")


def _one(name: str, folder: Path, to: Path) -> None:
    before, after = compact_store(folder, to)
    typer.echo(f"{name}: {before:,} bytes before, {after:,} after")
