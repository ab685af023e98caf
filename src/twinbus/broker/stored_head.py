"""The head of a message on disk: what is fixed in size, before the sender's annotations and the tail."""

from __future__ import annotations

from struct import Struct

# version, durable (0, 1, 2 = absent), priority (255 = absent), ttl (all ones = absent), message annotation pairs and
# their bytes, delivery annotation pairs and their bytes
HEAD = Struct(">BBBIHIHI")
HEAD_BYTES = HEAD.size
VERSION = 1
DURABLE_ABSENT = 2
PRIORITY_ABSENT = 255
TTL_ABSENT = 0xFFFFFFFF
