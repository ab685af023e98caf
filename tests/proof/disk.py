"""Records what LMDB asks the operating system to write and to sync, call by call, and derives the disks after a crash.

A write is on the disk after the next sync of the file, or when it returns if the file was opened to sync each write.
Until then a power cut may leave any part of it, in sectors of 512 bytes.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lmdb.cpython

from tests.proof.elf import replaced

SECTOR = 512
DATA = "data.mdb"

_size, _long, _int, _pointer = ctypes.c_ssize_t, ctypes.c_long, ctypes.c_int, ctypes.c_void_p


@dataclass(frozen=True)
class Call:
    """One call: a write of some bytes, a truncation or extension, or a sync if there are no bytes."""

    offset: int = 0
    data: bytes | None = None
    # The new length after ftruncate.
    length: int | None = None
    # Whether the write is on disk when it returns.
    durable: bool = False


@dataclass
class Trace:
    """The calls on one file since it had its first content."""

    start: bytes
    calls: list[Call] = field(default_factory=list)


def applied(image: bytearray, call: Call, sectors: Iterator[bool] | None = None) -> None:
    """Apply a call to an image of the file; with `sectors`, only those sectors of a write that it selects."""
    if call.length is not None:
        del image[call.length :]
        image += bytes(call.length - len(image))
    if call.data is None:
        return
    end = call.offset + len(call.data)
    if len(image) < end:
        image += bytes(end - len(image))
    at = call.offset
    while at < end:
        until = min((at // SECTOR + 1) * SECTOR, end)
        if sectors is None or next(sectors):
            image[at:until] = call.data[at - call.offset : until - call.offset]
        at = until


def crashed(before: bytes, pending: list[Call], kind: int, chance: random.Random) -> bytes:
    """The file after a crash with these calls unsynced: none of them done, all, some whole ones, or torn ones."""
    image = bytearray(before)
    for call in pending:
        if kind == 1 or (kind == 2 and chance.random() < 0.5):
            applied(image, call)
        elif kind == 3:
            applied(image, call, iter(lambda: chance.random() < 0.5, None))
    return bytes(image)


@contextmanager
def recorded(folder: Path) -> Iterator[Trace]:
    """Record LMDB's calls on the file in a folder."""
    path = folder / DATA
    trace = Trace(path.read_bytes())
    libc = ctypes.CDLL(None, use_errno=True)

    def ours(number: int) -> bool:
        return os.readlink(f"/proc/self/fd/{number}") == str(path)

    def told(name: str, result: Any, *kinds: Any) -> tuple[Any, Any]:
        real = getattr(libc, name)
        real.restype, real.argtypes = result, kinds
        return real, ctypes.CFUNCTYPE(result, *kinds, use_errno=True)

    def noted(number: int, offset: int, data: bytes) -> None:
        if data and ours(number):
            trace.calls.append(Call(offset, data, durable=bool(fcntl.fcntl(number, fcntl.F_GETFL) & os.O_DSYNC)))

    def gathered(vector: int, count: int, length: int) -> bytes:
        pairs = (ctypes.c_size_t * (2 * count)).from_address(vector)
        return b"".join(ctypes.string_at(pairs[at], pairs[at + 1]) for at in range(0, 2 * count, 2))[:length]

    pwrite, pwrite_kind = told("pwrite", _size, _int, _pointer, _size, _long)
    pwritev, pwritev_kind = told("pwritev", _size, _int, _pointer, _int, _long)
    write, write_kind = told("write", _size, _int, _pointer, _size)
    writev, writev_kind = told("writev", _size, _int, _pointer, _int)
    ftruncate, ftruncate_kind = told("ftruncate", _int, _int, _long)

    def on_pwrite(number: int, data: int, size: int, offset: int) -> int:
        done: int = pwrite(number, data, size, offset)
        noted(number, offset, ctypes.string_at(data, max(done, 0)))
        return done

    def on_pwritev(number: int, vector: int, count: int, offset: int) -> int:
        done: int = pwritev(number, vector, count, offset)
        noted(number, offset, gathered(vector, count, max(done, 0)))
        return done

    def on_write(number: int, data: int, size: int) -> int:
        offset = os.lseek(number, 0, os.SEEK_CUR) if ours(number) else 0
        done: int = write(number, data, size)
        noted(number, offset, ctypes.string_at(data, max(done, 0)))
        return done

    def on_writev(number: int, vector: int, count: int) -> int:
        offset = os.lseek(number, 0, os.SEEK_CUR) if ours(number) else 0
        done: int = writev(number, vector, count)
        noted(number, offset, gathered(vector, count, max(done, 0)))
        return done

    def on_ftruncate(number: int, length: int) -> int:
        done: int = ftruncate(number, length)
        if done == 0 and ours(number):
            trace.calls.append(Call(length=length))
        return done

    def syncing(name: str) -> Any:
        real, kind = told(name, _int, _int)

        def on_sync(number: int) -> int:
            done: int = real(number)
            if done == 0 and ours(number):
                trace.calls.append(Call())
            return done

        return kind(on_sync)

    functions = {
        "pwrite": pwrite_kind(on_pwrite),
        "pwrite64": pwrite_kind(on_pwrite),
        "pwritev": pwritev_kind(on_pwritev),
        "write": write_kind(on_write),
        "writev": writev_kind(on_writev),
        "ftruncate": ftruncate_kind(on_ftruncate),
        "fdatasync": syncing("fdatasync"),
        "fsync": syncing("fsync"),
    }
    with replaced(Path(lmdb.cpython.__file__), functions):
        yield trace
