from __future__ import annotations

import random
import threading
from pathlib import Path

import lmdb
import pytest
from store_rows import completes, content, sends, stored, updates

from twinbus.errors import StoreCorruptError, StoreError
from twinbus.limits import STORE_KEY_BYTES_MAX
from twinbus.store.environment import FORMAT_KEY
from twinbus.store.facts import Facts, Table, body_key, index_key
from twinbus.store.lmdb_store import Store


@pytest.fixture
def store(tmp_path: Path):
    with Store.open(tmp_path, sync=False) as store:
        yield store


def reopened(store: Store) -> Store:
    store.close()
    return Store.open(store.folder, sync=False)


def test_what_was_committed_is_there_after_reopening(store: Store) -> None:
    facts = sends(range(10))
    facts.rows[Table.ENTITIES, b"e"] = b"1"
    facts.rows[Table.SESSIONS, b"s"] = b""
    facts.rows[Table.DUPLICATES, b"d"] = b"3"
    facts.rows[Table.META, b"m"] = b"4"
    store.commit(facts)
    with reopened(store) as again:
        assert stored(again) == list(range(10))
        assert again.get(Table.ENTITIES, b"e") == b"1"
        assert again.get(Table.SESSIONS, b"s") == b""
        assert again.get(Table.DUPLICATES, b"d") == b"3"
        assert again.get(Table.META, b"m") == b"4"
        assert again.get(Table.META, b"none") is None


def test_a_delete_takes_back_the_put_of_its_commit(store: Store) -> None:
    facts = sends([1, 2])
    completes([1, 7], facts)  # 7 never existed
    store.commit(facts)
    assert stored(store) == [2]


@pytest.mark.parametrize("seed", range(20))
def test_the_last_word_for_a_row_holds(tmp_path: Path, seed: int) -> None:
    """Put and delete rows of every table in any order, some of them several times in one commit."""
    chance = random.Random(seed)
    rows: dict[tuple[Table, bytes], bytes] = {}
    for _ in range(5):
        with Store.open(tmp_path, sync=False) as store:
            for _ in range(chance.randrange(1, 10)):
                facts = Facts()
                for _ in range(chance.randrange(30)):
                    table = chance.choice(list(Table))
                    key = body_key(chance.randrange(6))
                    if chance.random() < 0.5:
                        facts.delete(table, key)
                        rows.pop((table, key), None)
                        continue
                    value = rows[table, key] = chance.randbytes(4)
                    if table is Table.BODIES:
                        facts.bodies[key] = value
                    elif table is Table.INDEX:
                        facts.index[key] = value
                    else:
                        facts.rows[table, key] = value
                store.commit(facts)
            for table in Table:
                found = {key: value for key, value in store.scan(table) if key != FORMAT_KEY}
                if table is Table.BODIES:
                    found = {key: value[4:] for key, value in found.items()}
                assert found == {key: value for (of, key), value in rows.items() if of is table}


@pytest.mark.parametrize("size", [0, 1, 3, 4, 2000, 4096, 1 << 20])
def test_bodies_of_every_size(store: Store, size: int) -> None:
    store.commit(sends([5], size))
    assert store.body(5) == content(5, size)
    assert store.bodies([5, 5]) == [content(5, size)] * 2
    assert store.bodies([]) == []


def test_body_keys_that_do_not_ascend_are_written_too(store: Store) -> None:
    for numbers in ([5, 6], [3, 4], [9, 7, 8], [8, 8], [2], [10, 11], [2**64 - 1], [12]):
        store.commit(sends(numbers))
    with reopened(store) as again:
        again.commit(sends([1, 13]))
        assert stored(again) == [*range(1, 14), 2**64 - 1]


def test_a_body_put_again_is_replaced(store: Store) -> None:
    store.commit(sends([1], 10))
    store.commit(sends([1], 20))
    assert store.body(1) == content(1, 20)


def test_appended_bodies_fill_their_pages(store: Store) -> None:
    for first in range(0, 2000, 50):
        store.commit(sends(range(first, first + 50)))
    pages = (store.folder / "data.mdb").stat().st_size / 4096
    assert pages < 2000 / 3 * 1.25


def test_nothing_to_write_needs_no_transaction(store: Store) -> None:
    prepared = store.begin(Facts())
    store.commit(sends([1]))
    prepared.commit()
    assert stored(store) == [1]


def test_reads_during_a_commit_are_of_the_last_one(store: Store) -> None:
    store.commit(sends([1]))
    reader = store._reader
    prepared = store.begin(sends([2]))
    assert store._reader is not reader
    reader = store._reader
    assert stored(store) == [1]
    with pytest.raises(StoreCorruptError, match="Body 2 is not in the store"):
        store.body(2)
    # No read transaction may begin during a commit: it would read a meta page that is being written.
    assert store._reader is reader
    thread = threading.Thread(target=prepared.commit)
    thread.start()
    thread.join()
    assert stored(store) == [1, 2]


def test_one_commit_at_a_time(store: Store) -> None:
    prepared = store.begin(sends([1]))
    with pytest.raises(StoreError, match="still running"):
        store.begin(sends([2]))
    prepared.commit()
    prepared.commit()  # a second commit has no effect
    store.commit(sends([2]))
    assert stored(store) == [1, 2]


def test_a_prepared_commit_is_dropped_by_close(store: Store) -> None:
    store.commit(sends([1]))
    prepared = store.begin(sends([2]))
    store.close()
    prepared.commit()
    with Store.open(store.folder, sync=False) as again:
        assert stored(again) == [1]
    with pytest.raises(StoreError, match="is closed"):
        store.begin(sends([3]))
    with pytest.raises(StoreError):
        store.body(1)
    with pytest.raises(StoreError):
        store.get(Table.META, b"m")
    with pytest.raises(StoreError):
        store.scan(Table.INDEX)


