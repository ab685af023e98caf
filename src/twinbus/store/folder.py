"""The data folder: who holds it, and how it comes into being.

One process holds a folder at a time, by an flock that the kernel drops when the process dies, however it dies.
The lock file stays behind: removing it would let two processes lock two files of the same name.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from twinbus.errors import StoreError, StoreLockedError

LOCK_NAME = "lock"
DATA_NAME = "data.mdb"


def prepare(folder: Path) -> None:
    """Create the folder, for its owner only and so that it survives a power cut. An existing one is left as it is."""
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


class FolderLock:
    """Holds a data folder for this process until released."""

    def __init__(self, folder: Path) -> None:
        # The open lock file, -1 when released.
        self._handle = -1
        try:
            handle = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreError(f"The data folder {folder} cannot be used: {error.strerror}.") from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(handle, 20, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(handle)
            raise StoreLockedError(
                f"The data folder {folder} is in use by process {holder}. Stop that process, or choose another folder."
            ) from error
        except OSError as error:
            os.close(handle)
            raise StoreError(f"The data folder {folder} cannot be locked: {error.strerror}.") from error
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
        except OSError:
            pass  # A full disk: the lock holds all the same, only the holder's number is not told.
        self._handle = handle

    def release(self) -> None:
        if self._handle != -1:
            os.close(self._handle)
            self._handle = -1
