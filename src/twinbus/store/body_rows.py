"""Bodies as rows: a checksum, then the bytes of the message.

Sealing and checking bodies is most of the store's work per message, so the compiled build compiles this file.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Final

from twinbus.errors import DamagedBodyError

_CHECKSUM_BYTES: Final = 4

_key = struct.Struct(">Q").pack
_checksum = struct.Struct(">I").pack
_checksum_of = struct.Struct(">I").unpack_from
_crc32 = zlib.crc32


def sealed_body(stored: bytes) -> bytes:
    """Return the stored form of a body."""
    return _checksum(_crc32(stored)) + stored


def sealed_bodies(bodies: dict[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    """Seal many bodies without a call for each; the rows keep their order."""
    crc32, checksum = _crc32, _checksum
    return [(key, checksum(crc32(stored)) + stored) for key, stored in bodies.items()]


def read_bodies(get: Callable[[bytes], bytes | None], numbers: Sequence[int]) -> list[bytes]:
    """Read the bytes of many messages and verify their checksums."""
    crc32, checksum_of, key = _crc32, _checksum_of, _key
    found: list[bytes] = []
    for number in numbers:
        value = get(key(number))
        if value is None:
            raise DamagedBodyError(f"Body {number} is not in the store.")
        if len(value) < _CHECKSUM_BYTES:
            raise DamagedBodyError(f"Body {number} is truncated.")
        stored = value[_CHECKSUM_BYTES:]
        if crc32(stored) != checksum_of(value)[0]:
            raise DamagedBodyError(f"Body {number} does not match its checksum.")
        found.append(stored)
    return found