def test_close_while_a_commit_runs_is_refused(store: Store) -> None:
    prepared = store.begin(sends([1]))
    txn, prepared._txn = prepared._txn, None  # as if the committing thread were running
    with pytest.raises(StoreError, match="still running"):
        store.close()
    prepared._txn = txn
    prepared.commit()


def test_scan_takes_the_half_open_range(store: Store) -> None:
    facts = Facts()
    rows = [(index_key(entity, number), bytes([entity, number])) for entity in (1, 2, 3) for number in range(5)]
    facts.index = dict(random.Random(1).sample(rows, len(rows)))
    store.commit(facts)
    assert list(store.scan(Table.INDEX)) == rows
    assert list(store.scan(Table.INDEX, index_key(2, 0), index_key(3, 0))) == rows[5:10]
    assert list(store.scan(Table.INDEX, index_key(2, 3), index_key(9, 0))) == rows[8:]
    assert list(store.scan(Table.INDEX, b"", index_key(1, 1))) == rows[:1]
    assert list(store.scan(Table.INDEX, index_key(4, 0))) == []
    assert list(store.scan(Table.INDEX, index_key(2, 0), index_key(2, 0))) == []
    assert list(store.scan(Table.SESSIONS, b"", b"x")) == []
    assert store.page(Table.INDEX, index_key(1, 3), index_key(3, 0), 4) == rows[3:7]
    assert store.page(Table.INDEX, index_key(2, 4), index_key(3, 0), 4) == rows[9:10]
    assert store.page(Table.INDEX, b"", None, 0) == []


def test_a_scan_outlives_a_commit_but_not_a_begin(store: Store) -> None:
    store.commit(sends(range(10)))
    prepared = store.begin(completes([5]))
    scan = store.scan(Table.INDEX)
    next(scan)
    prepared.commit()
    assert stored(store) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert len(list(scan)) == 9  # its own snapshot still has the deleted one
    scan = store.scan(Table.INDEX)
    next(scan)
    prepared = store.begin(sends([11]))
    with pytest.raises(StoreError, match="cannot be read"):
        next(scan)
    prepared.commit()


def test_a_snapshot_hides_a_commit_that_ends_meanwhile(store: Store) -> None:
    store.commit(sends([1, 2]))
    prepared = store.begin(completes([2]))
    with store.snapshot():
        assert len(store.page(Table.INDEX, b"", None, 10)) == 2
        prepared.commit()
        assert store.bodies([1, 2]) == [content(1), content(2)]
        with pytest.raises(StoreError, match="snapshot is being read"):
            store.begin(sends([3]))
    assert stored(store) == [1]
    store.commit(sends([3]))


def test_a_changed_body_is_named(store: Store) -> None:
    store.commit(sends([1, 2, 3]))
    for damaged in (b"\x00\x00\x00\x00" + content(2), b"abc"):
        with store._env.begin(write=True) as txn:
            txn.put(body_key(2), damaged, db=store._tables[Table.BODIES])
        store._stale = True
        for read in (store.body, lambda number: store.bodies([1, number, 3])):
            with pytest.raises(StoreCorruptError, match="Body 2 "):
                read(2)
        assert store.bodies([1, 3]) == [content(1), content(3)]


def test_a_key_as_long_as_may_be_and_one_past(store: Store) -> None:
    assert store._env.max_key_size() == STORE_KEY_BYTES_MAX
    facts = Facts()
    facts.rows[Table.SESSIONS, b"k" * STORE_KEY_BYTES_MAX] = b"v"
    store.commit(facts)
    facts = sends([1])
    facts.rows[Table.SESSIONS, b"k" * (STORE_KEY_BYTES_MAX + 1)] = b"v"
    with pytest.raises(StoreError):
        store.begin(facts)


def test_a_commit_that_fails_stops_the_store_but_not_its_reads(store: Store) -> None:
    store.commit(sends([1]))
    bad = sends([2])
    bad.rows[Table.META, b""] = b"an empty key"
    with pytest.raises(StoreError, match="what was confirmed is safe"):
        store.commit(bad)
    with pytest.raises(StoreError, match="Nothing more is accepted"):
        store.begin(sends([3]))
    assert stored(store) == [1]
    with reopened(store) as again:
        assert stored(again) == [1]


def test_the_engine_is_the_one_the_reasoning_was_made_for(store: Store) -> None:
    version = store._env.lib_version() if hasattr(store._env, "lib_version") else lmdb.version()
    assert version < (1, 0, 0)


def test_random_commits_against_a_model(store: Store) -> None:
    chance = random.Random(20)
    model: dict[int, int] = {}
    number = 0
    for _ in range(150):
        facts = Facts()
        for part in range(chance.randrange(1, 4)):
            if part == 0:
                new = range(number, number + chance.randrange(40))
                number = new.stop
                made = sends(new, chance.choice([10, 1000, 5000]))
                model.update(dict.fromkeys(new, 0))
            else:
                some = chance.sample(sorted(model), min(len(model), chance.randrange(30)))
                mark = chance.randrange(1, 200)
                made = updates(some, mark)
                model.update(dict.fromkeys(some, mark))
            facts.bodies.update(made.bodies)
            facts.index.update(made.index)
        gone = chance.sample(sorted(model), min(len(model), chance.randrange(40)))
        completes(gone, facts)
        for one in gone:
            del model[one]
        store.commit(facts)
        if chance.random() < 0.05:
            store.close()
            store.__dict__.update(Store.open(store.folder, sync=False).__dict__)
        assert {int.from_bytes(key[4:], "big"): value[0] for key, value in store.scan(Table.INDEX)} == model
    assert stored(store) == sorted(model)
