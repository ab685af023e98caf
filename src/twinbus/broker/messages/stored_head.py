"""The fixed-size head of a stored message, before the sender's annotations and the tail."""

from __future__ import annotations

from struct import Struct

# version, flags, priority (255 = absent), ttl (all ones = absent), message annotation pairs and
# their bytes, delivery annotation pairs and their bytes
HEAD = Struct(">BBBIHIHI")
HEAD_BYTES = HEAD.size
VERSION = 1
# The two lowest flag bits are durable: 0, 1, or 2 for absent.
DURABLE_MASK = 0x03
DURABLE_ABSENT = 2
# The sender set first-acquirer; it set it to true.
FIRST_GIVEN = 0x04
FIRST_TRUE = 0x08
# The time to live does not fit into the header: all ones there, and the difference of the two times counts.
TTL_LONG = 0x10
# It was scheduled when it was sent.
WAS_SCHEDULED = 0x20
PRIORITY_ABSENT = 255
TTL_ABSENT = 0xFFFFFFFF
