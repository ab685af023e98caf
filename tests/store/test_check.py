from __future__ import annotations

import os
import stat
from pathlib import Path

import lmdb
import pytest
from store_rows import body_of, completes, content, sends, stored

from twinbus.errors import StoreCorruptError, StoreError, StoreLockedError
from twinbus.limits import STORE_FINDINGS_MAX
from twinbus.store import check
from twinbus.store.checksums import sealed
from twinbus.store.facts import DAMAGED, Facts, Table, body_key, index_key
from twinbus.store.lmdb_store import Store


def filled(folder: Path, count: int = 100) -> None:
    with Store.open(folder, sync=False) as store:
        store.commit(sends(range(count)))
        facts = Facts()
        facts.rows[Table.ENTITIES, b"e"] = b"1"
        facts.rows[Table.META, b"m"] = b"2"
        store.commit(facts)


def damage(folder: Path, table: Table, key: bytes, value: bytes | None) -> None:
    with Store.open(folder, sync=False) as store, store._env.begin(write=True) as txn:
        if value is None:
            txn.delete(key, db=store._tables[table])
        else:
            txn.put(key, value, db=store._tables[table])


def test_a_sound_store(tmp_path: Path) -> None:
    filled(tmp_path)
    seen: list[tuple[int, int]] = []
    report = check.verify(tmp_path, body_of, lambda done, total: seen.append((done, total)))
    assert report.ok
    assert report.rows == {
        Table.BODIES: 100,
        Table.INDEX: 100,
        Table.ENTITIES: 1,
        Table.SESSIONS: 0,
        Table.DUPLICATES: 0,
        Table.META: 2,
    }
    assert report.body_bytes == 100 * 1024
    assert (report.bad_bodies, report.bad_index, report.dangling, report.orphans) == (0, 0, 0, 0)
    assert seen == [(200, 200)]


def test_progress_is_told_on_the_way(tmp_path: Path) -> None:
    with Store.open(tmp_path, sync=False) as store:
        store.commit(sends(range(15_000), 10))
    seen: list[tuple[int, int]] = []
    check.verify(tmp_path, body_of, lambda done, total: seen.append((done, total)))
    assert seen == [(10_000, 30_000), (20_000, 30_000), (30_000, 30_000), (30_000, 30_000)]


def test_every_finding_is_named(tmp_path: Path) -> None:
    filled(tmp_path)
    damage(tmp_path, Table.BODIES, body_key(3), b"\0\0\0\0" + content(3))
    damage(tmp_path, Table.BODIES, body_key(4), b"abc")
    damage(tmp_path, Table.BODIES, body_key(5), None)
    damage(tmp_path, Table.INDEX, index_key(1, 6), None)
    damage(tmp_path, Table.INDEX, index_key(1, 7), b"")
    shared = index_key(2, 1)
    damage(tmp_path, Table.INDEX, shared, sealed(shared, b"\0" + body_key(8)))  # shared by two messages: not a finding

    def strict(value: bytes) -> int:
        if value is DAMAGED:
            raise StoreCorruptError("damaged")
        return body_of(value)

    report = check.verify(tmp_path, strict)
    assert not report.ok
    assert (report.bad_bodies, report.bad_body_numbers) == (2, [3, 4])
    assert (report.dangling, report.dangling_keys, report.dangling_counts) == (1, [(1, 5, 5)], {1: 1})
    lines = check.left_out(report)
    assert "entity 1 still lists 1 message without a body" in lines
    assert "message 5 of entity 1 has lost its body 5" in lines
    assert (report.orphans, report.orphan_numbers) == (2, [6, 7])
    assert (report.bad_index, report.bad_index_keys) == (1, [(1, 7)])


def test_orphans_alone_are_no_damage(tmp_path: Path) -> None:
    filled(tmp_path)
    damage(tmp_path, Table.INDEX, index_key(1, 99), None)
    report = check.verify(tmp_path, body_of)
    assert report.ok
    assert report.orphan_numbers == [99]


def test_findings_are_listed_up_to_a_bound_and_counted_beyond(tmp_path: Path) -> None:
    with Store.open(tmp_path, sync=False) as store:
        facts = sends(range(STORE_FINDINGS_MAX + 1), 10)
        facts.index.clear()
        store.commit(facts)
    report = check.verify(tmp_path, body_of)
    assert report.orphans == STORE_FINDINGS_MAX + 1
    assert len(report.orphan_numbers) == STORE_FINDINGS_MAX


def test_a_store_in_use_or_not_there_is_not_looked_at(tmp_path: Path) -> None:
    for run in (lambda at: check.verify(at, body_of), lambda at: check.compact(at, tmp_path / "copy")):
        with pytest.raises(StoreError, match="no store in"):
            run(tmp_path / "none")
        assert not (tmp_path / "none").exists()
        with Store.open(tmp_path / "data", sync=False), pytest.raises(StoreLockedError, match=str(os.getpid())):
            run(tmp_path / "data")


def test_an_empty_lmdb_file_is_no_store(tmp_path: Path) -> None:
    lmdb.open(str(tmp_path), lock=False).close()
    with pytest.raises(StoreError, match="no store in"):
        check.verify(tmp_path, body_of)


def test_a_cut_file_is_damage(tmp_path: Path) -> None:
    filled(tmp_path, 1000)
    path = tmp_path / "data.mdb"
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(StoreCorruptError, match="damaged"):
        check.verify(tmp_path, body_of)


def test_a_compact_copy_has_the_same_rows_in_less_space(tmp_path: Path) -> None:
    source = tmp_path / "data"
    copy = tmp_path / "sub" / "copy"
    filled(source, 5000)
    with Store.open(source, sync=False) as store:
        store.commit(completes(n for n in range(5000) if n % 10))
        kept = {table: list(store.scan(table)) for table in Table}
    copy.parent.mkdir()
    (copy.parent / "copy.unfinished").mkdir()  # left by an earlier, interrupted attempt
    seen: list[tuple[int, int]] = []
    before, after = check.compact(source, copy, lambda done, total: seen.append((done, total)))
    assert after < before / 5
    assert (copy / "data.mdb").stat().st_size == after
    assert seen[-1] == (1002, 1002)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o700
    assert stat.S_IMODE((copy / "data.mdb").stat().st_mode) == 0o600
    assert not (copy.parent / "copy.unfinished").exists()
    for folder in (source, copy):
        with Store.open(folder, sync=False) as store:
            assert {table: list(store.scan(table)) for table in Table} == kept
            assert stored(store) == list(range(0, 5000, 10))


def test_large_stores_are_copied_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "_COPY_BYTES", 10_000)
    filled(tmp_path / "data", 100)
    check.compact(tmp_path / "data", tmp_path / "copy")
    with Store.open(tmp_path / "copy", sync=False) as store:
        assert stored(store) == list(range(100))


def test_a_copy_never_replaces_anything_and_never_hides_damage(tmp_path: Path) -> None:
    filled(tmp_path / "data")
    (tmp_path / "there").mkdir()
    with pytest.raises(StoreError, match="exists"):
        check.compact(tmp_path / "data", tmp_path / "there")
    damage(tmp_path / "data", Table.BODIES, body_key(3), b"\0\0\0\0" + content(3))
    with pytest.raises(StoreCorruptError, match="Body 3 "):
        check.compact(tmp_path / "data", tmp_path / "copy")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["data", "there"]
