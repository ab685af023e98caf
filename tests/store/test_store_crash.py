"""Confirmed commits survive kill -9, and a commit is stored completely or not at all."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from store_child import BATCH
from store_rows import body_of, stored

from twinbus.store import check
from twinbus.store.facts import Table
from twinbus.store.lmdb_store import Store

CHILD = Path(__file__).with_name("store_child.py")
KILLS = 6


def test_confirmed_commits_survive_kill_9(tmp_path: Path) -> None:
    chance = random.Random(9)
    confirmed = 0
    for _ in range(KILLS):
        with subprocess.Popen(
            [sys.executable, str(CHILD), "commits", str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as child:
            assert child.stdout is not None
            for _ in range(chance.randrange(20, 200)):
                confirmed = int(child.stdout.readline())
            for _ in range(chance.randrange(50_000)):
                pass  # kill at any point of a commit, not only right after one
            child.kill()
            for line in child.stdout:
                confirmed = int(line) if line.endswith("\n") else confirmed
        assert child.returncode == -9
        with Store.open(tmp_path, sync=False) as store:
            durable = int(store.get(Table.META, b"batch") or b"0")
            # The commit in progress may be there too: it was not confirmed, but it is complete.
            assert confirmed <= durable <= confirmed + 1
            there = [batch for batch in range(1, durable + 1) if batch % 3 != 1 or batch + 2 > durable]
            assert stored(store) == [number for batch in there for number in range(batch * BATCH, (batch + 1) * BATCH)]
    report = check.verify(tmp_path, body_of)
    assert report.ok
    assert report.orphans == 0
