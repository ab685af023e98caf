"""`twinbus restore`: restore a data folder from a backup and verify it before it takes its name."""

from __future__ import annotations

import json as reader
import os
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

from twinbus.cli.settings import Json
from twinbus.cli.view import counted, show_json
from twinbus.errors import ConfigError, StoreError


def restore(
    backup: Annotated[Path, typer.Argument(metavar="BACKUP", help="Folder that `twinbus backup` wrote.")],
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="Data folder to restore to.")],
    json: Json = False,
) -> None:
    """Restore a backup to a data folder. The folder must not contain its namespaces yet.

    Keys, certificates and the ledger are restored only where the folder has none. The backup is not changed.

    \b
    Example:
      twinbus restore ./backup-monday --data ./data
      twinbus serve --namespace contoso --data ./data
    """
    from twinbus.broker.backup import MANIFEST, copy_ledger, copy_private
    from twinbus.broker.security.keys import copy_keys
    from twinbus.cli.backup import verified
    from twinbus.store.facts import Table
    from twinbus.store.folder import DATA_NAME, sync_folder

    stores = _stores(backup, MANIFEST)
    taken = [name for name in stores if (data / name).exists()]
    if taken:
        raise ConfigError(f"{data} has a namespace {taken[0]} already: restore to another folder, or move it away.")
    new = not data.exists()
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = data / ".restore-unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        unfinished.mkdir(mode=0o700)
        for name in stores:
            (unfinished / name).mkdir(mode=0o700)
            shutil.copyfile(backup / name / DATA_NAME, unfinished / name / DATA_NAME)
            with (unfinished / name / DATA_NAME).open("rb+") as copy:
                os.fsync(copy.fileno())
        try:
            reports = verified(unfinished)
        except StoreError:
            raise StoreError(
                f"The backup {backup} is damaged: use another backup. Nothing was restored; `twinbus check {backup}` "
                "says what is wrong."
            ) from None
        for name in stores:
            copy_keys(backup, data, name)
        copy_private(backup, data)
        if (backup / "ledger").is_dir():
            copy_ledger(backup / "ledger", data / "ledger")
        for name in stores:
            (unfinished / name).rename(data / name)
        sync_folder(data)
    except OSError as error:
        raise StoreError(f"{backup} cannot be copied to {data}: {error.strerror or error}.") from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        if new and not any(data.iterdir()):
            data.rmdir()
    told: list[dict[str, Any]] = [{"namespace": name, "messages": reports[name].rows[Table.INDEX]} for name in stores]
    if json:
        show_json({"folder": str(data), "namespaces": told})
        return
    for each in told:
        typer.echo(f"Restored {each['namespace']}: {counted(each['messages'], 'message')}.")
    typer.echo(f"Start the broker with --data {data}.")


def _stores(backup: Path, manifest: str) -> dict[str, int]:
    """Return the namespaces in a backup with the sizes of their files."""
    try:
        told: dict[str, Any] = reader.loads((backup / manifest).read_text())
        stores = {str(name): int(size) for name, size in told["stores"].items()}
    except OSError as error:
        raise ConfigError(f"{backup} is not a complete backup: {manifest} cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(f"{backup} is not a Twinbus backup: {manifest} is invalid.") from None
    for name, size in stores.items():
        path = backup / name / "data.mdb"
        if not path.is_file() or path.stat().st_size != size:
            raise StoreError(f"{path} is missing or was changed since the backup: use another backup.")
    return stores
