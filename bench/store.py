"""What the store costs over bare LMDB: scanning a million index rows, and the cost of one message."""

from __future__ import annotations

import struct
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from twinbus.store.facts import Facts, Table, body_key, index_key
from twinbus.store.lmdb_store import Store

INDEX_ROWS = 1_000_000
VALUE = struct.Struct(">BBIQIQQ").pack(1, 0, 0, 7, 1024, 1_700_000_000_000, 0)


def best_s(call: Callable[[], object], times: int = 3) -> float:
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return min(taken)


def sends(numbers: range) -> Facts:
    facts = Facts()
    facts.bodies = {body_key(number): b"x" * 1024 for number in numbers}
    facts.index = {index_key(1, number): VALUE for number in numbers}
    return facts


def completes(numbers: range) -> Facts:
    facts = Facts()
    for number in numbers:
        facts.delete(Table.BODIES, body_key(number))
        facts.delete(Table.INDEX, index_key(1, number))
    return facts


def scanning(folder: Path) -> None:
    with Store.open(folder, sync=False) as store:
        facts = Facts()
        facts.index = {index_key(1, number): VALUE for number in range(INDEX_ROWS)}
        store.commit(facts)
        del facts

        def bare() -> None:
            with store._env.begin() as txn:
                deque(txn.cursor(store._tables[Table.INDEX]).iternext(), maxlen=0)

        bare_s = best_s(bare)
        scan_s = best_s(lambda: deque(store.scan(Table.INDEX), maxlen=0))
        range_s = best_s(lambda: deque(store.scan(Table.INDEX, index_key(1, 0), index_key(2, 0)), maxlen=0))
    print(f"{INDEX_ROWS} index rows: bare LMDB {bare_s:.3f} s, scan {scan_s:.3f} s, scan of one entity {range_s:.3f} s")


def message(folder: Path) -> None:
    with Store.open(folder, sync=False) as store:
        numbers = list(range(100))
        begin_s = []
        for first in range(0, 10_000, 100):
            facts = sends(range(first, first + 100))
            start = time.perf_counter()
            prepared = store.begin(facts)
            begin_s.append(time.perf_counter() - start)
            prepared.commit()
        put_us = min(begin_s) * 1e4
        burst_us = best_s(lambda: store.bodies(numbers), 20) * 1e4
        single_us = best_s(lambda: [store.body(number) for number in numbers], 20) * 1e4
        facts = completes(range(100))
        start = time.perf_counter()
        prepared = store.begin(facts)
        delete_us = (time.perf_counter() - start) * 1e4
        prepared.commit()
    print(
        f"a 1 KB message, us: begin {put_us:.2f} (body and index row), read {burst_us:.2f} in a burst of 100, "
        f"{single_us:.2f} alone, delete {delete_us:.2f} (body and index row)"
    )


if __name__ == "__main__":
    for measure in (scanning, message):
        with tempfile.TemporaryDirectory(prefix="twinbus-store-") as name:
            measure(Path(name))
