"""A full map and a full disk: sends are refused, everything else continues, and nothing confirmed is lost."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import lmdb
import pytest
from store_rows import completes, sends, small_store, stored, updates

from twinbus.clock import SteppedClock
from twinbus.errors import StoreError
from twinbus.store.lmdb_store import Store

CHILD = Path(__file__).with_name("store_child.py")


def send_until_full(store: Store, number: int = 0) -> int:
    while not store.full:
        store.commit(sends(range(number, number + 10)))
        number += 10
        assert number < 10_000
    return number


def test_full_map_takes_everything_but_sends_and_recovers(tmp_path: Path) -> None:
    clock = SteppedClock()
    with small_store(tmp_path, clock) as store:
        count = send_until_full(store)
        assert 600 < count < 900  # a megabyte of one-kilobyte messages, three to a page
        for turn in range(1, 200):
            store.commit(updates(range(count), turn))
        assert store.full
        # What was in progress when the limit was reached is still accepted, far beyond the map that LMDB was opened
        # with.
        store.commit(sends(range(count, count + 5000)))
        assert stored(store) == list(range(count + 5000))
        for first in range(0, count + 5000, 50):
            store.commit(completes(range(first, first + 50)))
        clock.step(ms=999)
        clock.step(ms=1)
        assert not store.full
        assert send_until_full(store, 10 * count) - 10 * count > 600
    with small_store(tmp_path) as store:
        assert store.full


def test_full_is_seen_again_without_any_commit(tmp_path: Path) -> None:
    clock = SteppedClock()
    with small_store(tmp_path, clock) as store:
        count = send_until_full(store)
        prepared = store.begin(completes(range(count)))
        clock.step(seconds=5)
        assert store.full  # a commit is running, so the space is not measured
        prepared.commit()
        assert not store.full


def test_lmdb_s_own_map_full_error_grows_the_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "_ensure_tail", lambda self, facts: None)
    grown = []
    grow = Store._grow_map
    monkeypatch.setattr(Store, "_grow_map", lambda self, count: (grown.append(count), grow(self, count)))
    with small_store(tmp_path) as store:
        store.commit(sends(range(100)))
        assert not grown
        store.commit(sends(range(100, 3000)))
        assert len(grown) == 1
        assert stored(store) == list(range(3000))


def test_a_map_that_cannot_grow_stops_the_store_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "_ensure_tail", lambda self, facts: None)
    monkeypatch.setattr(Store, "_grow_map", lambda self, count: None)
    with small_store(tmp_path) as store:
        count = 600
        store.commit(sends(range(count)))
        with pytest.raises(StoreError, match="MDB_MAP_FULL") as raised:
            store.commit(sends(range(count, 5000)))
        assert isinstance(raised.value.__cause__, lmdb.MapFullError)
        with pytest.raises(StoreError, match="MDB_MAP_FULL"):
            store.begin(completes([1]))
        assert stored(store) == list(range(count))
    monkeypatch.undo()
    with small_store(tmp_path) as store:
        assert stored(store) == list(range(count))
        store.commit(completes(range(count)))
        assert stored(store) == []


def test_a_smaller_bound_than_what_is_there_is_full_from_the_start(tmp_path: Path) -> None:
    with Store.open(tmp_path, sync=False) as store:
        store.commit(sends(range(3000)))
    with small_store(tmp_path) as store:
        assert store.full
        assert stored(store) == list(range(3000))
        store.commit(completes(range(3000)))


def run_child(command: list[str]) -> str:
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_writes_refused_by_the_kernel(tmp_path: Path) -> None:
    assert run_child([sys.executable, str(CHILD), "limited_file", str(tmp_path)]) == "done\n"


@pytest.mark.parametrize("scenario", ["full_disk", "drained_disk"])
def test_full_disk(tmp_path: Path, scenario: str) -> None:
    """Fill a disk of six megabytes, mounted in its own name space; needs no privileges where those are allowed."""
    inside = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    mount = 'mount -t tmpfs -o size=6m twinbus-test "$1"'
    if (
        not shutil.which("unshare")
        or subprocess.run([*inside, mount, "sh", str(tmp_path)], capture_output=True, check=False).returncode
    ):
        pytest.skip("this machine allows no private mounts; test_writes_refused_by_the_kernel covers the same code")
    arguments = ["sh", str(tmp_path), sys.executable, str(CHILD), scenario]
    assert run_child([*inside, f'{mount} && exec "$2" "$3" "$4" "$1"', *arguments]) == "done\n"
