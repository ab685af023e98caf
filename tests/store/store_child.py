"""Runs in a separate process for the tests of crashes and full disks: `python store_child.py <what> <folder>`."""

from __future__ import annotations

import os
import resource
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from store_rows import completes, sends, stored, updates

from twinbus.clock import SteppedClock
from twinbus.errors import StoreError
from twinbus.store.facts import Table
from twinbus.store.lmdb_store import Store
from twinbus.store.space import Ballast

BATCH = 7


def commits(folder: Path) -> None:
    """Commit forever; print each batch number once it is durable. Every third batch deletes an earlier one."""
    store = Store.open(folder, reserve_bytes=0)
    batch = int(store.get(Table.META, b"batch") or b"0")
    with ThreadPoolExecutor(1) as worker:
        while True:
            batch += 1
            facts = sends(range(batch * BATCH, (batch + 1) * BATCH))
            if batch % 3 == 0:
                gone = batch - 2
                completes(range(gone * BATCH, (gone + 1) * BATCH), facts)
            facts.rows[Table.META, b"batch"] = b"%d" % batch
            worker.submit(store.begin(facts).commit).result()
            sys.stdout.write(f"{batch}\n")
            sys.stdout.flush()


def fill_disk(path: Path) -> None:
    """Use up all remaining space."""
    with open(path, "ab", buffering=0) as file:
        for size in (1 << 16, 4096):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                pass


def full_disk(folder: Path) -> None:
    """Fill a small disk completely."""
    clock = SteppedClock()
    data = folder / "data"
    filler = folder / "filler"
    store = Store.open(data, reserve_bytes=1 << 20, clock=clock)
    store.commit(sends(range(1000)))
    assert not store.full
    assert (data / "ballast").exists()

    fill_disk(filler)
    store.commit(sends(range(1000, 1300)))  # refused, then retried with the ballast released
    assert store.full
    assert not (data / "ballast").exists()
    clock.step(seconds=1)
    assert store.full
    for first in range(0, 900, 10):
        store.commit(updates(range(first, first + 10), 5))
        store.commit(completes(range(first, first + 10)))
    assert store.full
    filler.unlink()
    clock.step(ms=999)
    assert store.full
    clock.step(ms=1)
    assert not store.full
    assert (data / "ballast").exists()
    store.commit(sends(range(1300, 2000)))
    assert stored(store) == list(range(900, 2000))

    fill_disk(filler)
    first = 2000
    while (data / "ballast").exists():
        store.commit(sends(range(first, first + 100)))
        first += 100
    fill_disk(filler)
    with pytest.raises(StoreError, match="cannot write"):
        store.commit(sends(range(first, first + 1000)))
    with pytest.raises(StoreError, match="cannot write"):
        store.commit(completes([first - 1]))
    assert stored(store) == list(range(900, first))
    store.close()

    store = Store.open(data, reserve_bytes=1 << 20, clock=clock)
    assert store.full
    assert stored(store) == list(range(900, first))
    filler.unlink()
    clock.step(seconds=1)
    assert not store.full
    store.commit(sends(range(first, first + 100)))
    assert stored(store) == list(range(900, first + 100))
    print("done")


def drained_disk(folder: Path) -> None:
    """The disk stays full but the store is emptied: sends are accepted again, and fit."""
    clock = SteppedClock()
    data = folder / "data"
    store = Store.open(data, reserve_bytes=1 << 18, clock=clock)
    number = 0
    while not store.full:
        store.commit(sends(range(number, number + 100)))
        number += 100
    fill_disk(folder / "filler")
    while (data / "ballast").exists():  # commits in progress when the disk filled up
        store.commit(sends(range(number, number + 100)))
        number += 100
    for first in range(0, number, 100):
        store.commit(completes(range(first, first + 100)))
    clock.step(seconds=1)
    assert not store.full
    sent = number
    while not store.full:
        store.commit(sends(range(sent, sent + 100)))
        sent += 100
    assert sent - number > 1000
    assert stored(store) == list(range(number, sent))
    print("done")


def limited_file(folder: Path) -> None:
    """A limit on the file's size refuses writes like a full disk, and needs no privileges."""
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(extra: int) -> None:
        size = (folder / "data.mdb").stat().st_size + extra
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, unlimited[1]))

    released = Ballast.release

    def release(self: Ballast) -> None:
        released(self)
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)

    clock = SteppedClock()
    store = Store.open(folder, reserve_bytes=1 << 16, clock=clock)
    store.commit(sends(range(100)))
    Ballast.release = release  # type: ignore[method-assign]
    for extra in (0, 5000, 100_000):  # refused at once, after one page, after several pages
        limit(extra)
        first = len(stored(store))
        with ThreadPoolExecutor(1) as worker:
            prepared = store.begin(sends(range(first, first + 500)))
            running = worker.submit(prepared.commit)
            while not running.done():
                assert stored(store)[:first] == list(range(first))
            running.result()
        assert store.full
        assert stored(store) == list(range(first + 500))
        clock.step(seconds=1)
        assert not store.full
    Ballast.release = released  # type: ignore[method-assign]
    limit(0)
    before = stored(store)
    with pytest.raises(StoreError, match="cannot write"):
        store.commit(sends(range(10_000, 10_500)))
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    with pytest.raises(StoreError, match="cannot write"):
        store.commit(sends([10_000]))
    assert stored(store) == before
    store.close()
    with Store.open(folder, reserve_bytes=1 << 16) as store:
        assert stored(store) == before
        store.commit(sends([10_000]))
        assert stored(store) == [*before, 10_000]
    print("done")


if __name__ == "__main__":
    os.umask(0o077)
    {
        "commits": commits,
        "full_disk": full_disk,
        "drained_disk": drained_disk,
        "limited_file": limited_file,
    }[sys.argv[1]](Path(sys.argv[2]))
