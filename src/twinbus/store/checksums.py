"""Checksums of rows: a changed bit in a key or a value is noticed, not believed.

A row of any table but BODIES is stored as its value and four bytes behind it, over key and value together. A row that
does not match them reads as `DAMAGED`, which is no record of anything: whoever reads it sets it aside and names it,
and the rows around it are read as usual. Bodies have a checksum of their own, before the bytes, and are refused one by
one when they are read.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Final

from twinbus.store.facts import DAMAGED

CHECKSUM_BYTES: Final = 4

# The checksum of anything that ends in its own checksum, lowest byte first: with it, checking a row takes no slices.
_RESIDUE: Final = 0x2144DF1C

_pack = struct.Struct("<I").pack
_crc32 = zlib.crc32


def sealed(key: bytes, value: bytes) -> bytes:
    """What is stored for a row."""
    return value + _pack(_crc32(value, _crc32(key)))


def sealed_rows(rows: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The same for many rows, without a call for each."""
    crc32, pack = _crc32, _pack
    return [(key, value + pack(crc32(value, crc32(key)))) for key, value in rows]


def unsealed(key: bytes, stored: bytes) -> bytes:
    """The value of a row, or DAMAGED."""
    return stored[:-CHECKSUM_BYTES] if _crc32(stored, _crc32(key)) == _RESIDUE else DAMAGED


def unsealed_rows(rows: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """The same for many rows: recovery reads a million of them."""
    crc32, residue = _crc32, _RESIDUE
    for key, stored in rows:
        yield key, stored[:-4] if crc32(stored, crc32(key)) == residue else DAMAGED
