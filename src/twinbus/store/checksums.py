"""Row checksums: detect a changed bit in a key or a value.

A row of any table but BODIES is stored as its value followed by a four-byte checksum of key and value. A row that does
not match its checksum reads as `DAMAGED`, which is no valid record: readers set it aside and report it, and read the
rows around it as usual. Bodies carry their own checksum in front of the bytes and are refused one by one when read.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Final

from twinbus.store.facts import DAMAGED

CHECKSUM_BYTES: Final = 4

# The CRC of any data followed by its own CRC (little-endian); with it, verifying a row needs no slicing.
_RESIDUE: Final = 0x2144DF1C

_pack = struct.Struct("<I").pack
_crc32 = zlib.crc32


def sealed(key: bytes, value: bytes) -> bytes:
    """Return the stored form of a row's value."""
    return value + _pack(_crc32(value, _crc32(key)))


def sealed_rows(rows: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Seal many rows without a call for each."""
    crc32, pack = _crc32, _pack
    return [(key, value + pack(crc32(value, crc32(key)))) for key, value in rows]


def unsealed(key: bytes, stored: bytes) -> bytes:
    """Return the value of a row, or DAMAGED."""
    return stored[:-CHECKSUM_BYTES] if _crc32(stored, _crc32(key)) == _RESIDUE else DAMAGED


def unsealed_rows(rows: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """Unseal many rows without a call for each: recovery reads a million of them."""
    crc32, residue = _crc32, _RESIDUE
    for key, stored in rows:
        yield key, stored[:-4] if crc32(stored, crc32(key)) == residue else DAMAGED
