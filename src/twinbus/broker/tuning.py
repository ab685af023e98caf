"""Settings of the whole process that suit a broker; only `twinbus serve` makes them, never an embedded broker."""

from __future__ import annotations

import gc
import sys

# The collector looks at young objects only this often, which takes about 5 ms: the message path makes no cycles, and a
# full collection over a million queued messages would stop the loop for hundreds of milliseconds.
GC_THRESHOLDS = (50_000, 200, 1_000)

# A commit thread that comes back from the disk waits at most this long for the interpreter: the default of 5 ms would
# be the longer part of a commit.
SWITCH_INTERVAL_S = 0.0005


def spare_recovery() -> None:
    """Call it before anything is recovered: collecting while a million messages are read back finds nothing."""
    gc.disable()


def tune_process() -> None:
    """Call it once everything is recovered and before the first client comes."""
    # Whatever recovery built lives on: the collector need not look at it again.
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
