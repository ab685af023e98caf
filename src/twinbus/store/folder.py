"""The data folder: create and lock it.

One process at a time holds a folder, through flocks that the kernel drops however the process dies. The lock file names
the holder and is locked first. The data file is locked too, so that neither a deleted lock file nor a second path to
the same data lets another process in. LMDB's own locking is off, so ours is the only one.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from twinbus.errors import StoreError, StoreLockedError

LOCK_NAME = "lock"
DATA_NAME = "data.mdb"
BALLAST_NAME = "ballast"

# Follows the holder's process id in the lock file until the store has all its tables.
_UNFINISHED = b" new"


def prepare(folder: Path) -> None:
    """Create the folder durably, accessible to its owner only. An existing folder is left as it is."""
    if folder.is_dir():
        return
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        sync_folder(folder.parent)
    except OSError as error:
        raise StoreError(
            f"The data folder {folder} cannot be created: {error.strerror}. Choose another one."
        ) from error


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def had_store(folder: Path) -> bool:
    """Whether this folder once held a store, judged by its other files even if the data file is gone."""
    try:
        holder = (folder / LOCK_NAME).read_bytes()
    except OSError:
        holder = b""
    # An empty lock file means the disk was full when the folder was created, or is full now. The ballast is created
    # after the store.
    return (holder != b"" and not holder.endswith(_UNFINISHED)) or (folder / BALLAST_NAME).exists()


def lost_text(folder: Path) -> str:
    return (
        f"The data folder {folder} had a store, but its file {DATA_NAME} is missing or empty. Restore the file from a "
        "backup; to start with an empty namespace, choose another folder."
    )


class FolderLock:
    """Holds a data folder for this process until released."""

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        self._folder = folder
        # The open lock file and data file.
        self._handles: list[int] = []
        try:
            self._hold(folder / LOCK_NAME, create=True)
            # True if the folder never held a store, so that one may be created here.
            self.fresh = not had_store(folder)
            if not self.fresh and _size_bytes(folder) == 0:
                raise StoreError(lost_text(folder))
            self._hold(folder / DATA_NAME, create=create)
            self._sign(_UNFINISHED if self.fresh else b"")
        except BaseException:
            self.release()
            raise

    def finish(self) -> None:
        """Record that the store has all its tables: from now on it is an error if they are missing."""
        self._sign(b"")

    def release(self) -> None:
        for handle in self._handles:
            os.close(handle)
        self._handles.clear()

    def _hold(self, path: Path, *, create: bool) -> None:
        try:
            handle = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
        except OSError as error:
            raise StoreError(f"The data folder {self._folder} cannot be used: {error.strerror}.") from error
        self._handles.append(handle)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._handles[0], 20, 0).decode("ascii", "replace").split()
            raise StoreLockedError(
                f"The data folder {self._folder} is in use by "
                f"{f'process {holder[0]}' if holder and path.name == LOCK_NAME else 'another process'}. "
                "Stop that process, or choose another folder."
            ) from error
        except OSError as error:
            raise StoreError(f"The data folder {self._folder} cannot be locked: {error.strerror}.") from error

    def _sign(self, mark: bytes) -> None:
        """Write the holder's process id into the lock file."""
        signature = str(os.getpid()).encode() + mark
        try:
            os.pwrite(self._handles[0], signature, 0)
            os.ftruncate(self._handles[0], len(signature))
        except OSError:
            pass  # The disk is full: the lock holds all the same, but names no holder.


def _size_bytes(folder: Path) -> int:
    try:
        return (folder / DATA_NAME).stat().st_size
    except FileNotFoundError:
        return 0
