from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import lmdb
import pytest
from store_rows import sends

from twinbus.errors import StoreCorruptError, StoreError, StoreLockedError
from twinbus.store.environment import FORMAT_KEY
from twinbus.store.facts import Facts, Table
from twinbus.store.lmdb_store import Store

OPEN = "import sys; from pathlib import Path; from twinbus.store.lmdb_store import Store; Store.open(Path(sys.argv[1]))"


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


@pytest.mark.parametrize(("found", "text"), [(b"2", "has format 2"), (None, "has no format")])
def test_another_data_format_is_refused(tmp_path: Path, found: bytes | None, text: str) -> None:
    with Store.open(tmp_path, sync=False) as store:
        assert store.get(Table.META, FORMAT_KEY) == b"1"
        facts = Facts()
        if found is None:
            facts.delete(Table.META, FORMAT_KEY)
        else:
            facts.rows[Table.META, FORMAT_KEY] = found
        store.commit(facts)
    with pytest.raises(StoreError, match=f"{text}; this release reads format 1"):
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
