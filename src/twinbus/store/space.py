"""Room on the disk and in the map: when to refuse sends so that everything else can go on.

A ballast file holds back `reserve_bytes` of the disk. When the disk refuses a write the ballast is given up, so that
the commit, and the completes and deletes that free space, still fit. LMDB's file never shrinks, but pages freed in it
are used again: room is what the disk has plus what lies free inside the file.
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
    """A file that holds disk space back until it is needed."""

    def __init__(self, folder: Path, size_bytes: int) -> None:
        # Where it lies.
        self._path = folder / BALLAST_NAME
        # How much it holds back; 0 turns it off.
        self._size_bytes = size_bytes
        # Whether the space is held back now.
        self.present = size_bytes == 0 or self._stands()

    def make(self) -> bool:
        """Hold the space back; False when the disk does not give it."""
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
        """Give the space back to the disk."""
        if self._size_bytes == 0:
            return
        self.present = False
        self._path.unlink(missing_ok=True)

    def _stands(self) -> bool:
        try:
            # Blocks, not length: a file cut short by a full disk or copied sparse holds nothing back.
            return self._path.stat().st_blocks * 512 >= self._size_bytes
        except OSError:
            return False


def _allocate(handle: int, size_bytes: int) -> None:
    """Give a file real blocks."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, size_bytes)
        return
    zeros = bytes(1024 * 1024)  # macOS has no such call
    for offset in range(0, size_bytes, len(zeros)):
        os.pwrite(handle, zeros[: size_bytes - offset], offset)


class Space:
    """Decides when the store is full.

    `judge` is called with the figures of the last commit, once a second or once a quarter of the reserve is written.
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
        # Used bytes from which the map counts as full. LMDB's own map is larger: what goes on while full needs room.
        self._map_bytes = map_bytes
        # What the ballast holds back, and the room below which the disk counts as full.
        self._reserve_bytes = reserve_bytes
        # Time of the checks.
        self._clock = clock
        # The space held back on the disk.
        self._ballast = Ballast(folder, reserve_bytes)
        # How much the disk still has; a test passes its own.
        self._available = available or _DiskOf(folder)
        # Bytes written since the last judgement.
        self._written_bytes = 0
        # When the last judgement was made.
        self._judged_ms = 0
        # How much lay free inside the file at the last judgement.
        self._free_bytes = 0
        # Without ballast: how much must lie free inside the file before sends are taken again.
        self._free_bytes_wanted = 4 * reserve_bytes
        # Whether sends are to be refused.
        self.full = False

    def wrote(self, count: int) -> None:
        self._written_bytes += count

    @property
    def due(self) -> bool:
        """Whether it is time to judge again. Once full, only time brings relief: it must not flicker."""
        if not self.full and 0 < self._reserve_bytes < 4 * self._written_bytes:
            return True
        waited_ms = self._clock.now_ms() - self._judged_ms
        return waited_ms >= STORE_SPACE_CHECK_MS or waited_ms < 0

    def judge(self, used_bytes: int, file_bytes: int) -> None:
        """Set `full` anew: `used_bytes` are live, `file_bytes` are live or free inside the file."""
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
        """The disk refused a write: give up the ballast and refuse sends."""
        had_ballast = self._ballast.present
        self._ballast.release()
        # The disk was asked although this much lay free in the file, perhaps in pieces too small for a large body: only
        # that much and four reserves more is room again.
        self._free_bytes_wanted = self._free_bytes + 4 * self._reserve_bytes
        self._judged_ms = self._clock.now_ms()
        self.full = True
        logger.warning("the disk refused a write%s", "; its ballast was released" if had_ballast else "")


class _DiskOf:
    """How much an ordinary user may still write to the disk a folder lies on."""

    def __init__(self, folder: Path) -> None:
        # Any path on that disk.
        self._folder = folder

    def __call__(self) -> int:
        disk = os.statvfs(self._folder)
        return disk.f_bavail * disk.f_frsize
