"""`twinbus backup`: a verified copy of a running namespace, or of the data folder of a stopped broker.

Rules:
- A running broker writes the copy itself, as of one commit, while it serves its clients.
- Every checksum, reference and owner in the copy is verified before the command reports success.
- A failed copy is removed: half a backup must not look like one.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus.cli.directory import in_conversation
from twinbus.cli.settings import Json
from twinbus.cli.target import TargetNamespace, connected
from twinbus.cli.view import counted, show_json
from twinbus.cli.work import ProgressCounter
from twinbus.clock import SystemClock
from twinbus.errors import ConfigError, ServiceError, StoreError, StoreLockedError

if TYPE_CHECKING:
    from twinbus.client.management import Management
    from twinbus.store.check import CheckReport

_LOOK_S = 0.2


@partial(connected, unless="data")
def backup(
    target: TargetNamespace | None,
    to: Annotated[Path, typer.Argument(metavar="NEW_DIR", help="Folder to create for the backup.")],
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Data folder of a stopped broker.", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """Write a verified copy of a namespace while its broker runs. Run it on the broker's machine as the broker's user.

    With --data it copies the folder of a stopped broker, with all its namespaces. A backup contains keys: protect it.

    \b
    Example:
      twinbus backup ./backup-monday --ready-file ready.json
      twinbus backup ./backup-monday --data ./data
    """
    if target is not None and target.azure:
        raise ConfigError("Azure namespaces cannot be backed up: this command needs a Twinbus namespace.")
    with _made(to):
        if data is not None:
            _cold(data, to)
        elif target is not None:
            _hot(target, to)
        reports = verified(to)
    _show(to, reports, json)


@contextmanager
def _made(to: Path) -> Iterator[None]:
    if to.exists():
        raise ConfigError(f"{to} exists already: give the name of a new folder.")
    to.mkdir(mode=0o700, parents=True)
    try:
        yield
    except BaseException:
        shutil.rmtree(to, ignore_errors=True)
        raise


def _hot(target: TargetNamespace, to: Path) -> None:
    folder = str(to.absolute())

    async def written(node: Management) -> dict[str, Any]:
        with ProgressCounter(f"backing up to {to}") as counter:
            status = await node.ask("twinbus:start-backup", {"folder": folder})
            while status["state"] == "running":
                await asyncio.sleep(_LOOK_S)
                status = await node.ask("twinbus:get-backup", {})
                counter.add(status["rows"] - counter.done)
        return status

    status = in_conversation(target.broker, written, ca_file=target.ca_file)
    if status["state"] != "done":
        raise ServiceError(f"The backup failed: {status['error'] or 'the broker was restarted.'}")


def _cold(data: Path, to: Path) -> None:
    from twinbus.broker.backup import copy_ledger, copy_private, write_manifest
    from twinbus.broker.security.keys import copy_keys
    from twinbus.cli.check import body_of
    from twinbus.cli.folders import namespaces_in
    from twinbus.entities.audit import audit
    from twinbus.store.check import compact

    namespaces = namespaces_in(data)
    if list(namespaces.values()) == [data]:
        data = data.parent
    for name, folder in namespaces.items():
        try:
            compact(folder, to / name, None, body_of, audit)
        except StoreLockedError:
            raise StoreError(
                f"A broker serves {folder}: leave --data out, and name the namespace by --ready-file or "
                "--connection-string; the broker then writes the backup."
            ) from None
        copy_keys(data, to, name)
    copy_private(data, to)
    if (data / "ledger").is_dir():
        copy_ledger(data / "ledger", to / "ledger")
    write_manifest(to, SystemClock().now_ms())


def verified(folder: Path) -> dict[str, CheckReport]:
    """Verify the copy of each namespace and return the reports; raise StoreError if one is damaged."""
    from twinbus.cli.check import body_of
    from twinbus.cli.folders import namespaces_in
    from twinbus.entities.audit import audit
    from twinbus.store.check import verify

    found = {name: verify(each, body_of, audit=audit) for name, each in namespaces_in(folder).items()}
    for name, report in found.items():
        if not report.ok:
            raise StoreError(f"The copy of {name} is damaged. `twinbus check` on the data folder says what is wrong.")
    return found


def _show(to: Path, reports: dict[str, CheckReport], json: bool) -> None:
    from twinbus.store.facts import Table

    told: list[dict[str, Any]] = [
        {"namespace": name, "messages": report.rows[Table.INDEX], "bytes": (to / name / "data.mdb").stat().st_size}
        for name, report in reports.items()
    ]
    if json:
        show_json({"folder": str(to), "namespaces": told})
        return
    for each in told:
        typer.echo(f"Backed up {each['namespace']}: {counted(each['messages'], 'message')}, {each['bytes']:,} bytes.")
    typer.echo(f"Every checksum of {to} is verified. `twinbus restore {to} --data NEW_DIR` restores it.")
