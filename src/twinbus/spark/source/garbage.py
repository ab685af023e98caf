"""Python's collector, looking seldom while messages become rows or rows become messages.

Rules:
- Messages and rows make no cycles: what the collector looks for is not there, and it looks after every 700 objects. In
  a worker that Spark has just forked it also makes copies of all memory it touches.
- It is not turned off: should something else make cycles, they are found, only later.
- It is the process's own again afterwards.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# More than a batch of rows and the messages on their way have together.
YOUNG_OBJECTS: Final = 50_000


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Within the block the collector looks only when there are many new objects."""
    before = gc.get_threshold()
    # Zero is how others turn it off, and they know why.
    if 0 < before[0] < YOUNG_OBJECTS:
        gc.set_threshold(YOUNG_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
