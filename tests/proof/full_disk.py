"""A disk under a store that becomes full and has room again, over and over.

Promise: after every refusal everything confirmed is there, a refused commit left nothing behind, and the store carries
on when there is room. A limit on the file size simulates the disk, in a separate process.
"""

from __future__ import annotations

import random
import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.proof.crash import Content, found, step
from tests.proof.damage import apart
from tests.proof.disk import DATA
from tests.proof.suite import Budget, Suite
from twinbus.clock import SteppedClock
from twinbus.errors import StoreError
from twinbus.store.lmdb_store import Prepared, Store
from twinbus.store.space import Ballast

RESERVE_BYTES = 1 << 16


def limit(size: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard if size < 0 else size, hard))


def cycle(folder: Path, chance: random.Random, content: Content, number: int) -> tuple[int, int]:
    """Fill the disk, be refused, make room; returns the next number and whether the store stopped."""
    released = Ballast.release
    clock = SteppedClock()
    helps = chance.random() < 0.5

    def release(self: Ballast) -> None:
        released(self)
        if helps:
            # Removing the ballast made room.
            limit(-1)

    Ballast.release = release  # type: ignore[method-assign]
    stopped = 0
    try:
        with Store.open(folder, sync=False, reserve_bytes=RESERVE_BYTES, clock=clock) as store:
            assert found(store)[1] == content, "after the disk was full, the store has not what was confirmed"
            limit((folder / DATA).stat().st_size + chance.choice([0, 4096, 50_000]))
            for _ in range(30):
                after = dict(content)
                facts, next_number = step(chance, after, number)
                number = next_number
                try:
                    store.commit(facts)
                except StoreError:
                    stopped = 1
                    break
                content.clear()
                content.update(after)
                if store.full:
                    limit(-1)
                    clock.step(seconds=2)
                    assert not store.full, "there is room, and the store says full"
                    assert found(store)[1] == content
                    break
            limit(-1)
    finally:
        limit(-1)
        Ballast.release = released  # type: ignore[method-assign]
    return number, stopped


def run(budget: Budget) -> str:
    """Fill the disk and make room again under a store: nothing confirmed is lost, nothing refused stays."""

    def all_cycles() -> dict[str, Any]:
        content: Content = {}
        number, stops = 1, 0
        with tempfile.TemporaryDirectory(prefix="twinbus-full-") as name:
            folder = Path(name) / "data"
            Store.open(folder, sync=False, reserve_bytes=RESERVE_BYTES).close()
            for chance in budget:
                number, stopped = cycle(folder, chance, content, number)
                stops += stopped
                if len(content) > 300:
                    content.clear()
                    folder = Path(name) / str(number)
        return {"stops": stops, "messages": number, "tried": budget.tried}

    told = apart(all_cycles, patience_s=24 * 3600)
    assert "failed" not in told, told["failed"]
    assert "stopped" not in told, told["stopped"]
    budget.tried = told["tried"]
    assert told["stops"] > 0, "the disk was never full"
    return f"{budget.tried:,} cycles, {told['stops']:,} refusals, {told['messages']:,} messages, nothing confirmed lost"


@contextmanager
def planted() -> Iterator[None]:
    """A commit that the disk refused is confirmed."""
    sound = Prepared.commit

    def careless(self: Prepared) -> None:
        try:
            sound(self)
        except StoreError:
            return

    Prepared.commit = careless  # type: ignore[method-assign]
    try:
        yield
    finally:
        Prepared.commit = sound  # type: ignore[method-assign]


SUITE = Suite("cycles", 60, 5_000, run, planted)
