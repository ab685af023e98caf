"""Rows whose content derives from their number, so that a reader knows what to expect."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from pathlib import Path

from twinbus.clock import SteppedClock
from twinbus.store.facts import Facts, Table, body_key, index_key
from twinbus.store.lmdb_store import Store


def content(number: int, size: int = 1024) -> bytes:
    """Return the body of this number; no two are alike."""
    seed = zlib.crc32(body_key(number)).to_bytes(4, "big") + body_key(number)
    return (seed * (size // len(seed) + 1))[:size]


def sends(numbers: Iterable[int], size: int = 1024) -> Facts:
    """Add messages: a body and an index row each."""
    facts = Facts()
    for number in numbers:
        facts.bodies[body_key(number)] = content(number, size)
        facts.index[index_key(1, number)] = b"\x00" + body_key(number)
    return facts


def completes(numbers: Iterable[int], facts: Facts | None = None) -> Facts:
    """Remove messages, optionally together with other facts."""
    facts = facts or Facts()
    for number in numbers:
        facts.delete(Table.BODIES, body_key(number))
        facts.delete(Table.INDEX, index_key(1, number))
    return facts


def updates(numbers: Iterable[int], mark: int) -> Facts:
    """Change index rows, as when a delivery is counted."""
    facts = Facts()
    for number in numbers:
        facts.index[index_key(1, number)] = mark.to_bytes(1, "big") + body_key(number)
    return facts


def body_of(value: bytes) -> int:
    """Return the body number in an index row."""
    return int.from_bytes(value[1:9], "big")


def stored(store: Store) -> list[int]:
    """Return the numbers of all messages after verifying each body."""
    with store.snapshot():
        numbers = [body_of(value) for _, value in store.scan(Table.INDEX)]
        for number, body in zip(numbers, store.bodies(numbers), strict=True):
            assert body == content(number, len(body)), f"body {number} is another's"
        bodies = [int.from_bytes(key, "big") for key, _ in store.scan(Table.BODIES)]
    assert bodies == sorted(numbers)
    return numbers


def small_store(folder: Path, clock: SteppedClock | None = None, **options: int) -> Store:
    """Open a store that is full at one megabyte."""
    return Store.open(folder, sync=False, clock=clock, **{"map_bytes": 1 << 20, "reserve_bytes": 1 << 16, **options})
