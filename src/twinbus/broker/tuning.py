"""Process-wide settings that suit a broker; only `twinbus serve` applies them, never an embedded broker."""

from __future__ import annotations

import gc
import sys

# Collect young objects rarely (it takes about 5 ms): the message path makes no cycles, and a full collection over a
# million queued messages would stop the loop for hundreds of milliseconds.
GC_THRESHOLDS = (50_000, 200, 1_000)

# A commit thread returning from the disk waits at most this long for the interpreter lock; the default of 5 ms would be
# the longer part of a commit.
SWITCH_INTERVAL_S = 0.0005


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
