"""Process-wide settings that suit a broker; only `twinbus serve` applies them, never an embedded broker."""

from __future__ import annotations

import ctypes
import gc
import sys

# Collect young objects rarely (it takes about 5 ms): the message path makes no cycles, and a full collection over a
# million queued messages would stop the loop for hundreds of milliseconds.
GC_THRESHOLDS = (10_000, 1_000, 1_000)

# A commit thread returning from the disk waits at most this long for the interpreter lock; the default of 5 ms would be
# the longer part of a commit.
SWITCH_INTERVAL_S = 0.0005

# Free memory that glibc keeps at the end of the heap, and the size from which a block is returned as soon as it is
# free. By default glibc returns the memory of every few 64 KB messages to the system, and each page fetched anew is a
# page fault: half the CPU time of such messages.
HEAP_FREE_BYTES = 16 * 1024 * 1024
BLOCK_RETURNED_BYTES = 4 * 1024 * 1024
# Their numbers in malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def spare_recovery() -> None:
    """Call before recovery: a garbage collection finds nothing while a million messages are restored."""
    gc.disable()


def tune_process() -> None:
    """Call after recovery and before the first client connects."""
    # What recovery built stays alive: the collector need not look at it again.
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    _keep_freed_memory()


def _keep_freed_memory() -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    # Other C libraries do not have it.
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, HEAP_FREE_BYTES)
        mallopt(_M_MMAP_THRESHOLD, BLOCK_RETURNED_BYTES)
