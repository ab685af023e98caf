"""Decide when to refuse sends, so that everything else still fits on the disk and in the map.

A ballast file reserves `reserve_bytes` of the disk. When the disk refuses a write, the ballast is released, so that the
commit, and the completes and deletes that free space, still fit. LMDB's file never shrinks, but its freed pages are
reused: the room left is the disk's free space plus the free space inside the file.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

from twinbus.clock import Clock
from twinbus.limits import STORE_SPACE_CHECK_MS
from twinbus.store.folder import BALLAST_NAME

logger = logging.getLogger(__name__)


class Ballast:
    """A file that reserves disk space until it is needed."""

    def __init__(self, folder: Path, size_bytes: int) -> None:
        self._path = folder / BALLAST_NAME
        # 0 turns the ballast off.
        self._size_bytes = size_bytes
        # Whether the space is reserved now.
        self.present = size_bytes == 0 or self._stands()

    def make(self) -> bool:
        """Reserve the space; return False if the disk is too full."""
        if self.present:
            return True
        try:
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                _allocate(handle, self._size_bytes)
            finally:
                os.close(handle)
        except OSError:
            self.release()
            return False
        self.present = True
        return True

    def release(self) -> None:
        """Return the space to the disk."""
        if self._size_bytes == 0:
            return
        self.present = False
        self._path.unlink(missing_ok=True)

    def _stands(self) -> bool:
        try:
            # Count blocks, not length: a file truncated by a full disk or copied as sparse reserves nothing.
            return self._path.stat().st_blocks * 512 >= self._size_bytes
        except OSError:
            return False


def _allocate(handle: int, size_bytes: int) -> None:
    """Allocate real blocks to a file."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, size_bytes)
        return
    zeros = bytes(1024 * 1024)  # macOS has no posix_fallocate
    for offset in range(0, size_bytes, len(zeros)):
        os.pwrite(handle, zeros[: size_bytes - offset], offset)


class Space:
    """Decides when the store is full.

    `judge` runs on the figures of the last commit, once a second or whenever a quarter of the reserve has been written.
    """

    def __init__(
        self,
        folder: Path,
        *,
        map_bytes: int,
        reserve_bytes: int,
        clock: Clock,
        available: Callable[[], int] | None = None,
    ) -> None:
        # The map counts as full at this many used bytes. LMDB's own map is larger, as some work continues when full.
        self._map_bytes = map_bytes
        # The size of the ballast, and the free space below which the disk counts as full.
        self._reserve_bytes = reserve_bytes
        self._clock = clock
        self._ballast = Ballast(folder, reserve_bytes)
        # Returns the free space on the disk; tests pass their own.
        self._available = available or _DiskOf(folder)
        # Since the last `judge`.
        self._written_bytes = 0
        # Time of the last `judge`.
        self._judged_ms = 0
        # Free space inside the file at the last `judge`.
        self._free_bytes = 0
        # Without ballast: the free space inside the file that is needed before sends are accepted again.
        self._free_bytes_wanted = 4 * reserve_bytes
        # Whether to refuse sends.
        self.full = False

    def wrote(self, count: int) -> None:
        self._written_bytes += count

    @property
    def due(self) -> bool:
        """Whether to judge again. Once full, only time counts, so that the state does not flicker."""
        if not self.full and 0 < self._reserve_bytes < 4 * self._written_bytes:
            return True
        waited_ms = self._clock.now_ms() - self._judged_ms
        return waited_ms >= STORE_SPACE_CHECK_MS or waited_ms < 0

    def judge(self, used_bytes: int, file_bytes: int) -> None:
        """Set `full` anew. `used_bytes` are live; `file_bytes` also include the free space inside the file."""
        self._written_bytes = 0
        self._judged_ms = self._clock.now_ms()
        reserve_bytes = self._reserve_bytes
        free_bytes = self._free_bytes = max(file_bytes - used_bytes, 0)
        available_bytes = self._available()
        if not self._ballast.present and available_bytes >= 2 * reserve_bytes and self._ballast.make():
            available_bytes -= reserve_bytes
        if self._ballast.present:
            disk_full = available_bytes + free_bytes < reserve_bytes
        else:
            disk_full = free_bytes < self._free_bytes_wanted
        map_full = used_bytes >= self._map_bytes
        full = disk_full or map_full
        if full and not self.full:
            what = "disk" if disk_full else "map"
            logger.warning("the %s of the store is full: sends are refused until space is freed", what)
        elif self.full and not full:
            logger.warning("the store has room again: sends are accepted")
        self.full = full

    def refused(self) -> None:
        """The disk refused a write: release the ballast and refuse sends."""
        had_ballast = self._ballast.present
        self._ballast.release()
        # The write needed the disk although this much was free in the file, perhaps in pieces too small for a large
        # body. So require that much and four reserves more before accepting sends again.
        self._free_bytes_wanted = self._free_bytes + 4 * self._reserve_bytes
        self._judged_ms = self._clock.now_ms()
        self.full = True
        logger.warning("the disk refused a write%s", "; its ballast was released" if had_ballast else "")


class _DiskOf:
    """Free space for an ordinary user on the disk that holds a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self) -> int:
        disk = os.statvfs(self._folder)
        return disk.f_bavail * disk.f_frsize
