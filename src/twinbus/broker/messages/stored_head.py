"""The head of a message on disk: what is fixed in size, before the sender's annotations and the tail."""

from __future__ import annotations

from struct import Struct

# version, flags, priority (255 = absent), ttl (all ones = absent), message annotation pairs and
# their bytes, delivery annotation pairs and their bytes
HEAD = Struct(">BBBIHIHI")
HEAD_BYTES = HEAD.size
VERSION = 1
# The two lowest of the flags are durable: 0, 1, 2 = absent.
DURABLE_MASK = 0x03
DURABLE_ABSENT = 2
# The sender said something of first-acquirer; it said true.
FIRST_GIVEN = 0x04
FIRST_TRUE = 0x08
# The time to live is too long for the header: all ones there, and the two times tell.
TTL_LONG = 0x10
# It was scheduled when it came.
WAS_SCHEDULED = 0x20
PRIORITY_ABSENT = 255
TTL_ABSENT = 0xFFFFFFFF
