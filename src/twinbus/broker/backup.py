"""Backs up a namespace while it runs: its store as of one commit, plus its keys and certificates.

- The folder is on the broker's machine, empty, owned by the broker's user and has mode 0700, so that a client with
  Manage rights cannot make the broker write anywhere else.
- A backup blocks nobody: the event loop reads rows in steps, and a thread of its own writes the copy.
- One backup runs at a time. `get-backup` reports its progress; the copy is valid only once the backup is done.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinbus import __version__
from twinbus.broker.security.certificates import PRIVATE_FILES
from twinbus.broker.security.keys import copy_keys, write_private
from twinbus.errors import ArgumentError, ServerBusyError, StoreError, TwinbusError
from twinbus.limits import BACKUP_WAITING_BYTES_MAX
from twinbus.store.backup import FollowingStore, StorePieces

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost
    from twinbus.broker.nodes.requests import Request

MANIFEST = "backup.json"
_PAUSE_S = 0.01


class RunningBackup:
    """One backup, from start to end."""

    def __init__(self, host: NamespaceHost, folder: Path) -> None:
        self._host = host
        self._folder = folder
        self._pieces = StorePieces(host.store)
        self._copy = FollowingStore(folder / host.store.folder.name)
        self.state = "running"
        self.error = ""
        # The loop holds only weak references to tasks.
        self._task = host.loop.create_task(self._run())

    @property
    def running(self) -> bool:
        return self.state == "running"

    def describe(self) -> dict[str, Any]:
        return {"state": self.state, "rows": self._pieces.rows, "error": self.error}

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait((self._task,))

    async def _run(self) -> None:
        commits = self._host.commits
        try:
            commits.follower = self._copy.put
            try:
                while (piece := self._pieces.next()) is not None:
                    self._copy.put(piece)
                    await self._caught_up()
                # The last piece may have seen a running commit; that one is complete once a later one is answered.
                last: asyncio.Future[int] = self._host.loop.create_future()
                commits.facts.then.append((self._ended, last))
                commits.request()
                at_ms = await last
            finally:
                commits.follower = None
            await self._host.loop.run_in_executor(None, self._finish, at_ms)
            self.state = "done"
        except BaseException as error:
            self.state = "failed"
            self.error = self._reason(error)
            self._copy.error = self._copy.error or StoreError(self.error)
            with suppress(TwinbusError, OSError):
                await self._host.loop.run_in_executor(None, self._copy.finish)
            if not isinstance(error, TwinbusError | OSError):
                raise

    async def _caught_up(self) -> None:
        await asyncio.sleep(0)
        # The writing thread cannot wake the loop, and this is the only place that waits for it, so polling will do.
        while self._copy.waiting_bytes > BACKUP_WAITING_BYTES_MAX // 4 and self._copy.error is None:  # noqa: ASYNC110
            await asyncio.sleep(_PAUSE_S)
        if self._copy.error is not None:
            raise self._copy.error
        if not self._folder.exists():
            # The space of deleted files is free only once they are closed.
            raise StoreError("The folder was removed.")

    def _reason(self, error: BaseException) -> str:
        # An interrupted command removes the folder, and what is being written then fails in one way or another.
        if not self._folder.exists():
            return f"The folder {self._folder} was removed."
        return str(error) or "The backup was stopped."

    def _ended(self, last: asyncio.Future[int]) -> None:
        self._host.commits.follower = None
        if not last.done():
            last.set_result(self._host.clock.now_ms())

    def _finish(self, at_ms: int) -> None:
        self._copy.finish()
        data = self._host.store.folder.parent
        copy_private(data, self._folder)
        if not self._host.dev:
            copy_keys(data, self._folder, self._host.name)
        scribe = self._host.meter.scribe
        if scribe is not None:
            copy_ledger(scribe.folder, self._folder / "ledger")
        write_manifest(self._folder, at_ms)


def start_backup(host: NamespaceHost, request: Request) -> dict[str, Any]:
    text = request.arguments.get("folder")
    if not isinstance(text, str) or not os.path.isabs(text):
        raise ArgumentError("The request needs the 'folder', an absolute path on the broker's machine.")
    if host.backup is not None and host.backup.running:
        raise ServerBusyError("A backup of this namespace is running: wait for its end.")
    folder = Path(text)
    try:
        found = folder.lstat()
        usable = folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir())
    except OSError as error:
        raise ArgumentError(
            f"The broker cannot use the folder {folder}: {error.strerror}. Run `twinbus backup` on the broker's "
            "machine, as its user."
        ) from None
    if not usable or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise ArgumentError(f"The folder {folder} must be empty, and the broker's user's own with mode 0700.")
    host.backup = RunningBackup(host, folder)
    return host.backup.describe()


def get_backup(host: NamespaceHost, request: Request) -> dict[str, Any]:
    return {"state": "none", "rows": 0, "error": ""} if host.backup is None else host.backup.describe()


def copy_private(data: Path, to: Path) -> None:
    """Copy the development CA and its key, so that clients that trust it still do after a restore."""
    for name in PRIVATE_FILES:
        if (data / name).is_file() and not (to / name).exists():
            write_private(to / name, (data / name).read_text())


def copy_ledger(folder: Path, to: Path) -> None:
    """Copy the complete files of a ledger; a file removed meanwhile is skipped."""
    from twinbus.ledger.files import complete_files

    to.mkdir(mode=0o700, exist_ok=True)
    for path in complete_files(folder):
        if not (to / path.name).exists():
            with suppress(FileNotFoundError):
                shutil.copy2(path, to / path.name)


def write_manifest(folder: Path, at_ms: int) -> None:
    """Write the manifest: it marks the backup as complete and records its time and the size of each store."""
    stores = {path.parent.name: path.stat().st_size for path in sorted(folder.glob("*/data.mdb"))}
    write_private(folder / MANIFEST, json.dumps({"version": __version__, "at_ms": at_ms, "stores": stores}) + "\n")
