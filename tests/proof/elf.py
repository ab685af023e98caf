"""Redirects the libc calls of a loaded extension module to our functions, by changing its import table in memory.

The module itself is unchanged, so we see what the real code does. Linux, 64-bit, little-endian.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SUPPORTED = sys.platform == "linux" and sys.maxsize > 2**32 and sys.byteorder == "little"

_LOAD, _DYNAMIC = 1, 2
_STRTAB, _SYMTAB, _RELA, _RELASZ, _PLTRELSZ, _JMPREL = 5, 6, 7, 8, 2, 23
# Relocation types of imported functions on x86-64 and AArch64.
_IMPORTS = {6, 7, 1025, 1026}


def imports(path: Path) -> dict[str, int]:
    """The imported functions of a shared object, and the offset of each one's address from its base."""
    data = path.read_bytes()
    table, size, count = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)
    loads: list[tuple[int, int, int]] = []
    dynamic: dict[int, int] = {}
    for each in range(count):
        kind, _, offset, address, _, length = struct.unpack_from("<IIQQQQ", data, table + each * size)
        if kind == _LOAD:
            loads.append((address, offset, length))
        elif kind == _DYNAMIC:
            dynamic = dict(struct.unpack_from("<qQ", data, offset + at) for at in range(0, length, 16))

    def place(address: int) -> int:
        return next(address - start + offset for start, offset, length in loads if start <= address < start + length)

    symbols, strings = place(dynamic[_SYMTAB]), place(dynamic[_STRTAB])
    found: dict[str, int] = {}
    for start, length in ((_JMPREL, _PLTRELSZ), (_RELA, _RELASZ)):
        for at in range(0, dynamic.get(length, 0), 24):
            address, info = struct.unpack_from("<QQ", data, place(dynamic[start]) + at)
            if info & 0xFFFFFFFF in _IMPORTS:
                name = strings + struct.unpack_from("<I", data, symbols + (info >> 32) * 24)[0]
                found[data[name : data.index(b"\0", name)].decode()] = address
    return found


def base_of(path: Path) -> int:
    for line in Path("/proc/self/maps").read_text().splitlines():
        words = line.split()
        if words[-1] == str(path) and int(words[2], 16) == 0:
            return int(words[0].partition("-")[0], 16)
    raise AssertionError(f"{path} is not loaded")


@contextmanager
def replaced(path: Path, functions: dict[str, Callable[..., Any]]) -> Iterator[None]:
    """Make a loaded module call these functions, each a ctypes callback, instead of libc's for the time of a `with`."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    base, places = base_of(path), imports(path)
    slots = []
    for name, function in functions.items():
        if name in places:
            address = base + places[name]
            page = address & -mmap.PAGESIZE
            assert libc.mprotect(page, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE) == 0
            slot = ctypes.c_void_p.from_address(address)
            slots.append((slot, slot.value))
            slot.value = ctypes.cast(function, ctypes.c_void_p).value
    try:
        yield
    finally:
        for slot, value in slots:
            slot.value = value
