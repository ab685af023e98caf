from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest
from store_rows import body_of, sends

from twinbus.errors import StoreCorruptError, StoreError, StoreLockedError
from twinbus.store import check
from twinbus.store.environment import FORMAT_KEY, open_environment
from twinbus.store.facts import Table
from twinbus.store.lmdb_store import Store

OPEN = "import sys; from pathlib import Path; from twinbus.store.lmdb_store import Store; Store.open(Path(sys.argv[1]))"

# Dies before LMDB is opened, or when its file exists but has no tables yet.
KILLED = """
import os, sys
from pathlib import Path
import lmdb
from twinbus.store.lmdb_store import Store

opened = lmdb.open

def killed(*arguments, **options):
    if sys.argv[2]:
        opened(*arguments, **options)
    os.kill(os.getpid(), 9)

lmdb.open = killed
Store.open(Path(sys.argv[1]))
"""


def test_only_the_owner_may_look_inside(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "data"
    old = os.umask(0)
    try:
        Store.open(folder, reserve_bytes=4096).close()
    finally:
        os.umask(old)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file in folder.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    assert sorted(file.name for file in folder.iterdir()) == ["ballast", "data.mdb", "lock"]


def test_the_map_is_sparse(tmp_path: Path) -> None:
    with Store.open(tmp_path / "data", sync=False, map_bytes=1 << 40):
        assert (tmp_path / "data" / "data.mdb").stat().st_size < 1 << 20


def test_a_second_process_is_told_who_holds_the_folder(tmp_path: Path) -> None:
    with Store.open(tmp_path, sync=False):
        run = subprocess.run([sys.executable, "-c", OPEN, str(tmp_path)], capture_output=True, text=True, check=False)
    assert run.returncode != 0
    assert f"StoreLockedError: The data folder {tmp_path} is in use by process {os.getpid()}. Stop" in run.stderr


def test_a_second_open_in_the_same_process_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    with Store.open(tmp_path, sync=False) as store:
        with pytest.raises(StoreLockedError, match=f"process {os.getpid()}"):
            Store.open(tmp_path, sync=False)
        store.commit(sends([1]))
    with Store.open(tmp_path, sync=False) as store:
        assert store.body(1)


def test_a_failed_open_lets_go_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(b"not a database" * 1000)
    for _ in range(2):
        with pytest.raises(StoreCorruptError, match="is not a store"):
            Store.open(tmp_path, sync=False)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="Choose another one"):
        Store.open(tmp_path / "file" / "data", sync=False)
    with pytest.raises(StoreError):
        Store.open(tmp_path / "file", sync=False)


@pytest.mark.parametrize(("found", "text"), [(b"3", "has format 3"), (None, "has no format")])
def test_another_data_format_is_refused(tmp_path: Path, found: bytes | None, text: str) -> None:
    Store.open(tmp_path, sync=False).close()
    env, tables = open_environment(tmp_path, map_bytes=1 << 20)
    with env.begin(write=True, db=tables.handles[Table.META]) as txn:
        assert txn.get(FORMAT_KEY) == b"2"
        if found is None:
            txn.delete(FORMAT_KEY)
        else:
            txn.put(FORMAT_KEY, found)
    env.close()
    with pytest.raises(StoreError, match=f"{text}; this release reads formats 1 and 2"):
        Store.open(tmp_path, sync=False)


def test_a_missing_table_is_damage(tmp_path: Path) -> None:
    env = lmdb.open(str(tmp_path), max_dbs=1, lock=False)
    env.open_db(b"bodies")
    env.close()
    with pytest.raises(StoreCorruptError, match="lacks a table"):
        Store.open(tmp_path, sync=False)


