"""Entity ids: numbers in keys, given out in blocks and never used again after deletion.

A block belongs to one entity: the entity itself, its dead-letter queue, its transfer dead-letter queue, one to spare.
"""

from __future__ import annotations

from typing import Final

IDS_PER_ENTITY: Final = 4
MAIN_PART: Final = 0
DEAD_LETTER_PART: Final = 1
TRANSFER_PART: Final = 2
