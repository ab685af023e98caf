"""Entity ids: numbers used in keys, handed out in blocks and never reused.

A block holds the ids of the entity, its dead-letter queue and its transfer dead-letter queue, plus one spare.
"""

from __future__ import annotations

from typing import Final

IDS_PER_ENTITY: Final = 4
MAIN_PART: Final = 0
DEAD_LETTER_PART: Final = 1
TRANSFER_PART: Final = 2