@pytest.mark.parametrize("share", [0.9, 0.5, 0.1, 0.01, 0.001])
def test_a_file_that_was_cut_is_damage_and_not_the_end_of_the_process(tmp_path: Path, share: float) -> None:
    with Store.open(tmp_path, sync=False) as store:
        for first in range(0, 2000, 100):
            store.commit(sends(range(first, first + 100)))
    path = tmp_path / "data.mdb"
    os.truncate(path, int(path.stat().st_size * share))

    def read_all() -> None:
        with Store.open(tmp_path, sync=False) as store:
            store.bodies(range(2000))
            list(store.scan(Table.INDEX))

    with pytest.raises(StoreCorruptError):
        read_all()


# --- a lost store ----------------------------------------------------------------------------------------------------


def removed(path: Path) -> None:
    path.unlink()


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def without_tables(path: Path) -> None:
    path.unlink()
    lmdb.open(str(path.parent), lock=False).close()


@pytest.mark.parametrize("damage", [removed, emptied, without_tables])
@pytest.mark.parametrize("left", ["lock", "ballast", "both"])
def test_a_store_that_is_gone_is_an_error_and_no_empty_namespace(
    tmp_path: Path, damage: Callable[[Path], None], left: str
) -> None:
    with Store.open(tmp_path, reserve_bytes=4096) as store:
        store.commit(sends([1]))
    damage(tmp_path / "data.mdb")
    if left != "both":
        (tmp_path / {"lock": "ballast", "ballast": "lock"}[left]).unlink()
    before = {file.name: file.stat().st_size for file in tmp_path.iterdir() if file.name != "lock"}
    for _ in range(2):
        with pytest.raises(StoreError, match=f"{tmp_path} had a store.*data.mdb.*backup"):
            Store.open(tmp_path, sync=False)
    assert before == {file.name: file.stat().st_size for file in tmp_path.iterdir() if file.name != "lock"}


@pytest.mark.parametrize("steps", ["", "data.mdb"])
def test_a_store_that_was_never_finished_is_made_at_the_next_start(tmp_path: Path, steps: str) -> None:
    """Killed while the folder was being created: it never held anything."""
    run = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), steps], check=False)
    assert run.returncode == -9
    with Store.open(tmp_path, sync=False) as store:
        store.commit(sends([1]))
    with Store.open(tmp_path, sync=False) as store:
        assert store.body(1)


# --- the lock --------------------------------------------------------------------------------------------------------


def refused(folder: Path) -> bool:
    run = subprocess.run([sys.executable, "-c", OPEN, str(folder)], capture_output=True, text=True, check=False)
    return "StoreLockedError" in run.stderr


def test_without_its_lock_file_a_store_in_use_is_still_locked(tmp_path: Path) -> None:
    with Store.open(tmp_path, sync=False) as store:
        (tmp_path / "lock").unlink()
        with pytest.raises(StoreLockedError, match="in use"):
            Store.open(tmp_path, sync=False)
        assert refused(tmp_path)
        (tmp_path / "lock").unlink()  # left by the process that was refused
        for tool in (lambda: check.verify(tmp_path, body_of), lambda: check.compact(tmp_path, tmp_path / "copy")):
            with pytest.raises(StoreLockedError, match="in use"):
                tool()
        store.commit(sends([1]))
    with Store.open(tmp_path, sync=False) as store:
        assert store.body(1)


def test_a_store_in_use_is_locked_by_every_path_that_leads_to_it(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    by_folder, by_file, by_name = tmp_path / "link", tmp_path / "file", tmp_path / "name"
    with Store.open(folder, sync=False) as store:
        by_folder.symlink_to(folder)
        by_file.mkdir()
        (by_file / "data.mdb").symlink_to(folder / "data.mdb")
        by_name.mkdir()
        (by_name / "data.mdb").hardlink_to(folder / "data.mdb")
        for path in (by_folder, by_file, by_name):
            with pytest.raises(StoreLockedError):
                Store.open(path, sync=False)
            assert refused(path)
        store.commit(sends([1]))


def test_a_closed_store_leaves_no_lock(tmp_path: Path) -> None:
    Store.open(tmp_path, sync=False).close()
    (tmp_path / "lock").unlink()
    assert check.verify(tmp_path, body_of).ok
    Store.open(tmp_path, sync=False).close()
