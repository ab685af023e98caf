"""Read while a commit runs: a test of the reasoning at the top of lmdb_store.py."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lmdb
from store_rows import body_of, completes, content, sends, updates

from twinbus.store.facts import Table, body_key
from twinbus.store.lmdb_store import Store

STRESS_S = 2.5


def test_lmdb_keeps_the_last_two_snapshots_without_a_lock_file(tmp_path: Path) -> None:
    """Every transaction rewrites every row, so every free page is reused as soon as LMDB may reuse it."""
    env = lmdb.open(str(tmp_path), map_size=1 << 28, lock=False, sync=False)
    rows = 300

    def fill(txn: lmdb.Transaction[bytes], turn: int) -> None:
        for number in range(rows):
            txn.put(body_key(number), turn.to_bytes(4, "big") * (20 + number * 3))

    def whole(txn: lmdb.Transaction[bytes], turn: int) -> None:
        found = list(txn.cursor().iternext())
        assert found == [(body_key(number), turn.to_bytes(4, "big") * (20 + number * 3)) for number in range(rows)]

    for turn in (1, 2, 3):
        with env.begin(write=True) as txn:
            fill(txn, turn)
    size = 0
    for turn in range(4, 40):
        reader = env.begin()  # sees turn - 1
        for ahead in (0, 1):
            writing = env.begin(write=True)
            fill(writing, turn + ahead)
            whole(reader, turn - 1)
            if turn % 3 == 0:  # aborted and retried, as after a refused write
                writing.abort()
                whole(reader, turn - 1)
                writing = env.begin(write=True)
                fill(writing, turn + ahead)
            writing.commit()
            whole(reader, turn - 1)
        reader.abort()
        with env.begin(write=True) as txn:
            fill(txn, turn)
        if turn == 20:
            size = env.info()["last_pgno"]
    assert env.info()["last_pgno"] == size  # pages were reused all along; otherwise nothing would be proved
    env.close()


def test_reads_while_another_thread_commits(tmp_path: Path) -> None:
    """Bodies, index rows and checksums are those of the last commit, whatever the committing thread does."""
    chance = random.Random(3)
    model: dict[int, int] = {}
    number = 0
    reads = 0
    turns = 0
    end = time.monotonic() + STRESS_S
    with Store.open(tmp_path, reserve_bytes=0) as store, ThreadPoolExecutor(1) as worker:
        while time.monotonic() < end:
            turns += 1
            new = range(number, number + chance.randrange(1, 120))
            number = new.stop
            facts = sends(new, chance.choice((200, 1024, 1024, 6000)))
            live = sorted(model)
            # Keep about 2000 messages: remove as many as were added, at random.
            gone = chance.sample(live, min(len(live), len(new))) if len(live) > 2000 else []
            changed = chance.sample(live, min(len(live), 50))
            facts.index.update(updates(changed, turns % 250).index)
            completes(gone, facts)
            prepared = store.begin(facts)
            running = worker.submit(prepared.commit)
            while not running.done():
                with store.snapshot():
                    first = store.page(Table.INDEX, b"", None, 1)
                    if running.done():
                        break  # the snapshot may already be the new one
                    some = chance.sample(live, min(len(live), 60))
                    for found, body in zip(some, store.bodies(some), strict=True):
                        assert body == content(found, len(body))
                    assert [body_of(value) for _, value in first] == live[:1]
                    reads += len(some)
                    if chance.random() < 0.05:
                        found_rows = {body_of(value): value[0] for _, value in store.scan(Table.INDEX)}
                        assert found_rows == model
            running.result()
            model.update(dict.fromkeys(new, 0))
            model.update(dict.fromkeys(changed, turns % 250))
            for one in gone:
                del model[one]
        assert {body_of(value): value[0] for _, value in store.scan(Table.INDEX)} == model
    print(f"\n{turns} commits, {reads} bodies read while they ran")
    assert reads > turns
