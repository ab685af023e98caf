"""Rows that match their checksum, and rows that do not."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_rows import body_of, sends, stored

from twinbus.errors import StoreCorruptError
from twinbus.store import check
from twinbus.store.checksums import sealed, sealed_rows, unsealed, unsealed_rows
from twinbus.store.environment import FORMAT_KEY, open_environment
from twinbus.store.facts import DAMAGED, Facts, Table, index_key
from twinbus.store.lmdb_store import Store

KEY = index_key(1, 7)


@given(st.binary(min_size=1, max_size=40), st.binary(max_size=200))
def test_a_row_reads_back(key: bytes, value: bytes) -> None:
    row = sealed(key, value)
    assert unsealed(key, row) == value
    assert sealed_rows([(key, value)]) == [(key, row)]
    assert list(unsealed_rows([(key, row)])) == [(key, value)]


@given(st.binary(min_size=1, max_size=40), st.binary(max_size=60), st.data())
def test_no_changed_bit_goes_unnoticed(key: bytes, value: bytes, data: st.DataObject) -> None:
    whole = key + sealed(key, value)
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    harmed = bytearray(whole)
    harmed[bit // 8] ^= 1 << bit % 8
    key, row = bytes(harmed[: len(key)]), bytes(harmed[len(key) :])
    assert unsealed(key, row) is DAMAGED
    assert list(unsealed_rows([(key, row)])) == [(key, DAMAGED)]


@pytest.mark.parametrize("row", [b"", b"a", b"abcd", sealed(KEY, b"value")[:-1], sealed(KEY, b"value") + b"\0"])
def test_a_row_cut_short_or_longer_is_damaged(row: bytes) -> None:
    assert unsealed(KEY, row) is DAMAGED


def test_a_damaged_row_hides_no_other(tmp_path: Path) -> None:
    with Store.open(tmp_path, sync=False) as store:
        store.commit(sends(range(10)))
        with store._env.begin(write=True) as txn:
            row = bytearray(txn.get(KEY, db=store._tables[Table.INDEX]))
            row[0] ^= 1
            txn.put(KEY, bytes(row), db=store._tables[Table.INDEX])
    with Store.open(tmp_path, sync=False) as store:
        assert store.get(Table.INDEX, KEY) is DAMAGED
        rows = dict(store.scan(Table.INDEX))
        assert rows.pop(KEY) is DAMAGED
        assert sorted(map(body_of, rows.values())) == [0, 1, 2, 3, 4, 5, 6, 8, 9]
    with pytest.raises(StoreCorruptError, match="A record in INDEX does not match its checksum"):
        check.compact(tmp_path, tmp_path / "copy")


def without_checksums(folder: Path) -> dict[Table, dict[bytes, bytes]]:
    """Convert a folder to the format of earlier releases; return its rows."""
    rows: dict[Table, dict[bytes, bytes]] = {}
    env, tables = open_environment(folder, map_bytes=1 << 26)
    with env.begin(write=True) as txn:
        for table in Table:
            rows[table] = dict(tables.rows(txn, table))
            if table is not Table.BODIES:
                for key, value in rows[table].items():
                    txn.put(key, value, db=tables.handles[table])
        txn.put(FORMAT_KEY, b"1", db=tables.handles[Table.META])
    env.close()
    return rows


def filled(folder: Path, count: int) -> None:
    with Store.open(folder, sync=False) as store:
        store.commit(sends(range(count), 10))
        facts = Facts()
        facts.rows[Table.ENTITIES, b"entity"] = b"{}"
        facts.rows[Table.SESSIONS, b"session"] = b"state"
        facts.rows[Table.DUPLICATES, b"id"] = b""
        facts.rows[Table.META, b"mark"] = b"8 bytes."
        store.commit(facts)


def test_a_folder_of_the_first_format_is_given_checksums_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    # More rows than one page of the conversion.
    filled(tmp_path, 25_000)
    rows = without_checksums(tmp_path)
    assert check.verify(tmp_path, body_of).ok
    caplog.set_level(logging.INFO)
    for _ in range(2):
        with Store.open(tmp_path, sync=False) as store:
            assert {table: dict(store.scan(table)) for table in Table} == rows
            assert stored(store) == list(range(25_000))
    assert [record.message for record in caplog.records if "checksums" in record.message] == [
        f"Adding checksums to the records in {tmp_path}: this happens once."
    ]
    assert check.verify(tmp_path, body_of).ok


def test_a_copy_of_a_folder_of_the_first_format_has_checksums(tmp_path: Path) -> None:
    source, copy = tmp_path / "data", tmp_path / "copy"
    filled(source, 100)
    rows = without_checksums(source)
    check.compact(source, copy)
    env, tables = open_environment(copy, map_bytes=1 << 26, readonly=True)
    with env.begin() as txn:
        assert tables.sealed
        assert {table: dict(tables.rows(txn, table)) for table in Table} == rows
    env.close()
    # The original is opened read-only.
    env, tables = open_environment(source, map_bytes=1 << 26, readonly=True)
    assert not tables.sealed
    env.close()


def test_an_upgrade_fits_a_map_that_is_nearly_full(tmp_path: Path) -> None:
    filled(tmp_path, 25_000)
    rows = without_checksums(tmp_path)
    size = (tmp_path / "data.mdb").stat().st_size
    with Store.open(tmp_path, map_bytes=size, sync=False) as store:
        assert dict(store.scan(Table.INDEX)) == rows[Table.INDEX]
