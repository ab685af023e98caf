"""The ledger's files: naming, completion, recovery after a crash, and removal of the oldest.

Rules:
- A file is written with the suffix `.open` and renamed to `.jsonl` when complete; readers read only those.
- Its writer holds an flock, so that nobody mistakes the file of a live process for one left by a crash.
- A write is atomic: a partial write on a full disk is undone.
- No other file of the ledger touches the disk.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

from twinbus.errors import ConfigError
from twinbus.limits import CONFIG_FILE_BYTES_MAX

OPEN = ".open"
COMPLETE = ".jsonl"
SHEET = ".toml"
# A Path keeps one slash of the two, and may be absolute.
STORE_URL = re.compile(r"(?<![^/])(s3a?|abfss?)://?(?=[^/])")
_BLOCK_BYTES = 65_536


class OpenFile:
    """A ledger file that is being written."""

    def __init__(self, folder: Path, stem: str) -> None:
        self._path = folder / (stem + OPEN)
        # Size in bytes; the file always ends with a complete line.
        self.size_bytes = 0
        # A partial line could not be removed, so nothing may be written after it.
        self.spoiled = False
        # Holds the lock, which ends with the process.
        self._handle = os.open(
            self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, mode=0o600
        )
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another process may have seen the file empty before it was locked, and removed it.
            os.stat(self._path)
        except OSError:
            os.close(self._handle)
            raise

    def append(self, data: bytes) -> None:
        """Write all of the data, or raise without having written any."""
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._handle, left) :]
        except OSError:
            try:
                os.ftruncate(self._handle, self.size_bytes)
            except OSError:
                self.spoiled = True
            raise
        self.size_bytes += len(data)

    def complete(self) -> None:
        """Make the file visible to readers, synced so that it survives a power cut."""
        try:
            os.fsync(self._handle)
            os.rename(self._path, self._path.with_suffix(COMPLETE))
        finally:
            os.close(self._handle)

    def give_up(self) -> None:
        """Leave the file as it is; the next start completes it."""
        os.close(self._handle)


class ReadableFile(Protocol):
    """A path of this machine, or a file of an object store."""

    def open(self, mode: Literal["rb"], /) -> BinaryIO: ...


def prepare(folder: Path) -> None:
    """Create the folder, accessible to its owner only."""
    if STORE_URL.search(str(folder)):
        raise ConfigError(f"A ledger is written to a folder of this machine, not to an object store: {folder}.")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def complete_files(folder: Path, prefix: str = "") -> list[Path]:
    """Return the files that may be read, oldest first."""
    return sorted(path for path in folder.glob(f"*{COMPLETE}") if path.name.startswith(prefix))


def open_files(folder: Path) -> list[Path]:
    """Return the files that are being written or were left by a crash."""
    return sorted(folder.glob(f"*{OPEN}"))


def lines(path: ReadableFile, bytes_max: int) -> Iterator[bytes]:
    """Yield a file's lines without line ends; of a line that is too long, only its first `bytes_max` + 1 bytes."""
    with path.open("rb") as file:
        while line := file.readline(bytes_max + 2):
            while not line.endswith(b"\n") and len(line) > bytes_max:
                rest = file.readline(_BLOCK_BYTES)
                if rest.endswith(b"\n") or not rest:
                    break
            yield line[: bytes_max + 1].rstrip(b"\r\n")


def recover(folder: Path) -> list[Path]:
    """Complete files left by crashed writers, without their torn last line; return those that can be read now."""
    recovered = []
    for path in open_files(folder):
        try:
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # another process has just recovered it
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(handle).st_nlink == 0 or not path.exists():
                continue
            if _cut_torn_line(handle):
                os.fsync(handle)
                complete = path.with_suffix(COMPLETE)
                os.rename(path, complete)
                recovered.append(complete)
            else:
                path.unlink()
        except BlockingIOError:
            continue  # its writer is alive
        finally:
            os.close(handle)
    return recovered


def _cut_torn_line(handle: int) -> int:
    """Truncate the file after its last complete line; return its size."""
    size = end = os.fstat(handle).st_size
    while end > 0:
        start = max(0, end - _BLOCK_BYTES)
        at = os.pread(handle, end - start, start).rfind(b"\n")
        if at >= 0:
            end = start + at + 1
            break
        end = start
    if end != size:
        os.ftruncate(handle, end)
    return end


def remove_oldest(folder: Path, prefix: str, total_bytes_max: int) -> list[Path]:
    """Remove complete files, oldest first, until the rest fits; return those removed."""
    sizes: list[tuple[Path, int]] = []
    for path in complete_files(folder, prefix):
        with suppress(FileNotFoundError):
            sizes.append((path, path.stat().st_size))
    total = sum(size for _, size in sizes)
    removed = []
    for path, size in sizes:
        if total <= total_bytes_max:
            break
        path.unlink(missing_ok=True)
        removed.append(path)
        total -= size
    return removed


def sheets() -> dict[str, str]:
    """Return the texts of the bundled price sheets by name."""
    folder = resources.files("twinbus.ledger") / "sheets"
    return {
        each.name.removesuffix(SHEET): each.read_text(encoding="utf-8")
        for each in folder.iterdir()
        if each.name.endswith(SHEET)
    }


def exists(path: str) -> bool:
    return Path(path).exists()


def sheet_text(path: str) -> str:
    """Read a price sheet file."""
    try:
        with open(path, "rb") as file:
            data = file.read(CONFIG_FILE_BYTES_MAX + 1)
        if len(data) > CONFIG_FILE_BYTES_MAX:
            raise ConfigError(
                f"The price sheet {path} is larger than {CONFIG_FILE_BYTES_MAX} bytes: is it the right file?"
            )
        return data.decode()
    except OSError as error:
        raise ConfigError(f"The price sheet {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"The price sheet {path} is not UTF-8: save it as such.") from None
