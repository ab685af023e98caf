"""Makes Python's garbage collector run rarely while messages are converted to rows or back.

- Messages and rows form no cycles, so there is nothing to collect, yet the collector runs after every 700 new objects.
  In a freshly forked worker it also copies every memory page it touches.
- It is not disabled: cycles made by other code are found, only later.
- The process's settings are restored afterwards.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# More than the objects of a batch of rows and the messages in flight.
YOUNG_OBJECTS: Final = 50_000


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Within the block, collect only after many new objects."""
    before = gc.get_threshold()
    # Zero means that somebody disabled it on purpose.
    if 0 < before[0] < YOUNG_OBJECTS:
        gc.set_threshold(YOUNG_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
